"""A worker's process, as started by path: ``python -I -S _worker_process.py key=value ...``.

It imports nothing but what the interpreter has already loaded and the extension, because what it imported would be
most of the time a small cluster needs to start. Everything that has to be looked for (plugin, libzmq, extension) was
looked for once, by who starts it. Keys are those of ``run_worker`` plus ``extension`` and ``zmq`` (paths). Values are
texts; ``key:int=``, ``key:float=``, ``key:bool=`` and ``key:ints=`` (comma-separated) are typed; keys that begin with
``option.`` are the plugin's create options.
"""

import sys

ORPHANED = 3
RELEASE_S = 2.0


def parse(arguments: list[str]) -> dict[str, object]:
    """The options that ``arguments`` say; the inverse of ``_worker_command.worker_arguments``."""
    options: dict[str, object] = {}
    create_options: dict[str, object] = {}
    for argument in arguments:
        key, _, text = argument.partition("=")
        key, _, kind = key.partition(":")
        value: object = text
        if kind == "int":
            value = int(text)
        elif kind == "float":
            value = float(text)
        elif kind == "bool":
            value = text == "1"
        elif kind == "ints":
            value = [int(item) for item in text.split(",") if item]
        if key.startswith("option."):
            create_options[key.removeprefix("option.")] = value
        else:
            options[key] = value
    options["create_options"] = create_options
    return options


def main(arguments: list[str]) -> int:
    """Runs the worker; its exit code. Removes what the cluster left behind when nobody else is there to do it."""
    from importlib.machinery import ExtensionFileLoader, ModuleSpec

    options = parse(arguments)
    path = str(options.pop("extension"))
    name = "ptpathways.native._native"
    loader = ExtensionFileLoader(name, path)
    spec = ModuleSpec(name, loader, origin=path)
    native = loader.create_module(spec)
    native.__spec__ = spec
    loader.exec_module(native)
    native.load_zmq(str(options.pop("zmq")))
    code = int(native.run_worker(options))
    if code == ORPHANED:
        native.clean_up_dead_shared_memory()
        if folder := str(options.get("runtime_dir", "")):
            _remove_if_dead(folder)
    return code


def _remove_if_dead(folder: str) -> None:
    """Its maker's death may be known here a moment before the kernel has released its lock on the folder."""
    import time
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    spec = spec_from_file_location("_runtime_dir", Path(__file__).with_name("_runtime_dir.py"))
    assert spec is not None and spec.loader is not None
    runtime_dir = module_from_spec(spec)
    spec.loader.exec_module(runtime_dir)
    until = time.monotonic() + RELEASE_S
    while not runtime_dir.remove_if_dead(Path(folder)) and Path(folder).exists() and time.monotonic() < until:
        time.sleep(0.02)


if __name__ == "__main__":
    exit_code = 1
    try:
        exit_code = main(sys.argv[1:])
    except KeyboardInterrupt:
        exit_code = 130
    except BaseException as error:
        if hasattr(error, "code") and isinstance(error, RuntimeError):  # the extension's own: it says what is wrong
            print(f"ptpathways worker: {error}", file=sys.stderr)
        else:
            sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    import os

    # The plugin's threads may still be there; destructors of a library in use crash.
    os._exit(exit_code)

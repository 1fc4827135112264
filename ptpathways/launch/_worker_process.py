"""A worker's process, as started by path: ``python -I -S _worker_process.py key=value ...``.

It imports nothing but what the interpreter has already loaded and the extension, because what it imported would be
most of the time a small cluster needs to start. Everything that has to be looked for (plugin, libzmq, extension) was
looked for once, by who starts it. Keys are those of ``run_worker`` plus ``extension`` and ``zmq`` (paths). Values are
texts; ``key:int=``, ``key:float=``, ``key:bool=`` and ``key:ints=`` (comma-separated) are typed; keys that begin with
``option.`` are the plugin's create options.
"""

import sys

ORPHANED = 3


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
        import shutil

        native.clean_up_dead_shared_memory()
        if options.get("runtime_dir"):
            shutil.rmtree(str(options["runtime_dir"]), ignore_errors=True)
    return code


if __name__ == "__main__":
    exit_code = 1
    try:
        exit_code = main(sys.argv[1:])
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    import os

    # The plugin's threads may still be there; destructors of a library in use crash.
    os._exit(exit_code)

"""Runs PyTorch/XLA's own tests on our plugin and, to compare, on PyTorch/XLA's own CPU client.

The tests are not part of this repository. Give the ``test`` folder of a PyTorch/XLA checkout of the version that is
installed; nothing is fetched. Each file runs in processes of its own: one on a local cluster that ``pw.init`` starts,
one on the CPU client with as many devices. Each test's outcome is written as soon as it is known, so when a test kills
or blocks its process the test counts as crashed and a new process goes on after it.

Usage::

    python tools/conformance.py /path/to/pytorch-xla/test                              # the files of SUITE
    python tools/conformance.py /path/to/pytorch-xla/test test_metrics.py --devices 4 --select donation
    python tools/conformance.py /path/to/pytorch-xla/test --markdown table.md --json outcomes.json

Exits with 1 when a test that passes on the CPU client does not pass on the cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TARGETS = ("ptpathways", "cpu")
TEST_TIMEOUT_SECONDS = 180
FILE_TIMEOUT_SECONDS = 1500
_KNOWN_DEVICES = """
with open({base!r}) as _file:
    exec(compile(_file.read(), {base!r}, "exec"))
DISABLED_TORCH_TESTS["PATHWAYS"] = DISABLED_TORCH_TESTS["CPU"]
"""
"""What is put before PyTorch/XLA's table of torch's tests to skip, which refuses a device type it does not know."""

CRASHES_MAX = 12
"""After so many processes lost in one file the rest of it is given up and counted as not run."""


@dataclass(frozen=True)
class Entry:
    """A test file: with how many devices, and with which variables, PyTorch/XLA's own test script runs it."""

    file: str
    devices: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """``{folder}`` in a value stands for a folder that is removed afterwards."""


_EXPERIMENTAL = {"XLA_EXPERIMENTAL": "nonzero:masked_select:masked_scatter:nms"}
_IR_DEBUG = {"XLA_IR_DEBUG": "1", "XLA_HLO_DEBUG": "1"}
_SAVE_HLO = {"XLA_SAVE_TENSORS_FMT": "hlo", "XLA_SAVE_TENSORS_FILE": "{folder}/graphs"}

SUITE: tuple[Entry, ...] = (
    Entry("test_operations.py"),
    Entry("test_ops.py"),
    Entry("test_core_aten_ops.py"),
    Entry("test_data_type.py"),
    Entry("test_devices.py", 4),
    Entry("test_inplace_update.py"),
    Entry("test_input_output_aliases.py"),
    Entry("test_as_stride_use_slice.py"),
    Entry("test_grad_checkpoint.py"),
    Entry("test_gradient_accumulation.py"),
    Entry("test_autocast.py"),
    Entry("test_autocast_xla.py"),
    Entry("test_async_closures.py"),
    Entry("test_placeholder.py"),
    Entry("test_metrics.py"),
    Entry("test_callback.py"),
    Entry("test_persistent_cache.py"),
    Entry("test_compilation_cache_utils.py"),
    Entry("test_xla_graph_execution.py"),
    Entry("test_operations_hlo.py"),
    Entry("test_hlo_metadata.py"),
    Entry("test_user_computation_debug_cache.py", 1, _IR_DEBUG),
    Entry("test_python_ops.py"),
    Entry("test_ops_error_message.py"),
    Entry("test_ops_error_message_functionalization_disabled.py"),
    Entry("test_deprecation.py"),
    Entry("test_fp8.py"),
    Entry("test_gru.py"),
    Entry("test_while_loop.py"),
    Entry("test_mat_mul_precision.py"),
    Entry("test_mat_mul_precision_get_and_set.py"),
    Entry("test_dynamic_shapes_detector.py"),
    Entry("test_manual_xla_registration.py"),
    Entry("test_runtime_client_initialization_error.py"),
    Entry("test_syncfree_optimizers.py"),
    Entry("test_utils.py"),
    Entry("test_assume_pure_torch.py"),
    Entry("scan/test_scan.py"),
    Entry("scan/test_scan_layers.py"),
    Entry("scan/test_scan_spmd.py", 4),
    Entry("eager/test_eager.py"),
    Entry("eager/test_eager_with_xla_compile.py"),
    Entry("eager/test_eager_with_torch_compile.py"),
    Entry("eager/test_eager_spmd.py", 4),
    Entry("ds/test_dynamic_shapes.py", 1, _EXPERIMENTAL),
    Entry("ds/test_dynamic_shape_models.py", 1, _EXPERIMENTAL),
    Entry("pjrt/test_dtypes.py"),
    Entry("pjrt/test_runtime.py"),
    Entry("pjrt/test_runtime_multi_cpu.py", 4),
    Entry("pjrt/test_mesh_service.py"),
    Entry("dynamo/test_dynamo.py"),
    Entry("dynamo/test_dynamo_aliasing.py"),
    Entry("dynamo/test_dynamo_dynamic_shape.py"),
    Entry("dynamo/test_dynamo_integrations_util.py"),
    Entry("dynamo/test_bridge.py"),
    Entry("dynamo/test_num_output.py"),
    Entry("dynamo/test_graph_input_matcher.py"),
    Entry("dynamo/test_dynamo_config.py"),
    Entry("spmd/test_xla_sharding.py", 4),
    Entry("spmd/test_xla_sharding_hlo.py", 4),
    Entry("spmd/test_xla_virtual_device.py", 4),
    Entry("spmd/test_dynamo_spmd.py", 4),
    Entry("spmd/test_spmd_debugging.py", 4),
    Entry("spmd/test_xla_distributed_checkpoint.py", 4),
    Entry("spmd/test_xla_spmd_python_api_interaction.py", 4),
    Entry("spmd/test_spmd_parameter_wrapping.py", 4),
    Entry("spmd/test_spmd_lowering_context.py", 4, _SAVE_HLO),
    Entry("spmd/test_mp_input_sharding.py", 4),
    Entry("spmd/test_fsdp_v2.py", 4),
    Entry("spmd/test_sharding_strategies.py", 4),
    Entry("spmd/test_train_spmd_linear_model.py", 4),
    Entry("spmd/test_xla_sharded_tensor.py", 4),
    Entry("spmd/test_xla_auto_sharding.py", 4),
    Entry("spmd/test_dtensor_integration.py", 4),
    Entry("spmd/test_dtensor_integration2.py", 4),
    Entry("spmd/test_dtensor_integration3.py", 4, {"XLA_DISABLE_FUNCTIONALIZATION": "1"}),
    Entry("spmd/test_dtensor_convert_mesh.py", 4),
    Entry("spmd/test_dtensor_redistribute.py", 4),
    Entry("spmd/test_xla_dtensor_placements.py", 4),
    Entry("spmd/test_xla_dtensor_spec_conversion.py", 4),
)
"""The files about operations, execution, SPMD sharding and torch.compile. Not in it: files for TPU kernels, for
exporting StableHLO, for PyTorch/XLA's one-process-per-device launcher, and its long training scripts."""


@dataclass
class Outcome:
    """How one test ended: ``passed``, ``failed``, ``skipped``, ``crashed`` or ``not run``, and why."""

    outcome: str
    message: str = ""


Outcomes = dict[str, Outcome]


class Recorder:
    """A pytest plugin that appends what happens to a file, a line at once, so that it survives the process."""

    def __init__(self, path: Path, finished: frozenset[str]) -> None:
        self._out = path.open("a", buffering=1)
        self._finished = finished

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._finished]
        self._write({"collected": [item.nodeid for item in items]})

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write({"test": f"{report.nodeid} (import)", "outcome": "failed", "message": _message(report)})
        elif report.skipped:
            self._write({"test": f"{report.nodeid} (import)", "outcome": "skipped", "message": _message(report)})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write({"start": nodeid})

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test is what its call says, unless setup or teardown say something worse."""
        if report.when == "call" or report.outcome != "passed":
            self._write({"test": report.nodeid, "outcome": report.outcome, "message": _message(report)})

    def run_program(self, path: str) -> int:
        """A file without tests is a program; it counts as one test. Its exit code."""
        name = f"{path} (program)"
        self._write({"start": name})
        message = ""
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            message = f"the program ended with {end.code!r}" if end.code not in (None, 0, False) else ""
        except Exception:
            message = traceback.format_exc()[-1500:]
        self._write({"test": name, "outcome": "failed" if message else "passed", "message": message})
        return 1 if message else 0

    def _write(self, record: dict[str, Any]) -> None:
        self._out.write(json.dumps(record) + "\n")


def _message(report: Any) -> str:
    """The last lines of a failure, or the reason of a skip."""
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:600]
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)[-1500:]


def child(target: str, root: Path, entry_file: str, devices: int, select: str, records: Path) -> int:
    """The process that runs the tests of one file; what pytest returned."""
    if target == "ptpathways":
        import ptpathways as pw

        pw.init(hosts=1, devices_per_host=devices)
        import torch_xla.runtime

        # Some files ask for the CPU client in their setup, which the runtime that has started would refuse.
        torch_xla.runtime.set_device_type = lambda pjrt_device: None
    import pytest

    finished = frozenset(_read(records)[0])
    # As if the file had been started as a program: its folder, and where it finds the helpers beside it.
    os.chdir(root)
    sys.path[:0] = [str((root / entry_file).parent), str(root)]
    sys.argv = [entry_file]
    arguments = [
        "-q", "--tb=short", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={root}",
        f"--timeout={TEST_TIMEOUT_SECONDS}", "--timeout-method=thread", "-W", "ignore",
    ]  # fmt: skip
    if select:
        arguments += ["-k", select]
    recorder = Recorder(records, finished)
    code = int(pytest.main([*arguments, entry_file], plugins=[recorder]))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and not finished and not select:
        code = recorder.run_program(entry_file)
    if target == "ptpathways":
        pw.shutdown()
    return code


def _read(records: Path) -> tuple[Outcomes, list[str], str]:
    """What has been recorded: outcomes, the tests collected last and the test that has begun but not ended."""
    outcomes: Outcomes = {}
    collected: list[str] = []
    running = ""
    for line in records.read_text().splitlines() if records.exists() else []:
        record = json.loads(line)
        if "start" in record:
            running = record["start"]
        elif "collected" in record:
            collected = record["collected"]
        else:
            test, outcome = record["test"], Outcome(record["outcome"], record["message"])
            # A test with sub-tests reports each of them, and itself: one that failed decides.
            if test not in outcomes or outcome.outcome == "failed":
                outcomes[test] = outcome
            if running in outcomes:
                running = ""
    return outcomes, collected, running


def run_file(target: str, root: Path, entry: Entry, select: str, log: Path) -> Outcomes:
    """Runs the tests of a file on a target, in as many processes as it takes."""
    environment = {
        **os.environ,
        "XLA_THREAD_POOL_SIZE": "8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "NPROC": "32",
    }
    if target == "cpu":
        environment |= {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(entry.devices)}
    deadline = time.monotonic() + FILE_TIMEOUT_SECONDS
    with tempfile.TemporaryDirectory(prefix="ptpathways-conformance-") as folder:
        records = Path(folder) / "records"
        records.touch()
        test_devices = Path(folder) / "test_devices.py"
        test_devices.write_text(_KNOWN_DEVICES.format(base=str(root / "pytorch_test_base.py")))
        environment["TORCH_TEST_DEVICES"] = str(test_devices)
        environment |= {name: value.format(folder=folder) for name, value in entry.environment.items()}
        options = ["--child", target, "--devices", str(entry.devices), f"--select={select}", "--json", str(records)]
        command = [sys.executable, __file__, str(root), entry.file, *options]
        for _ in range(CRASHES_MAX):
            code = _run(command, environment, log, deadline - time.monotonic())
            outcomes, collected, running = _read(records)
            if running:
                why = f"the process ended with {_describe(code)} or was stopped while the test ran; see {log}"
                with records.open("a") as out:
                    out.write(json.dumps({"test": running, "outcome": "crashed", "message": why}) + "\n")
                outcomes[running] = Outcome("crashed", why)
            missing = [name for name in collected if name not in outcomes]
            if not running or not missing or time.monotonic() > deadline:
                break
        if not outcomes and not collected and code not in (0, 5):
            outcomes[f"{entry.file} (start)"] = Outcome("crashed", f"the process ended with {_describe(code)}")
        outcomes |= {name: Outcome("not run", f"given up; see {log}") for name in collected if name not in outcomes}
    return outcomes


def _run(command: Sequence[str], environment: Mapping[str, str], log: Path, timeout_s: float) -> int:
    with log.open("ab") as out:
        process = subprocess.Popen(command, env=dict(environment), stdout=out, stderr=out, start_new_session=True)
        try:
            return process.wait(max(timeout_s, 1.0))
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _describe(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _counts(outcomes: Outcomes) -> str:
    """``passed / failed / skipped``; crashed and not run tests count as failed."""
    counts = Counter(outcome.outcome for outcome in outcomes.values())
    lost = counts["failed"] + counts["crashed"] + counts["not run"]
    return f"{counts['passed']} / {lost} / {counts['skipped']}"


def differences(results: Mapping[str, Outcomes]) -> Iterator[tuple[str, str, Outcome, Outcome]]:
    """Tests whose outcome differs: (kind, test, ours, theirs); kind is ``ours`` when only the CPU client passes."""
    ours, theirs = results["ptpathways"], results["cpu"]
    nothing = Outcome("not run")
    for test in sorted({*ours, *theirs}):
        mine, other = ours.get(test, nothing), theirs.get(test, nothing)
        bad = mine.outcome not in ("passed", "skipped")
        if bad or mine.outcome != other.outcome:
            kind = "ours" if other.outcome == "passed" else "both" if mine.outcome == other.outcome else "theirs"
            yield kind, test, mine, other


def table(all_results: Mapping[str, Mapping[str, Outcomes]], devices: Mapping[str, int]) -> str:
    """A Markdown table of every file, passed / failed / skipped on each target."""
    lines = ["| file | devices | ptpathways | CPU client | fails only here |", "| --- | --- | --- | --- | --- |"]
    for file, results in all_results.items():
        cells = [_counts(results[target]) if target in results else "" for target in TARGETS]
        only = sum(kind == "ours" for kind, *_ in differences(results)) if len(results) == len(TARGETS) else ""
        lines.append(f"| {file} | {devices[file]} | {cells[0]} | {cells[1]} | {only} |")
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="conformance.py", description="PyTorch/XLA's own tests on our plugin")
    parser.add_argument("tests", type=Path, help="the test folder of a PyTorch/XLA checkout")
    parser.add_argument("files", nargs="*", help="files in it, e.g. spmd/test_xla_sharding.py; default: SUITE")
    parser.add_argument("--devices", type=int, help="devices of the cluster's host; default: as in SUITE, else 1")
    parser.add_argument("--select", default="", help="only tests that match, as pytest's -k")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: both")
    parser.add_argument("--markdown", type=Path, help="write the table there, too")
    parser.add_argument("--json", type=Path, help="write every test's outcome there")
    parser.add_argument("--logs", type=Path, default=Path("build/conformance"), help="folder of the processes' output")
    parser.add_argument("--child", choices=TARGETS, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the files and prints each one's row as soon as it is known; the exit code."""
    given = parse(arguments)
    root = given.tests.resolve()
    if not (root / "test_operations.py").is_file():
        print(f"expected the test folder of a PyTorch/XLA checkout, got {root}, which has no test_operations.py")
        return 2
    if given.child:
        return child(given.child, root, given.files[0], given.devices, given.select, given.json)
    known = {entry.file: entry for entry in SUITE}
    entries = [known.get(file, Entry(file)) for file in given.files] or list(SUITE)
    if given.devices:
        entries = [Entry(entry.file, given.devices, entry.environment) for entry in entries]
    given.logs.mkdir(parents=True, exist_ok=True)
    all_results: dict[str, dict[str, Outcomes]] = {}
    regressions = 0
    for entry in entries:
        results: dict[str, Outcomes] = {}
        for target in given.target or TARGETS:
            log = given.logs.resolve() / f"{entry.file.removesuffix('.py').replace('/', '-')}.{target}.log"
            log.unlink(missing_ok=True)
            begin = time.monotonic()
            results[target] = run_file(target, root, entry, given.select, log)
            seconds = time.monotonic() - begin
            print(f"{entry.file:55} {target:10} {_counts(results[target]):>18}  {seconds:6.0f} s", flush=True)
        all_results[entry.file] = results
        for kind, test, mine, other in differences(results) if len(results) == len(TARGETS) else ():
            regressions += kind == "ours"
            why = " ".join(mine.message.split())[-300:]
            print(f"    {kind:6} {test}: {mine.outcome} here, {other.outcome} there. {why}", flush=True)
        if given.json:
            given.json.write_text(
                json.dumps(
                    {
                        file: {target: {name: vars(o) for name, o in found.items()} for target, found in by.items()}
                        for file, by in all_results.items()
                    }
                )
            )
    text = table(all_results, {entry.file: entry.devices for entry in entries})
    print(text)
    if given.markdown:
        given.markdown.write_text(text + "\n")
    return 1 if regressions else 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # PyTorch/XLA's destructors need not run, and tests may have left threads behind.
    os._exit(exit_code)

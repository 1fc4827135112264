"""core: errors, options and their environment, names, clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ptpathways
from ptpathways import core


def test_every_error_has_a_base_and_says_who_raises_it_and_what_to_do() -> None:
    classes = [v for v in vars(core).values() if isinstance(v, type) and issubclass(v, core.PathwaysError)]
    assert len(classes) > 20
    for cls in classes:
        assert issubclass(cls, RuntimeError)
        assert cls.__doc__ and "Raised" in cls.__doc__, cls


def test_errors_can_be_caught_as_the_builtin_they_are() -> None:
    with pytest.raises(ValueError, match="hosts must be an integer from 1 to 65536, got 0"):
        core.Options(hosts=0)
    assert issubclass(core.DeadlineExceeded, TimeoutError)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hosts", -1),
        ("hosts", True),
        ("hosts", 1.0),
        ("devices_per_host", 0),
        ("islands", 0),
        ("islands", 2),
        ("islands", True),
        ("address", "localhost"),
        ("address", "tcp://localhost:70000"),
        ("address", "localhost:0"),
        ("bind", "tcp://127.0.0.1:99999"),
        ("bind", "tcp://127.0.0.1"),
        ("address", 3),
        ("platform", ""),
        ("log_level", "loud"),
        ("backend", "tpu"),
        ("policy", "lottery"),
        ("weight", 0),
        ("weight", float("nan")),
        ("weight", "much"),
        ("priority", 1.5),
        ("priority", True),
        ("startup_timeout_s", 0),
        ("startup_timeout_s", float("inf")),
        ("startup_timeout_s", 1e300),
        ("startup_timeout_s", float("nan")),
        ("startup_timeout_s", "soon"),
    ],
)
def test_a_bad_option_is_named_with_its_value(option: str, value: object) -> None:
    with pytest.raises(core.InvalidOption, match=f"option {option} must") as caught:
        core.Options(**{option: value})  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)


def test_hosts_are_divided_into_islands_neighbours_together() -> None:
    options = core.Options.from_environment({"PTPATHWAYS_ISLANDS": "2"}, hosts=5)
    assert [options.island_of(host) for host in range(5)] == ["island0"] * 3 + ["island1"] * 2
    assert [core.Options(hosts=2).island_of(host) for host in range(2)] == ["island0"] * 2
    assert core.Options(hosts=2, platform="tpu").island_of(1) == ""


def test_the_program_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"PTPATHWAYS_HOSTS": "3", "PTPATHWAYS_DEVICES_PER_HOST": "2", "PTPATHWAYS_LOG_LEVEL": ""}
    options = core.Options.from_environment(environment, hosts=2, devices_per_host=None)
    assert (options.hosts, options.devices_per_host, options.log_level) == (2, 2, "warning")
    assert options.device_count == 4


def test_an_address_in_the_environment_turns_a_laptop_script_into_a_cluster_client() -> None:
    assert core.Options.from_environment({}, hosts=1).embedded
    options = core.Options.from_environment({"PTPATHWAYS_ADDRESS": "tcp://10.0.0.1:7450"}, hosts=1)
    assert not options.embedded and options.address == "tcp://10.0.0.1:7450"


def test_an_address_is_taken_as_it_is_typed_for_workers() -> None:
    assert core.Options(address="localhost:80").address == "tcp://localhost:80"
    assert core.Options(address="ipc:///x").address == "ipc:///x"


def test_a_bad_variable_and_an_unknown_option_are_named() -> None:
    with pytest.raises(core.InvalidOption, match=r"PTPATHWAYS_NUMBER_ARGUMENTS must be 'on' or 'off', got 'zz'"):
        core.Options.from_environment({"PTPATHWAYS_NUMBER_ARGUMENTS": "zz"})
    with pytest.raises(core.InvalidOption, match=r"PTPATHWAYS_HOSTS must be an integer, got 'two'"):
        core.Options.from_environment({"PTPATHWAYS_HOSTS": "two"})
    with pytest.raises(core.InvalidOption, match=r"unknown option host; the options are .*hosts"):
        core.Options.from_environment({}, host=1)


def test_every_variable_is_in_the_table_and_stands_for_an_option() -> None:
    table = core.environment_table().splitlines()
    assert len(table) == len(core.ENVIRONMENT) + 1
    for line, variable in zip(table[1:], core.ENVIRONMENT, strict=True):
        assert line.startswith(variable.name)
        assert hasattr(core.Options(), variable.option)


def test_names_and_numbers_differ() -> None:
    names = {core.random_name("host") for _ in range(100)}
    assert len(names) == 100 and all(name.startswith("host-") for name in names)
    counter = core.Counter()
    assert [counter.take() for _ in range(3)] == [1, 2, 3]


def test_a_manual_clock_moves_only_forward_and_only_when_told() -> None:
    clock = core.ManualClock(5.0)
    clock.advance(1.5)
    assert clock.now_s() == 6.5
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)
    system = core.SystemClock()
    assert system.now_s() <= system.now_s()


def test_importing_the_package_imports_no_torch_and_prepares_for_it() -> None:
    program = (
        "import sys, os, ptpathways;"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules and 'zmq' not in sys.modules;"
        "print(os.environ['TORCH_DISABLE_FUNCTIONALIZATION_META_REFERENCE'])"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "1"


def test_the_public_names_are_all_declared_and_unknown_ones_are_refused() -> None:
    assert set(ptpathways.__all__) <= set(dir(ptpathways))
    with pytest.raises(AttributeError, match="no attribute 'prepared'"):
        ptpathways.prepared  # noqa: B018


def test_a_limit_of_memory_is_no_handful_of_bytes() -> None:
    assert core.memory_limit("") == 0
    assert core.memory_limit("1MiB") == 2**20
    with pytest.raises(core.InvalidOption, match=r"at least 1MiB, got '5', which is 5 bytes; give a unit"):
        core.memory_limit("5")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB"), (3 << 40, "3.0 TiB")]
)
def test_bytes_are_written_for_people(count: int, text: str) -> None:
    assert core.format_bytes(count) == text
    if count > 1023:
        assert core.parse_bytes(text) == count

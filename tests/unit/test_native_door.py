"""The door to the extension: where libzmq comes from, versions on both sides, errors as classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptpathways import core, native


def test_pyzmqs_libzmq_is_found_without_importing_zmq() -> None:
    path = Path(native.find_zmq())
    assert path.is_file() and path.name.startswith("libzmq")


def test_another_libzmq_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "libzmq.so.5"
    file.touch()
    monkeypatch.setenv(native.ZMQ_VARIABLE, str(file))
    assert native.find_zmq() == str(file)
    monkeypatch.setenv(native.ZMQ_VARIABLE, "/nowhere/libzmq.so")
    with pytest.raises(native.NativeUnavailable, match=r"'/nowhere/libzmq\.so'"):
        native.find_zmq()


@pytest.mark.parametrize(
    ("built", "protocol", "said"),
    [("0.0.1", native.PROTOCOL_VERSION, "built as 0.0.1"), (core.__version__, 99, "speaks 99")],
)
def test_an_extension_of_another_version_is_refused_with_both(built: str, protocol: int, said: str) -> None:
    from ptpathways.native import _load

    with pytest.raises(native.NativeUnavailable, match=said) as caught:
        _load.check_versions(built, protocol)
    assert "make setup" in str(caught.value)
    _load.check_versions(core.__version__, native.PROTOCOL_VERSION)


def test_every_name_of_the_door_is_there_and_others_are_not() -> None:
    for name in native.__all__:
        assert getattr(native, name) is not None
    with pytest.raises(AttributeError, match="no_such_thing"):
        native.no_such_thing  # noqa: B018


def _native_error(code: str, message: str = "what happened") -> native.NativeError:
    error = native.NativeError(message)
    error.code = code
    return error


@pytest.mark.parametrize(
    ("code", "while_", "kind"),
    [
        ("UNAVAILABLE", "", core.HostLost),
        ("UNAVAILABLE", "connecting", core.ConnectionFailed),
        ("FAILED_PRECONDITION", "connecting", core.VersionMismatch),
        ("DEADLINE_EXCEEDED", "connecting", core.DeadlineExceeded),
        ("RESOURCE_EXHAUSTED", "", core.OutOfDeviceMemory),
        ("INVALID_ARGUMENT", "compiling", core.CompileFailed),
        ("DATA_LOSS", "", core.PathwaysError),
    ],
)
def test_codes_become_classes(code: str, while_: str, kind: type[core.PathwaysError]) -> None:
    with pytest.raises(core.PathwaysError, match="what happened") as caught, native.translated(while_):
        raise _native_error(code)
    assert type(caught.value) is kind


def test_other_errors_pass_untouched() -> None:
    with pytest.raises(RuntimeError, match="mine") as caught, native.translated():
        raise RuntimeError("mine")
    assert type(caught.value) is RuntimeError

"""Whether something was traced between two samples is never missed for an upload that another thread is making."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_xla")

from ptpathways.frontend.slices import _buffers as buffers
from ptpathways.frontend.slices import _feeding
from ptpathways.frontend.xla import _xla


class _Binding:
    """PyTorch/XLA's counter of tensors."""

    created = 0

    def _xla_counter_value(self, name: str) -> int:
        assert name == "CreateXlaTensor"
        return self.created


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> _Binding:
    made = _Binding()
    monkeypatch.setattr(_xla, "binding", lambda: made)
    monkeypatch.setattr(_feeding, "_begun", 0)
    monkeypatch.setattr(_feeding, "_uploaded", 0)
    return made


def test_an_upload_that_ends_between_the_samples_does_not_hide_an_operation(
    binding: _Binding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_feeding, "_begun", 1)
    binding.created = 1  # the upload's, which is not counted yet
    clean = buffers.least_created()
    monkeypatch.setattr(_feeding, "_uploaded", 1)
    binding.created = 2  # an operation's
    assert buffers.most_created() != clean


def test_uploads_alone_are_no_operations(binding: _Binding, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = buffers.least_created()
    monkeypatch.setattr(_feeding, "_begun", 3)
    monkeypatch.setattr(_feeding, "_uploaded", 3)
    binding.created = 3
    assert buffers.most_created() == clean

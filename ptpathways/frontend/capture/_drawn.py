"""Random numbers of devices that a loop draws between the calls of a captured step."""

from __future__ import annotations

from ptpathways.frontend.diagnostics import _threads
from ptpathways.frontend.plans import _seeds
from ptpathways.frontend.slices import _buffers as buffers
from ptpathways.frontend.slices import _rng


def between() -> dict[int, int]:
    """The seeds at the last cut of the devices on which the loop has drawn since.

    What is traced before a call is submitted before it runs. In a loop without captured steps the two are cut together.
    """
    found = {}
    for device, seed in buffers.seeds(set(_rng.in_use()) - _threads.theirs()).items():
        known = _rng.at_cut.get(device, seed)
        if known != seed:
            known = _rng.at_cut[device] = _seeds.seed_at_cut(known, seed)
            if known != seed:
                found[device] = known
    return found

"""Data: batches on the devices ahead of use, in an order that can be gone on with."""

from __future__ import annotations

from ptpathways.data._batches import UnevenBatchWarning
from ptpathways.data._feed import DistributedSamplerWarning, Feed

__all__ = ["DistributedSamplerWarning", "Feed", "UnevenBatchWarning"]

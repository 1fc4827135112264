"""Data: batches on the devices ahead of use, made here or on the workers' hosts, in an order to go on with."""

from __future__ import annotations

from ptpathways.data._batches import UnevenBatchWarning
from ptpathways.data._feed import DistributedSamplerWarning, Feed
from ptpathways.data._remote import RemoteLoader, prepared, remote

__all__ = ["DistributedSamplerWarning", "Feed", "RemoteLoader", "UnevenBatchWarning", "prepared", "remote"]

"""Training: what a loop needs so that it can stay as it was."""

from __future__ import annotations

from ptpathways.data import Feed, UnevenBatchWarning
from ptpathways.train._bucket import bucket, bucketed
from ptpathways.train._guard import IneffectiveAutocastWarning, NothingTrainedWarning
from ptpathways.train._prepare import prepare
from ptpathways.train._watch import Watch, watch

__all__ = [
    "Feed",
    "IneffectiveAutocastWarning",
    "NothingTrainedWarning",
    "UnevenBatchWarning",
    "Watch",
    "bucket",
    "bucketed",
    "prepare",
    "watch",
]

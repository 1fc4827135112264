"""Pipelines: one model in stages on several slices, a step of which is one program."""

from __future__ import annotations

from ptpathways.pipelines._pipeline import Pipeline, pipeline

__all__ = ["Pipeline", "pipeline"]

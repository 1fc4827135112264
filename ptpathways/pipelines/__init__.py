"""Pipelines: one model in stages on several slices, a step of which is one program."""

from __future__ import annotations

from ptpathways.pipelines._pipeline import Pipeline, pipeline
from ptpathways.pipelines._plan import Plan, plan
from ptpathways.schedules import Costs

__all__ = ["Costs", "Pipeline", "Plan", "pipeline", "plan"]

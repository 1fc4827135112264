"""Programs and models that nobody here wrote, trained in plain PyTorch and on a cluster. See ``__main__``."""

from __future__ import annotations

from tools.compatibility._models import MODELS, SMALL, ModelCase
from tools.compatibility._training import Counters, Trained, difference, train, unchanged

__all__ = ["MODELS", "SMALL", "Counters", "ModelCase", "Trained", "difference", "train", "unchanged"]

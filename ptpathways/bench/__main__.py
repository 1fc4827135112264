"""``python -m ptpathways.bench`` is ``ptpathways bench``."""

from __future__ import annotations

import sys

from ptpathways.bench import main

sys.exit(main())

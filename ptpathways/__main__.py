"""``python -m ptpathways``: the ``ptpathways`` command."""

from __future__ import annotations

import sys

from ptpathways.cli import main

sys.exit(main())

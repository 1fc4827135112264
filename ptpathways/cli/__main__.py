"""``python -m ptpathways.cli``, for when the command is not on the path."""

import sys

from ptpathways.cli import main

sys.exit(main())

"""Random matrix products under pinned schedules: drawn, compiled, and launched beside exact results."""

import sys
from pathlib import Path

for _folder in ("src", "tests", "tools"):
    if (_path := str(Path(__file__).parents[2] / _folder)) not in sys.path:
        sys.path.insert(0, _path)

"""Makes the hand-written protocols of ``examples`` and the tools importable."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for folder in ("examples", "tools"):
    sys.path.insert(0, str(ROOT / folder))
sys.path.insert(0, str(Path(__file__).parent))

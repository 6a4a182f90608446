"""Write ``docs/tma-rules.md`` from the rows: ``python tools/tma_rules.py [--check]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from site_pages.tensor_map_rules import rules_markdown

PAGE = Path(__file__).parents[1] / "docs" / "tma-rules.md"


def main() -> int:
    """Write the page, or with ``--check`` say whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = rules_markdown()
    if args.check:
        current = PAGE.exists() and PAGE.read_text() == text
        print(f"{PAGE.name} is {'current' if current else 'stale: run python tools/tma_rules.py'}")
        return 0 if current else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tilewright.cli``."""

from tilewright.cli import main

main()

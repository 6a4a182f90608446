"""``python -m tilewright``, the command line."""

from tilewright.cli import main

main()

"""Random kernels over the language: drawn, written as Python, evaluated by NumPy, and run every way there is."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).parents[2] / "tests")
if TESTS not in sys.path:  # the driver of the PTX machine is the tests'
    sys.path.insert(0, TESTS)

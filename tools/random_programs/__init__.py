"""Random kernels over the language: drawn, written as Python, evaluated by NumPy, and run every way there is.

Not drawn yet: extents near 2^31; more than one launch of an artifact, and dispatch among its variants (only the one
that serves the arguments is compiled); pins of a schedule but a few; compile-time keywords, ``tw.print``, helper
functions and whole axes by ``:``; states that depend on each other, as a running softmax has them; streams within
streams within streams; scalar coordinates that are computed; tensors that share memory.
"""

import sys
from pathlib import Path

TESTS = str(Path(__file__).parents[2] / "tests")
if TESTS not in sys.path:  # the driver of the PTX machine is the tests'
    sys.path.insert(0, TESTS)

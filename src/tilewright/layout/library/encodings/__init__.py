"""Distributed layouts of whole tiles as F2 layouts: who holds what, for warps, CTAs and shapes that are powers of two.

An instruction's tile is extended over the tensor in a fixed order: tiles of one warp, then warps, then repeats of the
whole; each dimension by itself. A tile larger than the tensor is cut: the bits beyond it hold copies (zero bases).
Conventions (bit order, which copies are kept) are those of Triton's linear layouts, so that tables can be compared.

The compiler lays tiles out as ``RegisterLayout`` and ``SharedTile``, of any extents. These encodings serve to compare
layouts with Triton's, or to import one written in its terms.
"""

from tilewright.layout.library.encodings.builder import CtaSplit, Encoding
from tilewright.layout.library.encodings.memory import SwizzledShared, TensorMemory, TmaShared
from tilewright.layout.library.encodings.registers import Blocked, Mfma, Mma, Operand, Sliced, Wmma

__all__ = [
    "Blocked",
    "CtaSplit",
    "Encoding",
    "Mfma",
    "Mma",
    "Operand",
    "Sliced",
    "SwizzledShared",
    "TensorMemory",
    "TmaShared",
    "Wmma",
]

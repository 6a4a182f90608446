"""Distributed layouts of whole tiles as F2 layouts: who holds what, for warps, CTAs and shapes that are powers of two.

An instruction's tile is extended over the tensor in a fixed order: tiles of one warp, then warps, then repeats of the
whole; each dimension by itself. A tile larger than the tensor is cut: the bits beyond it hold copies (zero bases).
Conventions (bit order, which copies are kept) are those of Triton's linear layouts, so that tables can be compared.

The compiler lays tiles out as ``RegisterLayout`` and ``SharedTile``, of any extents. These encodings serve to compare
layouts with Triton's, or to import one written in its terms.
"""

from tilewright.layout.library.encodings.builder import CtaSplit as CtaSplit
from tilewright.layout.library.encodings.builder import Encoding as Encoding
from tilewright.layout.library.encodings.memory import SwizzledShared as SwizzledShared
from tilewright.layout.library.encodings.memory import TensorMemory as TensorMemory
from tilewright.layout.library.encodings.memory import TmaShared as TmaShared
from tilewright.layout.library.encodings.registers import Blocked as Blocked
from tilewright.layout.library.encodings.registers import Mfma as Mfma
from tilewright.layout.library.encodings.registers import Mma as Mma
from tilewright.layout.library.encodings.registers import Operand as Operand
from tilewright.layout.library.encodings.registers import Sliced as Sliced
from tilewright.layout.library.encodings.registers import Wmma as Wmma

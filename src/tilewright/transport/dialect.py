"""The ``transport`` dialect: one thread's view of a kernel, with every address and guard written out.

Coordinates, guards and offsets are integer expressions (``base.expr``) over

    dimensions ``M``, strides ``x.stride0``, runtime integer scalars     given at launch
    program ids ``$p0`` and ``let`` names, loop counters ``$k0``         the same for all threads of a CTA
    ``$tid``                                                             thread index in the CTA, warp*32 + lane
    ``$r``                                                               register index of the op at hand

so that the code generator, the simulator and the access checker read the same text and share no address arithmetic.

Registers are buffers with explicit reads and writes, not SSA values: ``RegistersType(dtype, count)`` is ``count``
elements per thread. An op over a buffer is executed for each ``r`` of its range, in order.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from tilewright.base.expr import own
from tilewright.tile.dialect import TensorType as TensorType
from tilewright.transport import asynchronous
from tilewright.transport.ops import control, conversion, elementwise, memory
from tilewright.transport.ops.base import SHARED_BASE_ALIGN_BYTES as SHARED_BASE_ALIGN_BYTES
from tilewright.transport.ops.base import RegistersType as RegistersType
from tilewright.transport.ops.base import SharedType as SharedType
from tilewright.transport.ops.base import TransportOp as TransportOp
from tilewright.transport.ops.base import registers_of as registers_of
from tilewright.transport.ops.base import shared_of as shared_of
from tilewright.transport.ops.control import Barrier as Barrier
from tilewright.transport.ops.control import BarrierCount as BarrierCount
from tilewright.transport.ops.control import Bind as Bind
from tilewright.transport.ops.control import Extent as Extent
from tilewright.transport.ops.control import For as For
from tilewright.transport.ops.control import If as If
from tilewright.transport.ops.control import Kernel as Kernel
from tilewright.transport.ops.control import Let as Let
from tilewright.transport.ops.control import Programs as Programs
from tilewright.transport.ops.control import Workspace as Workspace
from tilewright.transport.ops.control import block as block
from tilewright.transport.ops.conversion import Exchange as Exchange
from tilewright.transport.ops.conversion import RegisterSelect as RegisterSelect
from tilewright.transport.ops.conversion import WarpBarrier as WarpBarrier
from tilewright.transport.ops.elementwise import Approximate as Approximate
from tilewright.transport.ops.elementwise import ExponentScale as ExponentScale
from tilewright.transport.ops.elementwise import Fma as Fma
from tilewright.transport.ops.elementwise import Fold as Fold
from tilewright.transport.ops.elementwise import Map as Map
from tilewright.transport.ops.elementwise import Pin as Pin
from tilewright.transport.ops.elementwise import Predicate as Predicate
from tilewright.transport.ops.elementwise import Print as Print
from tilewright.transport.ops.elementwise import Shuffle as Shuffle
from tilewright.transport.ops.elementwise import Trap as Trap
from tilewright.transport.ops.elementwise import Yield as Yield
from tilewright.transport.ops.memory import AtomicReduce as AtomicReduce
from tilewright.transport.ops.memory import ClusterRead as ClusterRead
from tilewright.transport.ops.memory import Draw as Draw
from tilewright.transport.ops.memory import Load as Load
from tilewright.transport.ops.memory import Registers as Registers
from tilewright.transport.ops.memory import Scattered as Scattered
from tilewright.transport.ops.memory import Shared as Shared
from tilewright.transport.ops.memory import SharedCount as SharedCount
from tilewright.transport.ops.memory import SharedRead as SharedRead
from tilewright.transport.ops.memory import SharedWrite as SharedWrite
from tilewright.transport.ops.memory import Store as Store

THREAD = own("tid")
REGISTER = own("r")

Transport = Dialect(
    "transport",
    [*control.OPS, *memory.OPS, *elementwise.OPS, *conversion.OPS, *asynchronous.OPS],
    [RegistersType, SharedType, *asynchronous.TYPES, *control.ATTRIBUTES],
)
"""Registered with an xDSL ``Context`` to parse transport text."""

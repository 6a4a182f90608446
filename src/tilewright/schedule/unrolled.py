"""How many PTX instructions a kernel without products becomes: loops over registers are unrolled behind us.

NVRTC and ptxas take longer the longer the text, and more than in proportion: 3 s for 14,000 instructions, 11 s for
35,000, 32 s for 58,000 (CPU of one core, CUDA 13.0). Counts are the least squares of 180 kernels of
``tools/random_kernels.py``: nine of ten within 0.5 and 1.7 times what NVRTC emitted.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import TRUE
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import RegistersType

MOST, _MANY_THREADS = 14_000, 256
"""Instructions from which more threads, or smaller tiles, are tried: 3 to 4 s of NVRTC; half of it in CTAs of fewer
threads."""

_OF_TWO = {"div": 33, "mod": 130, "fmod": 95, "floordiv": 190, "pow": 138, "atan2": 68, "hypot": 30}
"""Of two f32. A remainder is a loop, unrolled."""
_FLOAT, _WIDE_INT, _LONG_DIVISION, _NARROW_CAST = 2.5, 2.3, 66, 8.5
"""Another operation of floats; of 64-bit integers, and their division; a conversion to or from 8-bit floats."""
_GUARDED, _VECTOR, _SHARED, _SHUFFLE, _FOLD = 9, 18, 13, 10, 2
"""An element that is accessed under a guard, an unguarded vector; one of shared memory; a register that is shuffled,
or folded."""


def instructions(kernel: t.Kernel) -> int:
    """About how many PTX instructions the kernel's text becomes; products are not counted."""
    return round(sum(_of(op) for op in kernel.walk()))


def is_long(kernel: t.Kernel) -> bool:
    """The assembler would take seconds for the kernel."""
    return instructions(kernel) > (MOST if kernel.threads.data >= _MANY_THREADS else MOST // 2)


def _of(op: Operation) -> float:
    match op:
        case t.Map():
            return op.count.data * sum(scalar_instructions(o) for o in op.body.block.ops if not _decided(o))
        case t.Load() | t.Store() | t.AtomicReduce():
            count, vector = _count(op.buffer), op.vector.data
            return _VECTOR * (count // vector) if op.guard.expr == TRUE else _GUARDED * count
        case t.SharedRead() | t.SharedWrite() | t.ClusterRead():
            return _SHARED * (_count(op.buffer) // op.vector.data)
        case t.SharedCount():
            return _GUARDED * _count(op.buffer)
        case t.Shuffle():
            return _SHUFFLE * len(op.distances) * sum(map(_count, op.buffers))
        case t.Fold():
            return _FOLD * sum(map(_count, op.sources))
        case _:
            return 0


def _count(buffer: SSAValue) -> int:
    assert isinstance(buffer.type, RegistersType)
    return buffer.type.count.data


def _decided(op: Operation) -> bool:
    """A select by the register's number alone, which is known when the loop is unrolled."""
    if not isinstance(op, tile.Select) or not isinstance(test := op.cond.owner, t.Predicate):
        return False
    return test.expr.expr.symbols <= {t.REGISTER}


def scalar_instructions(op: Operation) -> float:
    """One element-wise operation, for one element."""
    result = op.results[0].type if op.results else None
    if not isinstance(result, tile.TileType) or isinstance(op, tile.Constant):
        return 0
    dtype = result.dtype.dtype
    if isinstance(op, tile.Cast):
        source = op.operands[0].type
        assert isinstance(source, tile.TileType)
        narrow = any(d.is_float and d.bits == 8 for d in (dtype, source.dtype.dtype))
        return _NARROW_CAST if narrow else 0.5
    if isinstance(op, tile.Unary | tile.Binary):
        fn = op.fn.data
        if dtype.is_float and isinstance(fn, UnaryFn):
            return fn.row.instructions
        if dtype.is_float and fn in _OF_TWO:
            return _OF_TWO[fn]
        if dtype.is_int and dtype.bits == 64:
            return _LONG_DIVISION if fn in ("floordiv", "mod") else _WIDE_INT
    return _FLOAT if dtype.is_float else 0.5

"""The effects of fences in a canonical run."""

from __future__ import annotations

from tilewright.protocol.effects import Fence, Order
from tilewright.protocol.operands import FenceSpace
from tilewright.verify.canonical_runs import descriptors
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.mbarriers import fence_init


def fence(x: StepExecution, effect: Fence) -> bool:
    """A fence orders what its agent did, or knows of, before it."""
    a = x.a
    match effect.order:
        case Order.ASYNC_PROXY:
            _proxy(x, effect.space)
        case Order.MBARRIER_INIT:
            fence_init(x)
        case Order.WGMMA:
            a.dirty = False
        case Order.TENSOR_BEFORE:
            a.before = a.past
        case Order.TENSOR_AFTER:
            a.after = a.past
            s, mem, f, c, t, y = a.clock
            a.clock = (s, mem, f, c, t | a.tensor, y)
            a.tensor = 0
        case Order.TENSORMAP_RELEASE:
            assert effect.region is not None
            descriptors.released(x, effect.region)
        case Order.TENSORMAP_ACQUIRE:
            assert effect.region is not None
            descriptors.acquired(x, effect.region)
        case Order.ALIAS:
            pass
    return True


def _proxy(x: StepExecution, space: FenceSpace) -> None:
    """What was done in the state space, by the agent itself or as it knows by others, is fenced."""
    match space:
        case FenceSpace.ALL:
            other = 0
        case FenceSpace.SHARED:
            other = x.st.in_global
        case FenceSpace.GLOBAL:
            other = ~x.st.in_global
    s, mem, f, c, t, y = x.a.clock
    x.a.fence |= x.a.past & ~other
    x.a.clock = (s, mem, f, c | mem & ~other, t, y)

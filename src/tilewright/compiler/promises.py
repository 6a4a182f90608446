"""Promises about integers in tensors: what a kernel relies on, the steps that check it, and the gate before its stores.

A kernel that relies on promises becomes several steps on one stream::

    zero      broken[k] = 0, and counters
    count     counters[index] += 1          (tw.Unique: one counter for each place that may be stored to)
    judge     broken[k] = 1 where a counter is above 1; of tw.Offsets, where they do not ascend from 0
    report    failed[k] += 1 where broken[k] != 0, on the host; it outlives the launch, and the next call reads it
    kernel    for _ in range(0 if any(broken) else 1): all of it

Where all promises are offsets, one step of one CTA does all of it: launches cost more than the loads of some ten
thousand offsets. The steps are kernels of the language, planned and proved as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Block, Region, SSAValue

from tilewright.base.dtypes import DType, i32, i64
from tilewright.base.expr import OWN, Const, Expr, Sym, all_of
from tilewright.compiler.proofs.loaded import Ascending
from tilewright.compiler.reliance import BROKEN, FAILED, TAKEN, Relied, Uniqueness, promises_of
from tilewright.compiler.requests import Request, tensors_of
from tilewright.compiler.staging import staged_facts
from tilewright.compiler.workspaces import StagedTensor
from tilewright.lang import elementwise
from tilewright.lang import functions as tw
from tilewright.lang.axes import UNIT, Axis, Span
from tilewright.lang.fns import CompareFn, Numerics, ReduceFn
from tilewright.lang.params import KernelFunction, KeywordParam, Param, TensorParam
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.lang.tensors import Tensor
from tilewright.schedule.facts import CallFacts, without_peers
from tilewright.tile import dialect as tile
from tilewright.tile.ops import GATE, OPEN_COUNTER, OPEN_TRIP, operations, string


# -- the gate ----------------------------------------------------------------------------------------------------------
def gated(kernel: tile.Kernel, count: int) -> tile.Kernel:
    """A copy of ``kernel`` whose programs do nothing where one of ``count`` promises is broken: its body becomes that
    of a stream, whose trip count is loaded."""
    made, flags = _with_integers(kernel, BROKEN, count)
    body = made.body.block
    inner = Block()
    for op in list(body.ops):
        op.detach()
        inner.add_op(op)
    inner.add_op(tile.Yield())
    span: Axis = Span(Const(0), count, Const(count)) if count > 1 else UNIT
    load = tile.Load(flags, [span if isinstance(span, Span) else Const(0)])
    seen: tile.Load | tile.Reduce = load
    if count > 1:
        seen = tile.Reduce(ReduceFn.MAX, load.result, 0)
    zero, one = tile.Constant(0, i32), tile.Constant(1, i32)
    held = tile.Compare(CompareFn.EQ, seen.result, zero.result)
    opens = tile.Select(held.result, one.result, zero.result)
    stream = tile.Stream(OPEN_COUNTER, Span(Sym(OPEN_COUNTER), 1, OPEN_TRIP), Const(0), OPEN_TRIP, Region(inner))
    ops = [load, *([seen] if seen is not load else []), zero, one, held, opens, tile.Bind(GATE, opens.result), stream]
    body.add_ops(ops)
    places = [op.attributes["loc"] for op in operations(kernel) if op is not kernel and "loc" in op.attributes]
    for op in (*ops, inner.last_op) if places else ():
        assert op is not None
        op.attributes["loc"] = places[0]
    return made


def gated_roles(kernel: tile.Kernel, count: int, *, queued: bool) -> tile.Kernel:
    """The same for a kernel in roles, whose lowering builds the gate around all of them; its programs may be drawn from
    a queue where it is ``queued``."""
    made, _ = _with_integers(kernel, BROKEN, count)
    if queued:
        made, _ = _with_integers(made, TAKEN, count)
        made.attributes["queue"] = string(TAKEN)
    made.attributes["gate"] = string(BROKEN)
    return made


def _with_integers(kernel: tile.Kernel, name: str, count: int) -> tuple[tile.Kernel, SSAValue]:
    """A copy of a kernel behind whose tensors one of ``count`` integers stands."""
    made, place = kernel.clone(), len(tensors_of(kernel))
    integers = made.body.block.insert_arg(tile.TensorType.of(i32, (Const(count),), name), place)
    names = [n.data for n in kernel.arg_names]
    names.insert(place, name)
    made.attributes["arg_names"] = ArrayAttr([string(name) for name in names])
    return made, integers


# -- the steps that check ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Check:
    """A kernel that takes part in a check: its request, and which of its tensors lie in workspaces."""

    request: Request
    workspaces: Mapping[str, StagedTensor]


@dataclass(frozen=True)
class Checks:
    """The steps before a kernel that relies on ``promises``."""

    promises: tuple[Relied, ...]
    broken: StagedTensor
    failed: StagedTensor
    steps: tuple[Check, ...]
    judges: tuple[int, ...]
    """The step that decides of each promise."""
    taken: StagedTensor | None = None
    """What counts the programs that are drawn: 0 behind the steps."""

    @property
    def asked(self) -> Expr:
        """What dispatch asks beside what the kernels assume."""
        return all_of(promise.asked for promise in self.promises if isinstance(promise, Uniqueness))


def checks_of(request: Request, kernel: tile.Kernel) -> Checks | None:
    """The steps that check what ``kernel`` relies on; None where that is nothing."""
    promises = promises_of(kernel)
    if not promises:
        return None
    flags = (Const(len(promises)),)
    broken, failed = StagedTensor(BROKEN, i32, flags, 0, 0), StagedTensor(FAILED, i32, flags, 0, 1)
    if all(isinstance(promise, Ascending) for promise in promises):
        offsets = [promise for promise in promises if isinstance(promise, Ascending)]
        taken = StagedTensor(TAKEN, i32, flags, 0, 2)
        step = _offsets_step(request, offsets, (broken, failed, taken), tensors_of(kernel))
        return Checks(promises, broken, failed, (step,), tuple(0 for _ in promises), taken)
    steps = [_zero(request, broken, "broken")]
    dtypes = {name: t.element for name, t in tensors_of(kernel).items()}
    judges: list[int] = []
    blocks = 2
    for number, promise in enumerate(promises):
        match promise:
            case Uniqueness():
                steps += _unique_steps(request, promise, number, broken, dtypes, blocks)
                blocks += 1
            case Ascending():
                steps.append(_judge_offsets(request, promise, number, broken, tensors_of(kernel)))
        judges.append(len(steps) - 1)
    steps.append(_report(request, broken, failed))
    return Checks(promises, broken, failed, tuple(steps), tuple(judges))


def _unique_steps(
    request: Request, promise: Uniqueness, number: int, broken: StagedTensor, dtypes: Mapping[str, DType], block: int
) -> Iterator[Check]:
    counts = StagedTensor(f"promises{OWN}counts{number}", i32, promise.extents, len(promise.extents) - 1, block)

    def count(*, bm: int, bn: int, **tensors: Tensor) -> None:
        at = _places(tensors[promise.tensors[0]], bm, bn)
        loaded = {name: tensors[name][at].to(i64) for name in promise.tensors}
        tw.reduce_add(tensors[counts.name], tuple(key.evaluate(loaded) for key in promise.keys), 1)

    def judge(*, bm: int, bn: int, **tensors: Tensor) -> None:
        repeated = tensors[counts.name][_places(tensors[counts.name], bm, bn)] > 1
        tw.reduce_max(tensors[BROKEN], elementwise.where(repeated, number, -1), 1)

    of_counts, of_broken = _workspace(counts), _workspace(broken)
    given = [_Argument(TensorParam(n, _named(promise.dims)), dtypes[n], None) for n in promise.tensors]
    yield _zero(request, counts, f"counts{number}")
    yield _check(request, count, f"count{number}", len(promise.dims), (*given, of_counts))
    yield _check(request, judge, f"judge{number}", len(promise.extents), (of_counts, of_broken))


def _judge_offsets(
    request: Request, promise: Ascending, number: int, broken: StagedTensor, tensors: Mapping[str, tile.TensorType]
) -> Check:
    """One of several promises, of which others are no offsets."""
    names, descends = _offsets(promise, tensors)

    def judge(*, bm: int, bn: int, **given: Tensor) -> None:
        tw.reduce_add(given[BROKEN], number, descends(given, _places(given[promise.tensor], bm, bn)[0]))

    given = [_offsets_argument(name, tensors) for name in names]
    return _check(request, judge, f"judge{number}", 1, (*given, _workspace(broken)))


def _offsets_step(
    request: Request,
    promises: Sequence[Ascending],
    items: Sequence[StagedTensor],
    tensors: Mapping[str, tile.TensorType],
) -> Check:
    """Judges and reports all promises, in one program, and lets no program be drawn yet."""
    read = [(*_offsets(promise, tensors), promise.tensor) for promise in promises]

    def judge(*, bm: int, bn: int, **given: Tensor) -> None:
        at: Any = _places(given[BROKEN], bm, bn)
        found = tw.zeros((at[0],), i32)
        for number, (_, descends, name) in enumerate(read):
            for places in tw.stream(given[name].shape[0], _JUDGED):
                here = elementwise.where(at[0].index == number, descends(given, places), 0)
                found.set(elementwise.maximum(found, here))
        flags = elementwise.maximum(found, 0)
        given[BROKEN][at] = flags
        given[TAKEN][at] = 0
        tw.reduce_add(given[FAILED], elementwise.where(flags != 0, at[0].index, -1), 1)  # nothing on most launches

    given = [_offsets_argument(name, tensors) for name in dict.fromkeys(n for names, *_ in read for n in names)]
    return _check(request, judge, "judge", 1, (*given, *map(_workspace, items)), streams=True)


_JUDGED = 1024
"""Offsets that one program looks at in a step: a few by each thread, as the kernel behind waits for its first."""
_FLAGS = 256
"""Flags of promises that one program stores."""


def _offsets(
    promise: Ascending, tensors: Mapping[str, tile.TensorType]
) -> tuple[tuple[str, ...], Callable[[Mapping[str, Tensor], Any], Any]]:
    """The offsets and a tensor whose extent they do not go beyond; and what is 1 where those at some places break the
    promise, else 0."""
    sizes = {name: [d.expr for d in kind.dims] for name, kind in tensors.items()}
    long = next((name for name, dims in sizes.items() if promise.most in dims), promise.tensor)

    def descends(given: Mapping[str, Tensor], at: Any) -> Any:
        offsets, most = given[promise.tensor], promise.most.constant
        end = given[long].shape[sizes[long].index(promise.most)] if most is None else most
        here, after = offsets[at].to(i64), offsets[at.index + 1].to(i64).fill(end)
        broken = (here > after) | ((at.index == 0) & (here != 0))
        return broken.to(i32).max(0)

    return tuple(dict.fromkeys((promise.tensor, long))), descends


def _offsets_argument(name: str, tensors: Mapping[str, tile.TensorType]) -> _Argument:
    kind = tensors[name]
    return _Argument(TensorParam(name, _named([d.expr for d in kind.dims])), kind.element, None)


def _zero(request: Request, item: StagedTensor, what: str) -> Check:
    def zero(*, bm: int, bn: int, **tensors: Tensor) -> None:
        tensors[item.name][_places(tensors[item.name], bm, bn)] = 0

    return _check(request, zero, f"zero_{what}", len(item.dims), (_workspace(item),))


def _report(request: Request, broken: StagedTensor, failed: StagedTensor) -> Check:
    def report(*, bm: int, bn: int, **tensors: Tensor) -> None:
        at = _places(tensors[BROKEN], bm, bn)
        tw.reduce_add(tensors[FAILED], at, (tensors[BROKEN][at] != 0).to(i32))

    return _check(request, report, "report", 1, (_workspace(broken), _workspace(failed)))


def _places(tensor: Tensor, bm: int, bn: int) -> tuple[tw.Range | tw.Scalar, ...]:
    """A grid over a tensor: tiles of its last two axes, a program for each index of the others."""
    blocks = [*(None for _ in range(tensor.ndim - 2)), bm, bn][-tensor.ndim :]
    at: Any = tw.grid(tensor, tuple(blocks))
    return cast("tuple[tw.Range | tw.Scalar, ...]", at) if isinstance(at, tuple) else (at,)


@dataclass(frozen=True)
class _Argument:
    """A tensor of a check, and the workspace in which it lies."""

    param: TensorParam
    dtype: DType
    item: StagedTensor | None


def _workspace(item: StagedTensor) -> _Argument:
    return _Argument(TensorParam(item.name, _named(item.dims)), item.element, item)


def _named(dims: Sequence[Expr]) -> tuple[str | int, ...]:
    """Extents as annotations have them."""
    return tuple(d.text if d.constant is None else d.constant for d in dims)


_SHORT = Schedule(vector=1, warps=8)
"""An element a thread: short texts, which compile in a sixth of the time, and programs for all SMs."""
_SINGLE = Schedule(warps=16)
"""Two offsets a thread: a short text, of which fewer lines are fetched before the kernel behind begins (H200, offsets
and text not in the L2 cache: products of one tile take 8.45 us with 64 groups, 9.47 with two warps)."""


def _check(
    request: Request,
    body: Callable[..., None],
    name: str,
    rank: int,
    arguments: Sequence[_Argument],
    *,
    streams: bool = False,
) -> Check:
    """A kernel whose programs share out a tensor of ``rank`` axes, or ``streams`` over others and stores flags."""
    params: list[Param] = [a.param for a in arguments]
    bm, bn = (1, _FLAGS) if streams else (8, 32) if rank > 1 else (1, 256)
    function = KernelFunction(
        body,
        f"{request.function.name}_{name}",
        (*params, KeywordParam("bm", bm), KeywordParam("bn", bn)),
        Numerics.STRICT,
        request.function.where,
    )
    signature = Signature.of({a.param.name: a.dtype for a in arguments})
    known = without_peers(request.facts)
    facts = CallFacts(
        tuple((a.param.name, known.of(a.param.name) if a.item is None else staged_facts(a.item)) for a in arguments),
        index_bits=request.facts.index_bits,
    )
    items = {a.param.name: a.item for a in arguments if a.item is not None}
    schedule = _SINGLE if streams else _SHORT
    return Check(Request(function, signature, facts, request.target, schedule), items)

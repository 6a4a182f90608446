"""Promises about integers in tensors: what a kernel relies on, the steps that check it, and the gate before its stores.

A kernel that relies on promises becomes several steps on one stream::

    claim     owner[index[n]] = n, in any order; broken[k] = 0      (tw.Unique: an owner for each place stored to)
    judge     broken[k] = 1 where owner[index[n]] != n; of tw.Offsets, where they do not ascend from 0
    kernel    failed[k] += 1 where broken[k] != 0, on the host; it outlives the launch, and the next call reads it;
              for _ in range(0 if any(broken) else 1): all of it

Kernels in roles have a step of their own that reports. Those that rely on offsets alone have no step: each CTA judges
the offsets, and reports what is broken.

Of two entries that reach one place at least one is not the owner of it, whoever came last, and whatever was there
before. Where all promises are offsets, one step of one CTA does all of it: launches cost more than the loads of some
ten thousand offsets. The steps are kernels of the language, planned and proved as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType, i32, i64
from tilewright.base.expr import Const, Expr, Sym, all_of
from tilewright.compiler.proofs.loaded import Ascending, offsets_of
from tilewright.compiler.reliance import BROKEN, FAILED, PROMISES, TAKEN, Relied, Uniqueness, promises_of
from tilewright.compiler.requests import Request, tensors_of
from tilewright.compiler.staging import staged_facts
from tilewright.compiler.workspaces import StagedTensor
from tilewright.lang import builtins as tw
from tilewright.lang import elementwise
from tilewright.lang.axes import UNIT, Axis, Span
from tilewright.lang.enums import AtomicFn, BinaryFn, CompareFn, Numerics, ReduceFn
from tilewright.lang.params import KernelFunction, KeywordParam, Param, TensorParam
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Tile
from tilewright.schedule.facts import CallFacts, without_peers
from tilewright.tile import dialect as tile
from tilewright.tile.indirect import index_symbol
from tilewright.tile.ops import GATE, OPEN_COUNTER, OPEN_TRIP, exprs, operations, program_index, string
from tilewright.tile.queries import is_elementwise


# -- the gate ----------------------------------------------------------------------------------------------------------
def gated(kernel: tile.Kernel, count: int, *, reports: bool = False) -> tile.Kernel:
    """A copy of ``kernel`` whose programs store nothing where one of ``count`` promises is broken: its body becomes
    that of a stream with a loaded trip count of 0 or 1. Loads at its beginning stay outside, unless it relies on
    offsets. With ``reports`` its first program reports the broken promises."""
    made, flags = _with_integers(kernel, BROKEN, count)
    failed = None
    if reports:
        made, failed = _with_integers(made, FAILED, count)
        flags = made.body.block.args[len(tensors_of(kernel))]
    body = made.body.block
    inner = Block()
    first = [] if offsets_of(kernel) else list(takewhile(_only_reads, body.ops))
    for op in list(body.ops)[len(first) :]:
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
    stream = tile.StreamLoop(OPEN_COUNTER, Span(Sym(OPEN_COUNTER), 1, OPEN_TRIP), Const(0), OPEN_TRIP, Region(inner))
    ops: list[tile.TileOp] = [
        *([seen] if seen is not load else []),
        zero,
        one,
        held,
        opens,
        tile.Bind(GATE, opens.result),
        stream,
    ]
    if failed is not None:
        ops += _reported(load, failed, span, len(made.grid))
    if first:
        body.insert_ops_before([load], first[0])
    body.add_ops(ops if first else [load, *ops])
    places = [op.attributes["loc"] for op in operations(kernel) if op is not kernel and "loc" in op.attributes]
    for op in (load, *ops, inner.last_op) if places else ():
        assert op is not None
        op.attributes["loc"] = places[0]
    return made


def _reported(load: tile.Load, failed: SSAValue, span: Axis, programs: int) -> Iterator[tile.TileOp]:
    """Adds 1 for each flag that is not 0, in the first program."""

    def over(op: tile.TileOp) -> Iterator[tile.TileOp]:
        """A scalar broadcast over the flags."""
        yield op
        if isinstance(span, Span):
            yield (more := tile.Expand(op.results[0], [0]))
            yield tile.Broadcast(more.result, [span])

    ops: list[tile.TileOp] = []

    def made(op: tile.TileOp) -> SSAValue:
        ops.extend(over(op))
        return ops[-1].results[0]

    zero, one, nowhere = (made(tile.Constant(n, i32)) for n in (0, 1, -1))
    program = made(tile.ScalarExpr(sum((Sym(program_index(i)) for i in range(programs)), start=Const(0))))
    number = zero
    if isinstance(span, Span):
        ops.append(index := tile.Index(span))
        number = index.result
    ops.append(first := tile.Compare(CompareFn.EQ, program, zero))
    ops.append(broken := tile.Compare(CompareFn.NE, load.result, zero))
    ops.append(both := tile.Binary(BinaryFn.AND, first.result, broken.result))
    ops.append(place := tile.Select(both.result, number, nowhere))
    yield from ops
    yield tile.ScatterReduce(AtomicFn.ADD, one, failed, [Sym(index_symbol(0))], [place.result])


def _only_reads(op: Operation) -> bool:
    return isinstance(op, tile.Load | tile.Gather) or is_elementwise(op)


def gated_roles(kernel: tile.Kernel, promises: Sequence[Relied], *, judges: bool) -> tile.Kernel:
    """The same for a kernel with roles, whose lowering builds the gate around all of them. Steps have set its flags, or
    it ``judges`` the promises, which then are offsets. With offsets alone its CTAs may draw programs from a queue."""
    offsets, gate = _only_offsets(promises), FAILED if judges else BROKEN
    made, _ = _with_integers(kernel, gate, len(promises))
    made.attributes["gate"] = string(gate)
    if offsets:
        made, _ = _with_integers(made, TAKEN, 1)
        made.attributes["queue"] = string(TAKEN)
    if judges:
        made.attributes["judged"] = ArrayAttr([string(promise.tensor) for promise in offsets])
        made.attributes["limits"] = exprs([promise.most for promise in offsets])
    return made


def _only_offsets(promises: Sequence[Relied]) -> tuple[Ascending, ...]:
    """The promises, if all of them concern offsets; else none."""
    found = tuple(promise for promise in promises if isinstance(promise, Ascending))
    return found if len(found) == len(promises) else ()


def _with_integers(kernel: tile.Kernel, name: str, count: int) -> tuple[tile.Kernel, SSAValue]:
    """A copy of a kernel with a tensor of ``count`` integers added after its tensors."""
    made, place = kernel.clone(), len(tensors_of(kernel))
    integers = made.body.block.insert_arg(tile.TensorType.of(i32, (Const(count),), name), place)
    names = [n.data for n in kernel.arg_names]
    names.insert(place, name)
    made.attributes["arg_names"] = ArrayAttr([string(name) for name in names])
    return made, integers


# -- the steps that check ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Check:
    """A kernel of a promise check: its request, and which of its tensors lie in workspaces."""

    request: Request
    workspaces: Mapping[str, StagedTensor]


@dataclass(frozen=True)
class Checks:
    """The steps before a kernel that relies on ``promises``."""

    promises: tuple[Relied, ...]
    broken: StagedTensor | None
    """The flags that the steps set; None where the kernel's CTAs judge the promises."""
    failed: StagedTensor
    steps: tuple[Check, ...]
    judges: tuple[int, ...]
    """For each promise, the number of the step that decides it."""
    taken: StagedTensor | None = None
    """The counter of the program queue."""
    reported: bool = True
    """Whether a step reports broken promises; else the kernel does."""

    @property
    def read(self) -> tuple[StagedTensor, ...]:
        """The workspaces that the kernel itself accesses."""
        every = (self.broken, None if self.reported else self.failed, self.taken)
        return tuple(item for item in every if item is not None)

    @property
    def asked(self) -> Expr:
        """The dispatch condition beyond the kernels' assumptions."""
        return all_of(promise.asked for promise in self.promises if isinstance(promise, Uniqueness))


def checks_of(request: Request, kernel: tile.Kernel, *, roles: bool) -> Checks | None:
    """The steps that check the promises of ``kernel``, which will have ``roles``; None where it relies on none."""
    promises = promises_of(kernel)
    if not promises:
        return None
    flags, offsets = (Const(len(promises)),), _only_offsets(promises)
    if offsets and roles:
        failed, taken = StagedTensor(FAILED, i32, flags, 0, 0), StagedTensor(TAKEN, i32, (Const(1),), 0, 1)
        return Checks(promises, None, failed, (), (), taken, reported=False)
    broken, failed = StagedTensor(BROKEN, i32, flags, 0, 0), StagedTensor(FAILED, i32, flags, 0, 1)
    if offsets:
        step = _offsets_step(request, offsets, (broken, failed), tensors_of(kernel))
        return Checks(promises, broken, failed, (step,), tuple(0 for _ in promises))
    dtypes = {name: t.element for name, t in tensors_of(kernel).items()}
    lists = [n for n, promise in enumerate(promises) if isinstance(promise, Uniqueness) and len(promise.dims) == 1]
    steps = [] if lists else [_zero(request, broken)]
    judges = dict[int, int]()
    for number in (*lists[:1], *(n for n in range(len(promises)) if n not in lists[:1])):
        promise = promises[number]
        match promise:
            case Uniqueness():
                steps += _unique_steps(request, promise, number, broken, dtypes, begins=not steps)
            case Ascending():
                steps.append(_judge_offsets(request, promise, number, broken, tensors_of(kernel)))
        judges[number] = len(steps) - 1
    if roles:
        steps.append(_report(request, broken, failed))
    by = tuple(judges[number] for number in range(len(promises)))
    return Checks(promises, broken, failed, tuple(steps), by, reported=roles)


def _unique_steps(
    request: Request,
    promise: Uniqueness,
    number: int,
    broken: StagedTensor,
    dtypes: Mapping[str, DType],
    *,
    begins: bool,
) -> Iterator[Check]:
    """The two steps that check one promise of unique entries. The first step of all ``begins`` by clearing all flags in
    the workspace."""
    last = len(promise.extents) - 1
    owners = StagedTensor(f"{PROMISES}owners{number}", i32, promise.extents, last, 2 + number)

    def places(tensors: Mapping[str, Tensor], at: Any) -> tuple[Any, Any]:
        """The places that a tile of entries reaches, and the entries' numbers, which are below 2^31."""
        loaded = {name: tensors[name][at].to(i64) for name in promise.tensors}
        numbers: Any = 0
        for number, extent in enumerate(tensors[promise.tensors[0]].shape):
            index = at[number].index if isinstance(at[number], tw.Range) else at[number]
            numbers = (numbers[:, None] if isinstance(numbers, Tile) else numbers) * extent + index if number else index
        return tuple(key.evaluate(loaded) for key in promise.keys), numbers

    def claim(*, bm: int, bn: int, **tensors: Tensor) -> None:
        given = tensors[promise.tensors[0]]
        if begins:
            n = tw.grid(elementwise.maximum(given.shape[0], broken.dims[0].constant), bn)
            tensors[BROKEN][n.index] = 0
            at = (n.index,)
        else:
            at = _places(given, bm, bn)
        reached, numbers = places(tensors, at)
        tensors[owners.name].write(reached, numbers, AtomicFn.SET)

    def judge(*, bm: int, bn: int, **tensors: Tensor) -> None:
        reached, numbers = places(tensors, _places(tensors[promise.tensors[0]], bm, bn))
        others = tensors[owners.name][reached].fill(numbers) != numbers
        tw.reduce_max(tensors[BROKEN], others.to(i32) * (number + 1) - 1, 1)

    of_owners, of_broken = _workspace(owners), _workspace(broken)
    given = [_Argument(TensorParam(n, _named(promise.dims)), dtypes[n], None) for n in promise.tensors]
    rank = len(promise.dims)
    yield _check(request, claim, f"claim{number}", rank, (*given, of_owners, *((of_broken,) if begins else ())))
    yield _check(request, judge, f"judge{number}", rank, (*given, of_owners, of_broken))


def _judge_offsets(
    request: Request, promise: Ascending, number: int, broken: StagedTensor, tensors: Mapping[str, tile.TensorType]
) -> Check:
    """The step that checks one promise of offsets beside promises of another kind."""
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
    """The step that checks and reports all promises of offsets, in one program."""
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
        tw.reduce_add(given[FAILED], elementwise.where(flags != 0, at[0].index, -1), 1)  # nothing on most launches

    given = [_offsets_argument(name, tensors) for name in dict.fromkeys(n for names, *_ in read for n in names)]
    return _check(request, judge, "judge", 1, (*given, *map(_workspace, items)), streams=True)


_JUDGED = 1024
"""Offsets that one program checks per step: a few per thread, because the next kernel waits for the first step."""
_FLAGS = 256
"""Flags of promises per program."""


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


def _zero(request: Request, broken: StagedTensor) -> Check:
    def zero(*, bm: int, bn: int, **tensors: Tensor) -> None:
        tensors[BROKEN][_places(tensors[BROKEN], bm, bn)] = 0

    return _check(request, zero, "zero", 1, (_workspace(broken),))


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
    """A kernel whose programs cover a tensor of ``rank`` axes, or one that ``streams`` over others and stores flags."""
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
    schedule = (_SINGLE if streams else _SHORT).replace(dependent=request.schedule.dependent)
    return Check(Request(function, signature, facts, request.target, schedule), items)

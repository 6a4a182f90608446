"""Certifies a program of several steps: what a kernel reads from a workspace has been written there, all of it.

order       a workspace is filled by one kernel, before any other touches it, on the same stream; added to by others
            before any reads it; a kernel whose CTAs begin earlier waits for the end of the one before
whole       that kernel writes every element of the tensor, each once; of what outlives a launch it adds to all, or 1
            where a flag is not 0 that it stores at the same place
copied      what kernels read in place of an argument is a copy of it
inside      the tensor, at the strides that all kernels use, fits the workspace
bound       what the kernels assume of workspaces follows from their layout and alignment, or is asked at dispatch
unique      what stores rely on is counted and judged by steps before, behind whose flags they stand
claimed     places that a step sets in any order, each by some entry of an index tensor, are read at those places alone
queue       what counts programs that are drawn is filled with 0 before a launch in which some are
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NoReturn, Protocol

from xdsl.ir import SSAValue

from tilewright.artifact.schema import (
    CHECKED,
    WORKSPACE_ALIGN_BYTES,
    EncodeTensorMap,
    Fill,
    Launch,
    Obligation,
    Step,
    TensorMapArg,
    WorkspacePointer,
    workspace_address,
)
from tilewright.base.expr import OWN, Const, Expr, Max, Sym, ceildiv, conjuncts, own
from tilewright.base.verdict import Proved
from tilewright.compiler.proofs.stores import prove_domains, store_domains
from tilewright.compiler.reliance import BY_EACH_CTA, UNWRITTEN, Relied, promises_of
from tilewright.compiler.workspaces import StagedTensor
from tilewright.diag import fail
from tilewright.lang.axes import Span, axis_symbol
from tilewright.lang.enums import AtomicFn, CompareFn
from tilewright.legal.facts import Facts
from tilewright.legal.repairs import STAGING_PITCH_BYTES
from tilewright.protocol.access import IndexRole, LoopIndex, StoreDomain
from tilewright.tile import dialect as tile
from tilewright.tile.indirect import scatter_number
from tilewright.tile.ops import operations, program_index
from tilewright.tile.promised_indices import IndexedAccess, indexed_access
from tilewright.tile.queries import coords_of, tensor_name
from tilewright.transport import dialect as transport
from tilewright.transport.access import scatter_name


class LaunchedKernel(Protocol):
    """A kernel that a step launches: both IRs, and which of its tensors lie in a workspace."""

    @property
    def tile(self) -> tile.Kernel: ...
    @property
    def transport(self) -> transport.Kernel: ...
    @property
    def workspaces(self) -> Mapping[str, StagedTensor]: ...


class RequiredChecks(Protocol):
    """Promises, the steps that judge them, and the workspaces of their flags and of failures."""

    @property
    def promises(self) -> tuple[Relied, ...]: ...
    @property
    def judges(self) -> tuple[int, ...]: ...
    @property
    def broken(self) -> StagedTensor | None: ...
    @property
    def failed(self) -> StagedTensor: ...


class PlannedChecks(Protocol):
    """The kernels that check promises, in order."""

    @property
    def checks(self) -> RequiredChecks: ...
    @property
    def kernels(self) -> Sequence[LaunchedKernel]: ...


def certify_steps(
    steps: Sequence[Step],
    kernels: Mapping[str, LaunchedKernel],
    predicate: Expr,
    promised: PlannedChecks | None = None,
) -> tuple[Obligation, ...]:
    """The obligations of a variant's steps, CRT003 for one that does not hold; none where there is no workspace.

    ``kernels`` are the launched kernels by symbol, ``promised`` those that check what the last of them relies on.
    """
    kept = set[int]() if promised is None else {promised.checks.failed.index}
    found = certify_workspaces(steps, kernels, predicate, kept)
    return (*found, *_checked(steps, kernels, promised)) if found else ()


def certify_workspaces(
    steps: Sequence[Step], kernels: Mapping[str, LaunchedKernel], predicate: Expr, kept: Collection[int]
) -> tuple[Obligation, ...]:
    """The obligations of workspaces between steps; the workspaces ``kept`` outlive a launch."""
    items: dict[int, StagedTensor] = {}
    for symbol, kernel in kernels.items():
        for item in kernel.workspaces.values():
            if items.setdefault(item.index, item) != item:
                _refuse("inside", f"{symbol} takes workspace {item.index} for another tensor than kernels before it")
    if not items:
        return ()
    writers = _order(steps, kernels, kept)
    found = [Obligation("order", f"workspace {index}: {symbol} runs first") for index, symbol in writers.items()]
    for symbol in dict.fromkeys(writers.values()):
        own_items = [items[index] for index, by in writers.items() if by == symbol]
        counted = [items[index] for index in sorted(_written(kernels[symbol], _ADDS).intersection(kept))]
        found += _whole(kernels[symbol], [*own_items, *counted])
        found += [Obligation("inside", _inside(item)) for item in own_items]
    found += _copied(kernels, writers)
    found += _claimed(kernels)
    found += [Obligation("inside", _inside(items[index])) for index in sorted(kept)]
    asked = set(conjuncts(predicate))
    for kernel in kernels.values():
        open_ = set(_open(kernel)) - asked
        if open_:
            _refuse("bound", f"{kernel.transport.sym_name.data} assumes {', '.join(map(str, open_))}")
    found.append(Obligation("bound", "divisors of strides and addresses, the rest asked at dispatch"))
    return tuple(found)


def _open(kernel: LaunchedKernel) -> Iterator[Expr]:
    """Assumptions about workspaces that their layout does not imply."""
    meant = {symbol: node for name, item in kernel.workspaces.items() for symbol, node in item.binding(name).items()}
    assumed = [x.expr for x in kernel.transport.assumptions]
    for assumption in (x.substitute(meant) for x in assumed if x.symbols & meant.keys()):
        extents = {name: (0, None) for name in assumption.symbols if "." not in name}
        addresses = {workspace_address(i.index): WORKSPACE_ALIGN_BYTES for i in kernel.workspaces.values()}
        yield from conjuncts(Facts(bounds=extents, divisors=addresses).residual(assumption))


def _checked(
    steps: Sequence[Step], kernels: Mapping[str, LaunchedKernel], promised: PlannedChecks | None
) -> Iterator[Obligation]:
    """Requires that steps check every promise of the last kernel."""
    launched = [step.kernel for step in steps if isinstance(step, Launch)]
    relied_on = promises_of(kernels[launched[-1]].tile)
    checks = () if promised is None else promised.checks.promises
    if relied_on != checks:
        _refuse("unique", f"{', '.join(map(str, relied_on))} relied on, {', '.join(map(str, checks))} checked")
    if promised is None:
        return
    wanted = [kernel.tile for kernel in promised.kernels]
    if [kernels[symbol].tile for symbol in launched[:-1]] != wanted:
        _refuse("unique", f"the steps {', '.join(launched)}, not those of the checks")
    last = kernels[launched[-1]]
    yield from certify_queue(last, steps)
    if promised.checks.broken is None:
        if last.tile.judged is None:
            _refuse("unique", f"{', '.join(map(str, checks))} judged by no step, and by no CTA")
        yield from (Obligation(f"{promise}", CHECKED, BY_EACH_CTA) for promise in checks)
        return
    for promise, judge in zip(checks, promised.checks.judges, strict=True):
        if promised.checks.broken not in promised.kernels[judge].workspaces.values():
            _refuse("unique", f"{promise} is judged, and its flag not set")
        yield Obligation(
            f"{promise}", CHECKED, f"by step {judge + 1} of {len(launched)}, before any store, {UNWRITTEN}"
        )


def certify_queue(kernel: LaunchedKernel, steps: Sequence[Step]) -> Iterator[Obligation]:
    """The counter of a queue is 0 before a launch in which programs are drawn."""
    draws = [op for op in operations(kernel.transport) if isinstance(op, transport.Draw)]
    counter = None if kernel.tile.queue is None else kernel.workspaces.get(kernel.tile.queue.data)
    at_once = kernel.transport.target.sm_count * kernel.transport.min_ctas.data
    if kernel.transport.cluster is not None:
        at_once -= at_once % kernel.transport.cluster.data
    for op in draws:
        some = op.programs.expr > at_once
        fills = [step for step in steps if isinstance(step, Fill)]
        if counter is None or fills != [Fill(WorkspacePointer(counter.index), 0, counter.element.bytes, some)]:
            _refuse("queue", f"{kernel.transport.sym_name.data} draws from a counter that no step fills with 0")
        yield Obligation("queue", f"workspace {counter.index}: filled with 0 where {some}")


def _is(value: SSAValue, number: int) -> bool:
    """Whether a value is a constant."""
    made = value.owner
    if isinstance(made, tile.Constant):
        return made.value.data == number
    return isinstance(made, tile.Broadcast | tile.Expand | tile.Cast) and _is(made.operands[0], number)


def _order(steps: Sequence[Step], kernels: Mapping[str, LaunchedKernel], kept: Collection[int]) -> dict[int, str]:
    """The kernel that fills each workspace, from the steps as they will be launched; ``kept`` are only added to."""
    read: dict[int, str] = {}
    blocks = {workspace_address(i.index): i.index for k in kernels.values() for i in k.workspaces.values()}
    mapped: dict[int, set[int]] = {}
    writers: dict[int, str] = {}
    counters: dict[int, str | None] = {}  # ``certify_queue`` looks at what fills them, and one kernel takes each
    for step in steps:
        if isinstance(step, Fill) and isinstance(step.destination, WorkspacePointer):
            counters[step.destination.index] = None
        if isinstance(step, EncodeTensorMap):
            mapped[step.slot] = {blocks[name] for name in step.recipe.address.symbols & blocks.keys()}
        if not isinstance(step, Launch):
            continue
        kernel = kernels[step.kernel]
        sets = {kernel.workspaces[tensor_name(op)].index for op in _sets(kernel)}
        if step.early and kernel.transport.waits is None:
            _refuse("order", f"{step.kernel} begins early and does not wait")
        touched = {a.index for a in step.args if isinstance(a, WorkspacePointer)} - _unnamed(kernel)
        touched |= {i for a in step.args if isinstance(a, TensorMapArg) for i in mapped[a.slot]}
        written, added = _written(kernel, _STORES) | sets, (_written(kernel, _ADDS) | _reported(kernel)) - sets
        for index in touched & counters.keys():
            if counters[index] is not None:
                _refuse("order", f"{step.kernel} and {counters[index]} both count in workspace {index}")
            counters[index] = step.kernel
        for index in touched - counters.keys():
            if index in written and (index in writers or index in kept):
                _refuse("order", f"{step.kernel} and {writers.get(index, 'the launch')} both fill workspace {index}")
            if index not in written and index not in writers and index not in kept:
                _refuse("order", f"{step.kernel} reads workspace {index} before anything fills it")
            if index in added and index in read:
                _refuse("order", f"{step.kernel} adds to workspace {index} after {read[index]} has read it")
            if index not in written | added:
                if index in kept:
                    _refuse("order", f"{step.kernel} reads workspace {index}, which outlives a launch")
                read.setdefault(index, step.kernel)
        writers |= dict.fromkeys(written, step.kernel)
    return writers


_STORES = (tile.Store, tile.Scatter)
_ADDS = (tile.AtomicReduce, tile.ScatterReduce)


def _written(kernel: LaunchedKernel, ops: tuple[type[tile.TileOp], ...]) -> set[int]:
    stored = {tensor_name(op) for op in kernel.tile.walk() if isinstance(op, tile.WRITES) and isinstance(op, ops)}
    return {item.index for name, item in kernel.workspaces.items() if name in stored}


def _unnamed(kernel: LaunchedKernel) -> set[int]:
    """Workspaces that the kernel is given and does not use: only some schedules draw programs."""
    arguments = zip(kernel.transport.arg_names, kernel.transport.body.block.args, strict=True)
    unused = {name.data for name, argument in arguments if not argument.uses}
    return {item.index for name, item in kernel.workspaces.items() if name in unused}


def _reported(kernel: LaunchedKernel) -> set[int]:
    """The workspace in which a kernel that checks its promises counts broken ones."""
    return {kernel.workspaces[kernel.tile.gate.data].index} if kernel.tile.judged and kernel.tile.gate else set()


def _whole(kernel: LaunchedKernel, items: Sequence[StagedTensor]) -> Iterator[Obligation]:
    """The kernel's stores are exactly these tensors, each of them whole; what it adds where flags say so has a place
    for each element."""
    places = {op: scatter_name(tensor_name(op), scatter_number(op)) for op in _sets(kernel)}
    everything = [domain for domain in store_domains(kernel.tile) if domain.tensor in places.values()]
    sets = {tensor_name(op) for op in places}
    for item in items:
        name = next(n for n, i in kernel.workspaces.items() if i == item)
        if name in sets:
            continue
        axes = [LoopIndex(own(f"axis{d}"), IndexRole.AXIS, Const(0), extent) for d, extent in enumerate(item.dims)]
        flagged = _added_by_flags(kernel, name, item)
        written = name if flagged is None else scatter_name(name, scatter_number(flagged))
        everything.append(StoreDomain(written, "", tuple(axes), tuple(Sym(axis.name) for axis in axes)))
    answer = prove_domains(kernel.transport, everything)
    if not isinstance(answer, Proved):
        _refuse("whole", f"{answer}")
    yield from (Obligation("whole", o.method, o.subject) for o in answer.obligations if o.name == "domain")


def _sets(kernel: LaunchedKernel) -> list[tile.ScatterReduce]:
    """The stores of ``values`` at given coordinates."""
    return [op for op in kernel.tile.walk() if isinstance(op, tile.ScatterReduce) and op.fn.data is AtomicFn.SET]


def _claimed(kernels: Mapping[str, LaunchedKernel]) -> Iterator[Obligation]:
    """Requires that every entry of an index tensor sets a place of a workspace, and others read those places."""
    for symbol, kernel in kernels.items():
        for op in _sets(kernel):
            item = kernel.workspaces[tensor_name(op)]
            entries = indexed_access(op)
            if isinstance(entries, str) or entries.rest or not _all_entries(kernel.tile, op, entries):
                _refuse("claimed", f"{symbol} sets {item.name} at some entries only, or elsewhere")
            for reader, other in kernels.items():
                names = {name for name, i in other.workspaces.items() if i == item}
                for use in other.tile.walk():
                    if use is op or not isinstance(use, tile.TileOp) or names.isdisjoint(_tensors(use)):
                        continue
                    read = indexed_access(use) if isinstance(use, tile.Gather) else "otherwise"
                    if isinstance(read, str) or replace(read, element=entries.element) != entries:
                        _refuse("claimed", f"{reader} uses {item.name} elsewhere than {symbol} sets it")
            yield Obligation("claimed", "each entry", f"{item.name} by {symbol}")


def _tensors(op: tile.TileOp) -> set[str]:
    kinds = (operand.type for operand in op.operands)
    return {kind.tensor_name.data for kind in kinds if isinstance(kind, tile.TensorType)}


def _all_entries(kernel: tile.Kernel, op: tile.ScatterReduce, entries: IndexedAccess) -> bool:
    """The programs' tiles go over all entries: along each dimension by a program each, or in tiles to its end."""
    programs = [Sym(program_index(i)) for i in range(len(kernel.grid))]
    grid = {program: extent.expr for program, extent in zip(programs, kernel.grid, strict=True)}
    spans = {Sym(axis_symbol(d)): axis for d, axis in enumerate(tile.tile_type(op.value).axes_tuple)}

    def whole(at: Expr, dim: Expr) -> bool:
        span = spans.get(at) if isinstance(at, Sym) else None
        if not isinstance(span, Span):
            return grid.pop(at, None) == dim if isinstance(at, Sym) else False
        program = next((p for p in grid if span.origin == p * span.size), None)
        long = span.stop == dim or (isinstance(span.stop, Max) and dim in span.stop.args)
        return long and program is not None and grid.pop(program) == ceildiv(span.stop, span.size)

    return all(map(whole, entries.element, entries.dims)) and not grid


def _copied(kernels: Mapping[str, LaunchedKernel], writers: Mapping[int, str]) -> Iterator[Obligation]:
    """Requires that a workspace read under the name of an argument holds a copy of it."""
    items = {(n, i.index) for kernel in kernels.values() for n, i in kernel.workspaces.items() if OWN not in n}
    for name, index in sorted(items):
        filling = kernels[writers[index]]
        ops = list(filling.tile.body.block.ops)
        match ops:
            case [tile.Load() as load, tile.Store() as store] if (
                store.value is load.result and store.coords == load.coords and name not in filling.workspaces
            ):
                copied = tensor_name(load) == name
            case _:
                copied = False
        if not copied:
            _refuse("copied", f"{writers[index]} computes what {name} is taken for")
        yield Obligation("copied", "identity", name)


def _added_by_flags(kernel: LaunchedKernel, name: str, item: StagedTensor) -> tile.ScatterReduce | None:
    """What adds 1 to each element of ``item`` whose flag is not 0: a flag of a workspace with as many, to which it is
    stored at the same place."""
    adds = [op for op in kernel.tile.walk() if isinstance(op, _ADDS) and tensor_name(op) == name]
    match adds:
        case [tile.ScatterReduce(indices=[index]) as add] if add.fn.data is AtomicFn.ADD and _is(add.value, 1):
            chosen = index.owner
        case _:
            return None
    if not isinstance(chosen, tile.Select) or not isinstance(compared := chosen.cond.owner, tile.Compare):
        return None
    own, flags = chosen.a.owner, compared.a
    if compared.fn.data is not CompareFn.NE or not _is(compared.b, 0) or not isinstance(own, tile.Index):
        return None
    stored = any(
        isinstance(op, tile.Store)
        and op.value is flags
        and coords_of(op) == (own.axis.data,)
        and (to := kernel.workspaces.get(tensor_name(op))) is not None
        and to.dims == item.dims
        for op in kernel.tile.walk()
    )
    return add if stored else None


def _inside(item: StagedTensor) -> str:
    """Rows are as long as the extent rounded up; each outer axis steps over all of the one inside it, and the size over
    the outermost."""
    unit = STAGING_PITCH_BYTES // item.element.bytes
    axes = [d for d in reversed(range(len(item.dims))) if d != item.unit_axis]
    steps = [*(item.strides[d] for d in axes), item.size_bytes // item.element.bytes]
    rows = steps[0] == ceildiv(item.extents[item.unit_axis], unit) * unit and item.strides[item.unit_axis] == Const(1)
    nested = all(outer == inner * item.extents[d] for d, (inner, outer) in zip(axes, pairwise(steps), strict=True))
    if not rows or not nested:
        _refuse("inside", f"{item.name}: strides {', '.join(map(str, item.strides))}, {item.size_bytes} bytes")
    return f"{item.copy_name}: rows of {steps[0]} elements, axes nested"


def _refuse(obligation: str, found: str) -> NoReturn:
    fail("CRT003", found=f"{obligation}: {found}", required="steps that hand a whole tensor on")

"""Whether the variants of a bundle compute one program: executed by the simulator on the same drawn arguments.

Each variant's kernels are compared with their own Tile IR, which holds the extents that were chosen for them, or is one
of several that work together. So the variants are executed beside each other, with all their steps, where the class of
one of them takes arguments that others take too. A difference refutes the bundle; what agrees is tested, no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tilewright.artifact.schema import Artifact, EncodeTensorMap, Fill, Launch, Variant, WorkspacePointer
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import FALSE, Expr, ExprError, conjuncts
from tilewright.compiler.differential import DIGITS, exactly_rounded
from tilewright.compiler.proofs.rewritten import is_rest
from tilewright.compiler.sampled_arguments import Array, SampledArguments, sample_arguments
from tilewright.diag import TilewrightError
from tilewright.simulate import LaunchStep, WorkspaceTensor, run_steps
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.validate.launch_requirements import workspaces_of

_DRAWS = 9
"""Arguments sampled for each variant's class."""
_LEAST_ELEMENTS = 64
"""The least number of elements that variants write; smaller launches are tried where no others compare variants."""
_BUDGETS = (4e6, 3e7)
"""Register operations that the simulator may execute for a step: at first, and for the variants that remain."""


@dataclass(frozen=True)
class Agreement:
    """The result of comparing variants by execution: ``differences`` with the arguments that show them; ``alone``,
    variants that no launch compared with others; ``launches``, which variants agreed on which arguments."""

    differences: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunnableVariant:
    """A variant as the simulator runs it: its kernels in order, and the workspaces between them."""

    name: str
    symbol: str
    """The last kernel's symbol."""
    predicate: Expr
    kernels: tuple[t.Kernel, ...]
    steps: tuple[LaunchStep, ...]
    scratch: tuple[WorkspaceTensor, ...]

    def takes(self, given: SampledArguments) -> bool:
        """Whether dispatch may choose the variant for the arguments."""
        symbols = {**given.extents, **{n: v for n, v in given.scalars.items() if isinstance(v, int)}}
        for name, placed in given.tensors.items():
            symbols[f"{name}.address"] = int(placed.block.__array_interface__["data"][0])
            symbols |= {f"{name}.stride{i}": s for i, s in enumerate(placed.strides)}
        try:
            return bool(self.predicate.evaluate(symbols))
        except ExprError:
            return False


def agreement(artifact: Artifact, kernels: Mapping[str, t.Kernel], programs: Mapping[str, tile.Kernel]) -> Agreement:
    """Executes the variants of an artifact on sampled arguments; ``kernels`` and ``programs`` are the Transport IR and
    Tile IR by symbol. A variant for empty streams is compared by its program instead."""
    variants = [runnable(v, kernels) for v in artifact.variants]
    if len(variants) < 2:
        return Agreement()
    groups = {v.name: {v.name} for v in variants}
    lines: list[str] = []
    for least, budget in ((_LEAST_ELEMENTS, _BUDGETS[0]), (_LEAST_ELEMENTS, _BUDGETS[1]), (1, _BUDGETS[0])):
        left = variants if budget == _BUDGETS[0] and least > 1 else _outside(variants, groups, programs)
        for own, given in _launches(artifact, left, least):
            if len(groups[own.name]) == len(variants):
                break
            others = [v for v in variants if v.name not in groups[own.name]]
            joined = {own.name}
            for other, difference in _compared(artifact, own, others, given, budget):
                if not difference:
                    joined.add(other.name)
                elif own.takes(given) and other.takes(given):
                    return Agreement((f"{difference}, of {shown(artifact, given)}",))
            if len(joined) > 1:
                lines.append(f"{', '.join(v.name for v in variants if v.name in joined)} on {shown(artifact, given)}")
                whole = set[str]().union(*(groups[name] for name in joined))
                groups |= dict.fromkeys(whole, whole)
    alone = [v.name for v in _outside(variants, groups, programs)]
    rests = (v.name for v in variants if v.name not in max(groups.values(), key=len) and v.name not in alone)
    lines += (f"{name}, which is another one without its streams, by its program" for name in rests)
    return Agreement((), tuple(alone), tuple(lines))


def _outside(
    variants: Sequence[RunnableVariant], groups: Mapping[str, set[str]], programs: Mapping[str, tile.Kernel]
) -> list[RunnableVariant]:
    """The variants that are neither in the largest group that agrees nor one of its variants for empty streams."""
    known = max(groups.values(), key=len)
    return [v for v in variants if v.name not in known and not _is_rest(v, variants, known, programs)]


def _is_rest(
    variant: RunnableVariant, others: Sequence[RunnableVariant], known: set[str], programs: Mapping[str, tile.Kernel]
) -> bool:
    """Whether a variant is one of the known ones for empty streams."""
    own = programs.get(variant.symbol)
    whole = (programs.get(v.symbol) for v in others if v.name in known)
    return own is not None and any(w is not None and is_rest(w, own, variant.predicate) for w in whole)


def _launches(
    artifact: Artifact, variants: Sequence[RunnableVariant], least: int
) -> Iterator[tuple[RunnableVariant, SampledArguments]]:
    """Arguments for which dispatch may choose each variant, and others of its kernels' class; of what is written each
    tensor has so many elements."""
    for variant, (chosen, seed) in product(variants, product((True, False), range(_DRAWS))):
        if not variant.kernels:
            continue
        given = sample_arguments(variant.kernels[-1], seed, conjuncts(variant.predicate) if chosen else ())
        if given is not None and {p.name for p in artifact.tensors} <= given.tensors.keys():
            written = (given.tensors[p.name].view.size for p in artifact.tensors if p.access.writes)
            if min(written, default=0) >= least:
                yield variant, given


def runnable(variant: Variant, kernels: Mapping[str, t.Kernel]) -> RunnableVariant:
    """A variant for the simulator; one whose steps are not all launches never runs, but for those that set a workspace
    to 0."""
    fills = [s for s in variant.steps if isinstance(s, Fill) and s.pattern == 0]
    zeroed = {s.destination.index: s.count for s in fills if isinstance(s.destination, WorkspacePointer)}
    launches = sum(isinstance(s, Launch | EncodeTensorMap) for s in variant.steps)
    known = launches + len(zeroed) == len(variant.steps)
    symbols = [s.kernel for s in variant.steps if isinstance(s, Launch) and s.kernel in kernels]
    own = tuple(kernels[symbol] for symbol in symbols)
    kept = {report.workspace for report in variant.reports}
    scratch: dict[int, WorkspaceTensor] = {}
    for kernel in own:
        for index, placed in workspaces_of(kernel):
            element = DTYPES[placed.element]
            scratch[index] = WorkspaceTensor(
                workspace_name(index),
                element,
                placed.dims,
                placed.strides,
                placed.size_bytes,
                index in kept,
                zeroed.get(index, FALSE),
            )
    steps = tuple(map(_step, own)) if known else ()
    last = symbols[-1] if symbols else ""
    return RunnableVariant(variant.name, last, variant.predicate, own, steps, tuple(scratch.values()))


def _step(kernel: t.Kernel) -> LaunchStep:
    buffers = {w.tensor.data: workspace_name(w.index.data) for w in kernel.workspaces or ()}
    return LaunchStep(kernel, buffers, {c.symbol.data: c.value.expr for c in kernel.collapsed or ()})


def workspace_name(index: int) -> str:
    return f"$workspace{index}"


def _compared(
    artifact: Artifact,
    own: RunnableVariant,
    others: Sequence[RunnableVariant],
    given: SampledArguments,
    budget: float,
) -> Iterator[tuple[RunnableVariant, str]]:
    """The other variants that run on the arguments, each with what it leaves otherwise than ``own``."""
    mine = _results(artifact, own, given, budget)
    if mine is None or not any(np.isfinite(a.astype(np.float64)).any() for a in mine.values()):
        return
    for other in others:
        theirs = _results(artifact, other, given, budget)
        if theirs is not None:
            yield other, _difference((own, other), mine, theirs)


def _results(
    artifact: Artifact, variant: RunnableVariant, given: SampledArguments, budget: float
) -> dict[str, Array] | None:
    """The contents of written tensors after a variant has run; None where its kernels assume something else of their
    arguments, or it exceeds the budget."""
    if not variant.steps:
        return None
    tensors = {p.name: given.tensors[p.name].copied().view for p in artifact.tensors}
    scalars = {p.name: given.scalars[p.name] for p in artifact.parameters if p.name in given.scalars}
    symbols = {**given.extents, **{n: v for n, v in scalars.items() if isinstance(v, int)}}
    try:
        run_steps(variant.steps, variant.scratch, tensors, scalars, symbols=symbols, budget=budget)
    except (TilewrightError, ExprError):
        return None
    return {p.name: tensors[p.name] for p in artifact.tensors if p.access.writes}


def _difference(
    variants: tuple[RunnableVariant, RunnableVariant], left: Mapping[str, Array], right: Mapping[str, Array]
) -> str:
    """The first element in which two variants differ, as text. Floats may differ by the order of sums and by rounding,
    and more where functions are approximated; comparisons of such floats are inconclusive."""
    one, other = variants
    exact = all(exactly_rounded(kernel) for v in variants for kernel in v.kernels)
    for name, a in left.items():
        b = right[name]
        floats = a.dtype.kind in "fV"
        differ = _apart(a, b, exact=exact) if floats else a != b
        if differ.any() and (floats or exact):
            at = tuple(int(x) for x in np.argwhere(differ)[0])
            return f"{name}[{', '.join(map(str, at))}] is {a[at]} in {one.name} and {b[at]} in {other.name}"
    return ""


def _apart(a: Array, b: Array, *, exact: bool) -> Array:
    """Elements that differ. Sampled data sum exactly: where nothing is approximated, results differ by their own
    rounding, and, where large quotients cancel, by that of f32."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    largest = np.abs(x[np.isfinite(x)]).max(initial=0)
    digits, share = (DIGITS[8 * a.dtype.itemsize], 20) if exact else (2 if a.dtype.itemsize == 1 else 6, 8)
    with np.errstate(invalid="ignore"):
        room = np.maximum(np.abs(x), np.abs(y)) * 2.0**-digits + largest * 2.0**-share
        close = np.abs(x - y) <= np.where(np.isfinite(room), room, 0)
        return ~((x == y) | (np.isnan(x) & np.isnan(y)) | close)


def shown(artifact: Artifact, given: SampledArguments) -> str:
    own = {s for p in artifact.tensors for d in p.dims for s in d.symbols} | {p.name for p in artifact.parameters}
    named = {n: v for n, v in {**given.extents, **given.scalars}.items() if n in own}
    return ", ".join(f"{name} = {value}" for name, value in named.items()) or "no extents"

"""Whether the steps of a bundle check what their kernel relies on: executed by the simulator on integers that keep a
promise, and on such that break it in one place.

A bundle's steps may be any kernels, each proved to be what its own text says. Whether a launch's integers break a
promise is computed here from the promise alone. Then no element may be written, and the promise must be reported; where
all are kept none may be. What agrees is tested, no more: of integers beyond the drawn extents nothing is known.
Programs that are compiled ahead of time are executed so before they leave the compiler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tilewright.artifact.schema import Artifact, Launch, Variant
from tilewright.base.expr import ExprError, conjuncts
from tilewright.compiler.proofs.loaded import Ascending
from tilewright.compiler.reliance import Relied, Uniqueness, promises_of
from tilewright.compiler.sampled_arguments import Array, SampledArguments, sample_arguments
from tilewright.compiler.variants_agree import Agreement, RunnableVariant, runnable, shown, workspace_name
from tilewright.diag import TilewrightError
from tilewright.simulate import run_steps
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

PROMISES_TESTED = "promises"
"""Name of the obligation that records on how many launches the steps checked a kernel's promises."""
_SEEDS = 24
"""The number of draws."""
_ENOUGH = 4
"""Draws with every promise kept and with each broken, after which testing ends."""
_BUDGET = 4e6
_BUDGET_BROKEN = 2e8
"""The budget of a launch whose stores are skipped: they count as if executed."""
_BEFORE = 3
"""The initial value of the counters of failures."""
_LONG = 2050
"""The least number of offsets in every third draw: more than two iterations of a loop."""
_EDGES = (1, 31, 32, 1023, 1024, 1025, 2047, 2048)
"""Offsets at the boundary between threads or iterations."""


def run_promise_tests(
    artifact: Artifact, kernels: Mapping[str, t.Kernel], programs: Mapping[str, tile.Kernel]
) -> Agreement:
    """Executes the variants whose kernel relies on promises. ``alone`` are those without a report of promises, or that
    run on no sampled arguments."""
    alone: list[str] = []
    launches: list[str] = []
    for variant in artifact.variants:
        own = runnable(variant, kernels)
        launched = (programs.get(step.kernel) for step in variant.steps if isinstance(step, Launch))
        promises = tuple(dict.fromkeys(p for program in launched if program is not None for p in promises_of(program)))
        if not promises:
            continue
        if [r.promises for r in variant.reports] != [tuple(map(str, promises))]:
            alone.append(variant.name)
            continue
        done: Counter[int] = Counter()
        for given in _draws(own, variant, promises):
            for number, integers in _integers(promises, given):
                difference = _difference(artifact, own, variant.reports[0].workspace, promises, given, integers)
                if difference:
                    return Agreement((f"{variant.name}: {difference}, of {shown(artifact, given)}",))
                done[number] += difference is not None
            if min(done[k] for k in range(-1, len(promises))) >= _ENOUGH:
                break
        if min(done[k] for k in range(-1, len(promises))) == 0:
            alone.append(variant.name)
        else:
            launches.append(f"{variant.name} on {done.total()} launches with promises kept and broken")
    return Agreement((), tuple(alone), tuple(launches))


def _draws(own: RunnableVariant, variant: Variant, promises: Sequence[Relied]) -> Iterator[SampledArguments]:
    """Arguments, of which every third has many offsets where their number is a launch's."""
    class_ = conjuncts(variant.predicate)
    long = [*class_, *(p.extent >= _LONG for p in promises if isinstance(p, Ascending) and p.extent.symbols)]
    for seed in range(_SEEDS):
        given = sample_arguments(own.kernels[-1], seed, long if seed % 3 == 1 else class_)
        if given is not None:
            yield given


def _integers(promises: Sequence[Relied], given: SampledArguments) -> Iterator[tuple[int, dict[str, Array]]]:
    """Integers for the tensors of the promises: some that keep all of them (-1), and some that break one, by its
    number."""
    rng = np.random.default_rng(sum(given.extents.values()))
    kept: dict[str, Array] = {}
    for promise in promises:
        for name in _tensors(promise):
            kept[name] = _keeping(promise, given.tensors[name].view, given, rng)
    if not any(_broken(p, kept, given) for p in promises):
        yield -1, kept
    for number, promise in enumerate(promises):
        for broken in _breaking(promise, kept, given, rng):
            if _broken(promise, broken, given):
                yield number, broken


def _tensors(promise: Relied) -> tuple[str, ...]:
    return promise.tensors if isinstance(promise, Uniqueness) else (promise.tensor,)


def _keeping(promise: Relied, like: Array, given: SampledArguments, rng: np.random.Generator) -> Array:
    if isinstance(promise, Uniqueness):
        return rng.permutation(like.size).reshape(like.shape).astype(like.dtype)
    found = np.sort(rng.integers(0, _most(promise, given) + 1, like.shape)).astype(like.dtype)
    found[:1] = 0
    return found


def _breaking(
    promise: Relied, kept: Mapping[str, Array], given: SampledArguments, rng: np.random.Generator
) -> Iterator[dict[str, Array]]:
    """The integers with one element changed: two equal entries, or the first, last or any offset."""
    if isinstance(promise, Uniqueness):
        own = {name: kept[name].copy() for name in kept}
        size = own[promise.tensors[0]].size
        if size > 1:
            one, other = rng.choice(size, 2, replace=False)
            for name in promise.tensors:
                own[name].reshape(-1)[one] = own[name].reshape(-1)[other]
        yield own
        return
    most, last = _most(promise, given), len(kept[promise.tensor]) - 1
    edges = [e for e in (*_EDGES, last - 1) if 0 < e < last] or [last]
    inner = int(rng.choice(edges) if rng.random() < 0.5 else rng.integers(1, last)) if last > 1 else last
    for at in dict.fromkeys((0, inner, last)):
        own = {name: kept[name].copy() for name in kept}
        offsets = own[promise.tensor]
        offsets[at] = 1 if at == 0 else most + 1 if at == last else offsets[at - 1] - 1
        yield own


def _most(promise: Ascending, given: SampledArguments) -> int:
    return int(promise.most.evaluate(dict(given.extents)))


def _broken(promise: Relied, integers: Mapping[str, Array], given: SampledArguments) -> bool:
    """Whether the integers break a promise: two entries reach one place, or offsets do not ascend from 0 to their
    limit."""
    if isinstance(promise, Ascending):
        offsets = integers[promise.tensor].astype(np.int64)
        return bool(offsets[0] != 0 or (np.diff(offsets) < 0).any() or offsets[-1] > _most(promise, given))
    extents = [int(e.evaluate(dict(given.extents))) for e in promise.extents]
    reached: Counter[tuple[int, ...]] = Counter()
    for values in zip(*(integers[name].ravel().tolist() for name in promise.tensors), strict=True):
        known = {**given.extents, **dict(zip(promise.tensors, values, strict=True))}
        place = tuple(int(key.evaluate(known)) for key in promise.keys)
        reached[place] += all(0 <= k < e for k, e in zip(place, extents, strict=True))
    return max(reached.values(), default=0) > 1


def _difference(
    artifact: Artifact,
    own: RunnableVariant,
    report: int,
    promises: Sequence[Relied],
    given: SampledArguments,
    integers: Mapping[str, Array],
) -> str | None:
    """How a launch violates what its promises require, as text; empty if it does not, None where it can't run."""
    tensors = {p.name: given.tensors[p.name].copied().view for p in artifact.tensors}
    for name, values in integers.items():
        tensors[name][...] = values
    before = {p.name: tensors[p.name].copy() for p in artifact.tensors if p.access.writes}
    scalars = {p.name: given.scalars[p.name] for p in artifact.parameters if p.name in given.scalars}
    symbols = {**given.extents, **{n: v for n, v in scalars.items() if isinstance(v, int)}}
    name = workspace_name(report)
    item = next((s for s in own.scratch if s.name == name), None)
    if item is None:
        return None
    counts = item.allocate(symbols)
    counts[...] = _BEFORE
    kept = {name: counts}
    broken = [_broken(promise, integers, given) for promise in promises]
    last = own.steps[-1]  # what it does beside reporting others compare
    steps = own.steps if any(broken) or name in last.buffers.values() else own.steps[:-1]
    budget = _BUDGET_BROKEN if any(broken) else _BUDGET
    try:
        run_steps(steps, own.scratch, {**tensors, **kept}, scalars, symbols=symbols, budget=budget)
    except (TilewrightError, ExprError):
        return None
    by_ctas = any(isinstance(op, t.BarrierCount) for op in own.kernels[-1].walk())  # each reports, not one step
    for promise, ought, counted in zip(promises, broken, counts.ravel().tolist(), strict=True):
        times = min(counted - _BEFORE, 1) if by_ctas else counted - _BEFORE
        if times != ought:
            return f"{promise} is {'broken' if ought else 'kept'}, and reported {counted - _BEFORE} times"
    if any(broken) and any((before[name] != tensors[name]).any() for name in before):
        return "elements are written although a promise is broken"
    return ""

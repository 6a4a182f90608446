"""Differential tests: a kernel's PTX and its Transport IR executed on the same drawn arguments, where translation
validation is undecided.

The PTX machine executes the PTX, the simulator the IR; they share no code. Launches on which they agree are recorded as
tested; they prove nothing beyond themselves. A difference refutes the PTX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import StringAttr

from tilewright.artifact.schema import (
    EncodeTensorMap,
    FloatScalar,
    IntScalar,
    KernelArg,
    Launch,
    TensorMapArg,
    TensorPointer,
    WorkspacePointer,
)
from tilewright.base.expr import Expr, FloorDiv
from tilewright.compiler.launch_recipe import Recipe, ctas_at_once
from tilewright.compiler.sampled_arguments import Array, SampledArguments, SampledTensor, sample_arguments
from tilewright.compiler.timing import timed
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import ELEMENT_BITS, Swizzle
from tilewright.ptx import machine
from tilewright.ptx.machine.run import ExecutableEntry
from tilewright.ptx.reader import read
from tilewright.simulate import run
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import TensorType
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.match import Difference

LAUNCHES = 4
"""The least number of launches; the last of them reached no new instructions."""
_MOST_LAUNCHES = 8
_STALE = 2
_DRAWS = 30
"""Arguments drawn at most for these launches: some take too long to execute."""
_BUDGET = 3e6
"""Register operations that the simulator may execute for a launch; ``_STEPS`` limits the PTX machine."""
_STEPS = 20_000
_MOST_CTAS = 256
_FEW = 3
"""Programs per CTA, at least, in every other launch of a persistent kernel: launches are so small that each CTA would
otherwise have one."""
_SEVERAL = 4
"""Steps of a loop, at least, in launches in which counters wrap around."""
_ROUNDS = 3
"""Programs, at least, of one CTA that visits them forwards and backwards alternately."""
_LONGER = 4
"""The budget of these launches, as a multiple of that of others."""
_SPANS = {Swizzle.NONE: 0, Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}
_WRONG = ("PTX010", "PTX011", "PTX017", "PTX019")
"""Faults of the PTX machine that no launch may have: accesses outside or misaligned, deadlocks, refused operations."""
_UNDEFINED = ("PTX013", "PTX014")
"""Reads of undefined values: where the results agree, no result depends on them."""
_EXACT = ("neg", "abs", "not", "sqrt")
_ROUNDED_OTHERWISE = ("div", "pow", "atan2", "hypot")


@dataclass(frozen=True)
class DifferentialResult:
    """Descriptions of the launches that agreed, the share of the PTX's basic blocks that they executed, and the
    ``differences``, which refute the PTX."""

    launches: tuple[str, ...] = ()
    executed: float = 0
    differences: tuple[Difference, ...] = ()


@dataclass
class _Outcome:
    """The outcome of one launch: whether both ran and agree, and what differs."""

    agreed: bool = False
    wrong: list[str] = field(default_factory=list[str])
    executed: frozenset[int] = frozenset()


@timed("test")
def run_differential_test(kernel: t.Kernel, ptx: str, recipe: Recipe) -> DifferentialResult:
    """Executes a kernel's PTX and its Transport IR on a few sampled arguments of its class."""
    program = ExecutableEntry(read(ptx), kernel.entry)
    agreed: list[str] = []
    reached, stale = set[int](), 0
    several = _several_steps(kernel)
    for seed in range(_DRAWS):
        few = len(agreed) % 2 == 1
        given = (sample_arguments(kernel, seed, several) if few and several else None) or sample_arguments(kernel, seed)
        if given is None:
            continue
        outcome = _executed(kernel, program, recipe, given, few=few, longer=bool(several))
        if outcome.wrong:
            place = kernel.entry, kernel.sym_name.data
            refuting = Difference(*place, f"{outcome.wrong[0]}, of {given}", refuted=True)
            return DifferentialResult(differences=(refuting,))
        if outcome.agreed:
            agreed.append(str(given))
            stale = stale + 1 if outcome.executed <= reached else 0
            reached |= outcome.executed
        if len(agreed) == _MOST_LAUNCHES or (len(agreed) >= LAUNCHES and stale >= _STALE):
            break
    return DifferentialResult(tuple(agreed), len(reached) / max(len(program.segments), 1))


def _several_steps(kernel: t.Kernel) -> list[Expr]:
    """Conditions on extents under which the periodic counters of one CTA wrap around (enough steps of the loops that
    advance them) and programs are visited in both directions. Empty where no counter has a period and there is one
    direction."""
    kept = {op.symbol for op in kernel.walk() if isinstance(op, a.Counter) and op.period is not None}
    kinds = (arg.type for arg in kernel.body.block.args)
    names = {n for kind in kinds if isinstance(kind, TensorType) for d in kind.dims for n in d.expr.symbols}
    loops = (op for op in kernel.walk() if isinstance(op, t.For) and kept & _advanced(op))
    steps = dict.fromkeys(q for op in loops for q in _quotients(op.end.expr) if q.symbols <= names)
    walks = (op for op in kernel.walk() if isinstance(op, t.Programs) and op.alternates)
    turns = dict.fromkeys(q for op in walks for e in op.extents for q in _quotients(e.expr) if q.symbols <= names)
    return [*(each >= _SEVERAL for each in steps), *(each >= _ROUNDS for each in turns if each not in steps)]


def _advanced(loop: t.For) -> set[StringAttr]:
    """The counters that are advanced in a loop."""
    return {op.symbol for op in loop.walk() if isinstance(op, a.Advance)}


def _quotients(e: Expr) -> Iterator[Expr]:
    """The floor divisions in an expression."""
    if isinstance(e, FloorDiv):
        yield e
    for part in e.children:
        yield from _quotients(part)


def _executed(
    kernel: t.Kernel, program: ExecutableEntry, recipe: Recipe, given: SampledArguments, *, few: bool, longer: bool
) -> _Outcome:
    """Runs both on copies of the arguments and compares the tensors that they may write; on ``few`` CTAs for persistent
    kernels, on one cluster in ``longer`` launches."""
    (shape,), launch = recipe.shapes, recipe.steps[-1]
    assert isinstance(launch, Launch)
    ours, theirs = ({n: p.copied() for n, p in given.tensors.items()} for _ in range(2))
    memory = machine.DeviceMemory()
    symbols = _symbols(kernel, given, {n: memory.add(n, p.block) for n, p in theirs.items()})
    ctas = int(launch.grid[0].evaluate(symbols))
    if few and ctas_at_once(kernel) is not None:
        clusters = ctas // shape.cluster[0]
        ctas = (1 if longer else -(-clusters // _FEW)) * shape.cluster[0]
    if not 0 < ctas <= _MOST_CTAS:
        return _Outcome()
    values = [_value(a, kernel, recipe, symbols, given) for a in launch.args]
    try:
        budget = _LONGER * _BUDGET if few and longer else _BUDGET
        run(kernel, {n: p.view for n, p in ours.items()}, given.scalars, grid_size=ctas, budget=budget)
    except TilewrightError:
        return _Outcome()  # too much to simulate; errors of the IR are found by its proofs
    where = machine.MachineLaunch((ctas, 1, 1), (shape.threads, 1, 1), shape.cluster, shape.shared_bytes)
    report = program.launch(where, values, memory, most_steps=_STEPS)
    wrong = [str(f) for f in report.faults if f.code in _WRONG]
    if wrong:
        return _Outcome(wrong=wrong)
    if any(f.code not in _UNDEFINED for f in report.faults):
        return _Outcome()
    outcome = _compared(kernel, ours, theirs)
    outcome.executed = frozenset(report.executed)
    return outcome


def _symbols(kernel: t.Kernel, given: SampledArguments, addresses: Mapping[str, int]) -> dict[str, int]:
    """The values of a launch's symbols: extents, integers, strides, addresses in the machine's memory."""
    found = {**given.extents, **{n: v for n, v in given.scalars.items() if isinstance(v, int)}}
    for name, placed in given.tensors.items():
        found |= {f"{name}.stride{i}": s for i, s in enumerate(placed.strides)}
        found[f"{name}.address"] = addresses[name]
    for w in kernel.workspaces or ():
        found[f"$workspace{w.index.data}.address"] = addresses[w.tensor.data]
    return found


def _value(
    argument: KernelArg, kernel: t.Kernel, recipe: Recipe, symbols: dict[str, int], given: SampledArguments
) -> bytes | machine.DecodedTensorMap:
    match argument:
        case TensorPointer(name):
            return symbols[f"{name}.address"].to_bytes(8, "little")
        case WorkspacePointer(index):
            return symbols[f"$workspace{index}.address"].to_bytes(8, "little")
        case FloatScalar(name):
            return np.float32(given.scalars[name]).tobytes()
        case IntScalar(value, bits):
            return int(value.evaluate(symbols)).to_bytes(bits // 8, "little", signed=True)
        case TensorMapArg(slot):
            return _map(next(s for s in recipe.steps if isinstance(s, EncodeTensorMap) and s.slot == slot), symbols)


def _map(step: EncodeTensorMap, symbols: dict[str, int]) -> machine.DecodedTensorMap:
    map_recipe = step.recipe
    return machine.DecodedTensorMap(
        int(map_recipe.address.evaluate(symbols)),
        ELEMENT_BITS[map_recipe.element] // 8,
        tuple(int(d.evaluate(symbols)) for d in map_recipe.dims),
        tuple(int(s.evaluate(symbols)) for s in map_recipe.strides_bytes),
        map_recipe.box,
        _SPANS[map_recipe.swizzle],
        map_recipe.element_strides,
    )


def _compared(kernel: t.Kernel, ours: Mapping[str, SampledTensor], theirs: Mapping[str, SampledTensor]) -> _Outcome:
    """Compares every tensor, and the bytes between its elements. Where functions are approximated, floats may differ by
    a tolerance, and differences in what is computed from comparisons of floats are inconclusive."""
    exact = exactly_rounded(kernel)
    for name, mine in ours.items():
        if mine.view.size and not same_around(mine, theirs[name]):
            return _Outcome(wrong=[f"the PTX writes between the elements of {name}"])
        a, b = mine.view, theirs[name].view
        differ = apart(a, b, exact=exact)
        if not differ.any():
            continue
        at = tuple(int(x) for x in np.argwhere(differ)[0])
        x, y = a[at], b[at]
        floats = mine.dtype.kind in "fV"
        if not exact and not (floats and np.isfinite(np.float64(x)) and np.isfinite(np.float64(y))):
            return _Outcome()
        return _Outcome(wrong=[f"{name}[{', '.join(map(str, at))}] is {y} in the PTX and {x} in the Transport IR"])
    return _Outcome(agreed=True)


def same_around(mine: SampledTensor, other: SampledTensor) -> bool:
    """Whether the memory blocks are equal outside the tensors' elements."""
    blocks = [p.copied() for p in (mine, other)]
    for placed in blocks:
        placed.view[...] = np.zeros((), placed.dtype)
    return bool((blocks[0].block == blocks[1].block).all())


DIGITS = {8: 2, 16: 7, 32: 20}
"""Bits of precision to which equal values agree after rounding, by the width of their dtype."""


def apart(a: Array, b: Array, *, exact: bool) -> Array:
    """Elements that differ; floats by more than rounding explains, or, unless ``exact``, approximation."""
    if a.dtype.kind not in "fV":
        return a != b
    x, y = a.astype(np.float64), b.astype(np.float64)
    digits = DIGITS[8 * a.dtype.itemsize]
    largest = np.abs(x[np.isfinite(x)]).max(initial=0)
    room = np.maximum(np.abs(x), np.abs(y)) * 2.0**-digits
    if not exact:
        room = np.maximum(np.maximum(np.abs(x), np.abs(y)) * 2.0**-4, largest * 2.0**-6)
    with np.errstate(invalid="ignore"):
        return ~((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= np.where(np.isfinite(room), room, 0)))


def exactly_rounded(kernel: t.Kernel) -> bool:
    """Whether every operation is rounded as IEEE 754 defines: no library functions, no approximations."""
    for op in kernel.walk():
        if isinstance(op, t.Approximate) or (isinstance(op, tile.Unary) and op.fn.data not in _EXACT):
            return False
        if isinstance(op, tile.Binary) and op.fn.data in _ROUNDED_OTHERWISE:
            return False
    return True

"""The launch recipe of an artifact against the texts of its kernels, worked out here a second time.

For every kernel: threads, cluster, dynamic shared memory, which must hold all that the text places in it. For every
variant: the steps in order, with grid, parameters and every field of every tensor map; workspaces, whose tensors fit
and are written before they are read; that inputs stay inputs; that what kernels assume is asked before they run, and
that what they count fits.

Integer expressions are equal if they are one expression, or simplify to one; where they differ a launch is named at
which they do. What is neither is a fault: it can't be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import accumulate, chain, combinations, pairwise, product
from typing import cast

from xdsl.ir import Operation, SSAValue

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    MAX_EXTENT,
    WORKSPACE_ALIGN_BYTES,
    AccessMode,
    Artifact,
    EncodeTensorMap,
    Fill,
    IntScalar,
    KernelImage,
    Launch,
    Step,
    TensorArgument,
    Variant,
    WorkspacePointer,
)
from tilewright.base.expr import Const, Expr, Sym, conjuncts, divisor, maximum
from tilewright.diag import fail
from tilewright.hw.tensormap import Interleave, OobFill
from tilewright.legal.facts import Facts
from tilewright.tile.attributes import TensorType, TileType
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.counters import uncounted
from tilewright.validate.expr_equality import difference
from tilewright.validate.launch_requirements import (
    Placed,
    arguments_of,
    ctas_at_once,
    fits,
    grid_of,
    places_of,
    programs_of,
    stored_or_loaded,
    touched_by,
    workspaces_of,
)

MBARRIER_BYTES = 8
"""PTX ISA 9.1, 9.7.13.15.2: an mbarrier is a 64-bit object, aligned to its size."""

SHARED_ALIGN_BYTES = 16
"""Buffers are accessed in vectors of up to 16 bytes (``transport.shared``)."""


@dataclass(frozen=True)
class Fault:
    """A field of the recipe that does not follow from the kernels."""

    field: str
    found: str
    required: str

    def __str__(self) -> str:
        return f"{self.field}: {self.found}, not {self.required}"


def require_recipe(artifact: Artifact, kernels: Mapping[str, t.Kernel]) -> None:
    """CRT007 for a recipe that is not that of ``kernels``, by symbol."""
    faults = recipe_faults(artifact, kernels)
    if faults:
        fail(
            "CRT007",
            found=f"{artifact.name}: {faults[0].field} is {faults[0].found}",
            required=faults[0].required,
            notes=tuple(map(str, faults[1:])),
        )


def recipe_faults(artifact: Artifact, kernels: Mapping[str, t.Kernel]) -> tuple[Fault, ...]:
    """Every field that differs from what ``kernels``, by symbol, require."""
    if set(kernels) != {image.symbol for image in artifact.kernels}:
        return (Fault("kernels", _names(i.symbol for i in artifact.kernels), _names(kernels)),)
    found = list(_interface_faults(artifact, kernels))
    found += [fault for image in artifact.kernels for fault in _image_faults(artifact, image, kernels[image.symbol])]
    for variant in artifact.variants:
        found += _Variant(artifact, variant, kernels).faults()
    launched = {s.kernel for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    found += (Fault(f"kernels.{name}", "launched by no variant", "launched") for name in kernels.keys() - launched)
    return tuple(found)


def _interface_faults(artifact: Artifact, kernels: Mapping[str, t.Kernel]) -> Iterator[Fault]:
    """The program that the artifact shows is that of a variant's last kernel, or what that was made of; its arguments
    are the parameters, in their order."""
    shown = next((image.symbol for image in _last(artifact) if _program(artifact, image) == artifact.tile_ir), None)
    if shown is None:
        yield Fault("tile_ir", "the program of no kernel", "that of one, which ends a variant")
        return
    names = [parameter.name for parameter in artifact.parameters]
    own = [n.data for n in kernels[shown].arg_names if n.data in names]
    if own != names:
        yield Fault("parameters", _names(names), f"{_names(own)}, as {shown} takes them")


def _last(artifact: Artifact) -> Iterator[KernelImage]:
    """The kernels that end variants."""
    for variant in artifact.variants:
        launched = [step.kernel for step in variant.steps if isinstance(step, Launch)]
        yield from (artifact.kernel(symbol) for symbol in launched[-1:])


def _program(artifact: Artifact, image: KernelImage) -> str:
    """What a kernel that ends a variant computes, as it was written."""
    made_of = artifact.programs_of(image)
    return made_of[0].tile_ir if made_of else image.tile_ir


# -- kernels -----------------------------------------------------------------------------------------------------------
def _image_faults(artifact: Artifact, image: KernelImage, kernel: t.Kernel) -> Iterator[Fault]:
    """Faults in a kernel's launch configuration."""
    cluster = 1 if kernel.cluster is None else kernel.cluster.data
    shared = 0 if kernel.shared_bytes is None else kernel.shared_bytes.data
    asked = {
        "symbol": (image.symbol, _entry(kernel)),
        "target": (artifact.target, kernel.target_name.data),
        "threads": (image.threads, kernel.threads.data),
        "cluster": (image.cluster, (cluster, 1, 1)),
        "shared_bytes": (image.shared_bytes, shared),
    }
    where = f"kernels.{image.symbol}"
    yield from (Fault(f"{where}.{name}", str(x), str(y)) for name, (x, y) in asked.items() if x != y)
    yield from (Fault(f"{where}.{name}", found, required) for name, found, required in shared_faults(kernel, shared))
    roles = [(op.first.data, op.threads.data) for op in kernel.body.block.ops if isinstance(op, a.Role)]
    ends = [0, *accumulate(threads for _, threads in roles)]
    if roles and (ends[:-1] != [first for first, _ in roles] or ends[-1] != image.threads):
        yield Fault(f"{where}.threads", str(image.threads), f"roles of {roles} (first, threads), one behind the other")
    for programs in programs_of(kernel):
        rows, columns = programs.cluster_shape
        if rows * columns != cluster:
            yield Fault(f"{where}.cluster", str(cluster), f"blocks of {rows} x {columns} programs")
        for extent, size in zip(programs.extents.data[-2:], (rows, columns), strict=False):
            if size > 1 and divisor(extent.expr, {}) % size:
                yield Fault(f"{where}.cluster", f"{extent.expr} programs", f"a multiple of {size}")
    heads = {(p.extents, p.persistent, p.cluster) for p in programs_of(kernel)}
    if len(heads) != 1:
        yield Fault(f"{where}.grid", f"{len(heads)} walks over programs that differ", "one")


def shared_faults(kernel: t.Kernel, shared: int) -> Iterator[tuple[str, str, str]]:
    """Buffers and barriers lie in what the launch gives, and no barrier in a buffer."""
    buffers: list[tuple[int, int, str]] = []
    barriers: list[tuple[int, int, str]] = []
    for op in kernel.body.block.ops:
        if isinstance(op, t.Shared) and op.offset is not None:
            kind = t.shared_of(op.buffer)
            size = kind.count.data * kind.dtype.dtype.bytes
            buffers.append((op.offset.data, op.offset.data + size, op.hint.data))
        elif isinstance(op, a.Mbarriers):
            size = a.mbarriers_of(op.bars).slots.data * MBARRIER_BYTES
            barriers.append((op.offset.data, op.offset.data + size, op.hint.data))
    last = max((end for _, end, _ in chain(buffers, barriers)), default=0)
    if last and last + t.SHARED_BASE_ALIGN_BYTES > shared:
        yield "shared_bytes", str(shared), f"{last} bytes behind a multiple of {t.SHARED_BASE_ALIGN_BYTES}"
    if shared > kernel.target.shared_per_cta_bytes:
        yield "shared_bytes", str(shared), f"at most {kernel.target.shared_per_cta_bytes}"
    for alignment, places in ((MBARRIER_BYTES, barriers), (SHARED_ALIGN_BYTES, buffers)):
        for begin, _, name in places:
            if begin % alignment:
                yield "shared memory", f"{name} at byte {begin}", f"a multiple of {alignment}"
    placed = sorted(barriers)
    for one, other in pairwise(placed):
        if other[0] < one[1]:
            yield "mbarriers", f"{one[2]} up to byte {one[1]}, {other[2]} from {other[0]} on", "apart"
    for (begin, end, bar), (first, behind, buffer) in product(barriers, buffers):
        if begin < behind and first < end:
            yield "mbarriers", f"{bar} at bytes {begin} to {end}", f"outside of {buffer}, {first} to {behind}"
    owners = [op for op in kernel.body.block.ops if isinstance(op, t.Shared) and op.offset is not None]
    for ((begin, end, one), x), ((first, behind, other), y) in combinations(zip(buffers, owners, strict=True), 2):
        handed = any(_handed_over(kernel, early.buffer, late.buffer) for early, late in ((x, y), (y, x)))
        if begin < behind and first < end and not handed:
            yield "shared memory", f"{one} and {other} share bytes", "the one used up when the other is begun"


def _handed_over(kernel: t.Kernel, early: SSAValue, late: SSAValue) -> bool:
    """Whether all uses of ``early`` precede the cluster barrier after which ``late`` is read: a thread that writes
    ``late`` has used ``early`` before, then passes the barrier, and does not repeat the sequence."""
    if any(programs.persistent.data for programs in programs_of(kernel)):
        return False
    for role in (op for op in kernel.body.block.ops if isinstance(op, a.Role)):
        meetings, begun, met = 0, False, False
        for op in role.walk():
            uses_late = late in op.operands
            if early in op.operands and (begun or meetings):
                return False
            if uses_late and not isinstance(op, t.SharedWrite if not met else t.SharedWrite | t.ClusterRead):
                return False
            if uses_late and any(isinstance(outer, t.For) for outer in _outside(op)):
                return False
            begun = begun or uses_late
            met = met or (begun and isinstance(op, a.ClusterArrive))
            if begun and not met and not uses_late:
                return False
            meetings += isinstance(op, a.ClusterWait)
    return True


def _outside(op: Operation) -> Iterator[Operation]:
    """The ops around one."""
    parent = op.parent_op()
    while parent is not None:
        yield parent
        parent = parent.parent_op()


# -- variants ----------------------------------------------------------------------------------------------------------
class _Variant:
    """One variant and the kernels that it launches, in order."""

    def __init__(self, artifact: Artifact, variant: Variant, kernels: Mapping[str, t.Kernel]):
        self.artifact = artifact
        self.variant = variant
        self.where = f"variants.{variant.name}"
        self.launches = [step.kernel for step in variant.steps if isinstance(step, Launch)]
        self.kernels = [kernels[name] for name in self.launches if name in kernels]

    def faults(self) -> Iterator[Fault]:
        """All that is wrong."""
        unknown = [name for name in self.launches if name not in {_entry(k) for k in self.kernels}]
        twice = [name for name, times in Counter(self.launches).items() if times > 1]
        last = f"kernel_{self.variant.name}"
        if unknown or twice or self.launches[-1:] != [last]:
            yield Fault(f"{self.where}.steps", f"launches of {_names(self.launches)}", f"{last} last")
            return
        yield from self._steps()
        yield from self._workspaces()
        yield from self._data_flow()
        for kernel in self.kernels:
            yield from self._arguments(kernel)
            yield from self._assumptions(kernel)
            yield from self._collapsed(kernel)
            yield from self._counters(kernel)

    # -- steps --------------------------------------------------------------------------------------------------------
    def _steps(self) -> Iterator[Fault]:
        found, slots = iter(self.variant.steps), 0
        for index, drawn in (item for kernel in self.kernels for item in _drawn_from(kernel)):
            wanted = Fill(WorkspacePointer(index), 0, 4, drawn)
            if (step := next(found, None)) != wanted:
                yield Fault(f"{self.where}.steps", _kind(step), f"workspace {index} set to 0 where {drawn}")
                return
        for kernel in self.kernels:
            declared = [op for op in kernel.body.block.ops if isinstance(op, a.TensorMap)]
            if len({op.hint.data for op in declared}) < len(declared):
                yield Fault(f"{self.where}.steps", "two tensor maps of one name", "one each")
            for slot, op in enumerate(declared, slots):
                step = next(found, None)
                if not isinstance(step, EncodeTensorMap) or step.slot != slot:
                    yield Fault(f"{self.where}.steps", _kind(step), f"the tensor map {op.hint.data} in slot {slot}")
                    return
                yield from self._tensor_map(f"{self.where}.{op.hint.data}", step.recipe, op, places_of(kernel))
            step = next(found, None)
            if not isinstance(step, Launch) or step.kernel != _entry(kernel):
                yield Fault(f"{self.where}.steps", _kind(step), f"the launch of {_entry(kernel)}")
                return
            early = kernel.dependent is not None or (kernel is not self.kernels[0] and kernel.waits is not None)
            if step.early != early:
                yield Fault(f"{self.where}.{step.kernel}.early", str(step.early), str(early))
            yield from self._launch(step, kernel, {op.hint.data: i for i, op in enumerate(declared, slots)})
            slots += len(declared)
        yield from (Fault(f"{self.where}.steps", _kind(step), "nothing more") for step in found)

    def _launch(self, step: Launch, kernel: t.Kernel, slots: Mapping[str, int]) -> Iterator[Fault]:
        where = f"{self.where}.{step.kernel}"
        for axis, (found, required) in enumerate(zip(step.grid, (grid_of(kernel), Const(1), Const(1)), strict=True)):
            yield from _unequal(f"{where}.grid[{axis}]", found, required)
        required = list(arguments_of(kernel, slots))
        if len(step.args) != len(required):
            yield Fault(f"{where}.args", f"{len(step.args)} arguments", f"{len(required)}")
        for number, (found, wanted) in enumerate(zip(step.args, required, strict=False)):
            name = f"{where}.args[{number}]"
            if isinstance(found, IntScalar) and isinstance(wanted, IntScalar) and found.bits == wanted.bits:
                yield from _unequal(name, found.value, wanted.value)
            elif found != wanted:
                yield Fault(name, str(found), str(wanted))

    @staticmethod
    def _tensor_map(where: str, found: TensorMapRecipe, op: a.TensorMap, places: Mapping[str, Expr]) -> Iterator[Fault]:
        numbers = op.numbers
        rank = len(numbers.dims)
        plain: dict[str, object] = {
            "element": numbers.data_type,
            "box": tuple(numbers.box),
            "element_strides": (1,) * rank,
            "interleave": Interleave.NONE,
            "swizzle": numbers.swizzle,
            "l2_promotion": numbers.l2_promotion,
            "oob_fill": OobFill.NONE,
        }
        numeric: dict[str, tuple[Expr, ...]] = {
            "address": (numbers.address.substitute(places),),
            "dims": tuple(maximum(d, 1) for d in numbers.dims),
            "strides_bytes": tuple(s.substitute(places) for s in numbers.strides_bytes),
        }
        assert plain.keys() | numeric.keys() == {field.name for field in fields(found)}
        for name, wanted in plain.items():
            if getattr(found, name) != wanted:
                yield Fault(f"{where}.{name}", str(getattr(found, name)), str(wanted))
        for name, wanted in numeric.items():
            value = getattr(found, name)
            given = cast("tuple[Expr, ...]", value if isinstance(value, tuple) else (value,))
            if len(given) != len(wanted):
                yield Fault(f"{where}.{name}", f"{len(given)} of them", str(len(wanted)))
            for axis, (x, y) in enumerate(zip(given, wanted, strict=False)):
                yield from _unequal(f"{where}.{name}[{axis}]", x, y)

    # -- workspaces and tensors ---------------------------------------------------------------------------------------
    def _workspaces(self) -> Iterator[Fault]:
        """Checks that each workspace holds one tensor, with the same layout in all kernels, and is large enough
        for it."""
        found: dict[int, Placed] = {}
        where = f"{self.where}.workspace"
        for kernel in self.kernels:
            for index, placed in workspaces_of(kernel):
                if found.setdefault(index, placed) != placed:
                    yield Fault(f"{where}[{index}]", "laid otherwise by two kernels", "one layout")
        if sorted(found) != list(range(len(self.variant.workspace))):
            yield Fault(where, f"{len(self.variant.workspace)} blocks", f"{len(found)}")
            return
        for index, size in enumerate(self.variant.workspace):
            placed = found[index]
            yield from _unequal(f"{where}[{index}]", size, placed.size_bytes)
            if not fits(placed):
                yield Fault(f"{where}[{index}]", f"{placed.size_bytes} bytes", "rows that nest and fill them")

    def _data_flow(self) -> Iterator[Fault]:
        """Requires that workspaces are filled before they are read, and outputs are written unconditionally."""
        kept = {report.workspace for report in self.variant.reports}
        filled: set[int] = set(kept)
        written: set[str] = set()
        read: set[str] = set()
        for kernel in self.kernels:
            placed = {w.tensor.data: w.index.data for w in kernel.workspaces or ()}
            reads, writes = touched_by(kernel)
            counters = {index for index, _ in _drawn_from(kernel)}
            early = {placed[name] for name in reads & placed.keys()} - filled - counters
            if early:
                name = f"{self.where}.{_entry(kernel)}"
                yield Fault(name, f"reads workspace {min(early)}", "what a step before fills")
            for name in placed.keys() & stored_or_loaded(kernel):
                if placed[name] in kept:
                    where = f"{self.where}.{_entry(kernel)}"
                    yield Fault(where, f"reads or stores to workspace {placed[name]}", "additions: it outlives a call")
            filled |= {placed[name] for name in writes & placed.keys()}
            written |= writes - placed.keys()
            read |= reads - placed.keys()
        for parameter in self.artifact.tensors:
            if parameter.access is AccessMode.WRITE and parameter.name in read:  # it may be left out of a call
                yield Fault(f"parameters.{parameter.name}", "read", parameter.access.value)
            if parameter.access.writes != (parameter.name in written):
                found = "not written" if parameter.access.writes else "written"
                yield Fault(f"parameters.{parameter.name}", found, parameter.access.value)

    def _arguments(self, kernel: t.Kernel) -> Iterator[Fault]:
        """The kernel's arguments are the program's parameters, or lie in workspaces."""
        placed = {w.tensor.data for w in kernel.workspaces or ()}
        parameters = {p.name: p for p in self.artifact.parameters}
        for name, arg in zip((n.data for n in kernel.arg_names), kernel.body.block.args, strict=True):
            if name in placed:
                continue
            parameter, kind = parameters.get(name), arg.type
            if isinstance(kind, TensorType):
                wanted = (kind.element.name, tuple(d.expr for d in kind.dims))
                found = (parameter.dtype, parameter.dims) if isinstance(parameter, TensorArgument) else None
            else:
                wanted = cast("TileType", kind).dtype.dtype.name
                found = None if parameter is None or isinstance(parameter, TensorArgument) else parameter.dtype
            if found != wanted:
                yield Fault(f"parameters.{name}", str(found), str(wanted))

    def _assumptions(self, kernel: t.Kernel) -> Iterator[Fault]:
        """Requires that a kernel's assumptions are facts, checked at dispatch, or follow from the layout of
        workspaces."""
        places = places_of(kernel)
        asked = {c for fact in (*self.artifact.facts, self.variant.predicate) for c in conjuncts(fact)}
        asked |= {Sym(bound.symbol) <= bound.limit for bound in self.artifact.bounds}
        for assumption in (x.expr for x in kernel.assumptions):
            bound = assumption.substitute(places)
            rest = set(conjuncts(bound)) - asked
            if rest and places:
                symbols = set[str]().union(*(node.symbols for node in rest))
                known = Facts(
                    bounds={name: (0, None) for name in symbols if "." not in name},
                    divisors={name: WORKSPACE_ALIGN_BYTES for name in symbols if name.startswith("$workspace")},
                )
                rest = {c for node in rest for c in conjuncts(known.residual(node))} - asked
            for node in rest:
                if node.constant != 1:
                    name = f"{self.where}.{_entry(kernel)}"
                    yield Fault(name, f"{node} is assumed, and asked of no launch", "a fact or a part of the predicate")

    def _collapsed(self, kernel: t.Kernel) -> Iterator[Fault]:
        """Tensors that a launch takes for a single row have as many elements so, and no gap between their rows."""
        taken = {item.symbol.data: item.value.expr for item in kernel.collapsed or ()}
        kinds = zip((n.data for n in kernel.arg_names), (arg.type for arg in kernel.body.block.args), strict=True)
        asked = set(conjuncts(self.variant.predicate))
        where = f"{self.where}.{_entry(kernel)}"
        for name, kind in kinds if taken else ():
            if not isinstance(kind, TensorType):
                continue
            elements: Expr = Const(1)
            for axis, dim in reversed(list(enumerate(d.expr for d in kind.dims))):
                gapless = Sym(f"{name}.stride{axis}").eq(elements)
                if elements != Const(1) and gapless not in asked:
                    yield Fault(where, f"{gapless} is asked of no launch", "a part of the predicate")
                elements = dim * elements
            *rows, last = (d.expr.substitute(taken) for d in kind.dims)
            if last != elements or any(extent != Const(1) for extent in rows):
                yield Fault(where, f"{name} of {', '.join(map(str, (*rows, last)))}", f"one row of {elements}")

    def _counters(self, kernel: t.Kernel) -> Iterator[Fault]:
        """Requires that programs and carried counters stay within 31 bits in every launch that dispatch admits."""
        for name, most in uncounted(kernel, (*self.artifact.facts, self.variant.predicate)):
            found = f"{name} of up to {most}, asked of no launch to fit"
            yield Fault(f"{self.where}.{_entry(kernel)}", found, f"at most {MAX_EXTENT}")


def _drawn_from(kernel: t.Kernel) -> list[tuple[int, Expr]]:
    """The workspaces of counters, and where programs are drawn from them, so that they have to be 0."""
    placed = {w.tensor.data: w.index.data for w in kernel.workspaces or ()}
    draws = (op for op in kernel.walk() if isinstance(op, t.Draw))
    kinds = ((op, op.tensor.type) for op in draws)
    ctas = ctas_at_once(kernel)
    return [(placed[k.tensor_name.data], op.programs.expr > ctas) for op, k in kinds if isinstance(k, TensorType)]


def _unequal(field: str, found: Expr, required: Expr) -> Iterator[Fault]:
    """A fault where two expressions are not shown to be the same."""
    why = difference(found, required)
    if why:
        yield Fault(field, str(found), f"{required} ({why})")


def _kind(step: Step | None) -> str:
    return "the end" if step is None else f"a step {type(step).__name__}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def _entry(kernel: t.Kernel) -> str:
    """The entry point of a kernel's text."""
    return "kernel_" + kernel.sym_name.data

"""What planning leaves: variants with their IRs and proofs, before code generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.artifact.schema import LeftOut, Obligation
from tilewright.base.expr import FALSE, Expr
from tilewright.codegen.assemble import FEW_BYTES
from tilewright.compiler.promises import Checks
from tilewright.compiler.recipe import queue_draws
from tilewright.compiler.requests import Limits, Request
from tilewright.compiler.tracing import Tracing
from tilewright.compiler.traffic import traffic
from tilewright.compiler.verdicts import AccessVerdict, operand_verdicts, verdicts
from tilewright.compiler.workspaces import StagedTensor
from tilewright.hw.target import TARGETS, Target
from tilewright.schedule.conflicts import shared_uses
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.plan import Placement
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as transport

if TYPE_CHECKING:
    from tilewright.simulate.steps import LaunchStep, WorkspaceTensor


@dataclass(frozen=True)
class PlannedKernel:
    """One variant before code generation: when it applies, its IRs, and its certificate."""

    predicate: Expr
    request: Request
    """What it answers; of a tensor in a workspace it assumes more than the arguments' facts."""
    tile: tile.Kernel
    transport: transport.Kernel
    placement: Placement
    certificate: tuple[Obligation, ...]
    facts: CallFacts
    """Those of the arguments."""
    notes: tuple[str, ...] = ()
    later: Callable[[str], PlannedKernel] | None = None
    """The same by the next schedule, should the assembler spoil this one; told how it did."""
    few_bytes: int = FEW_BYTES
    """Spilled bytes that do not spoil it."""
    smaller: Callable[[], PlannedKernel] | None = None
    """The same with half the largest extent that the schedule chose; None where all are pinned or 1."""
    workspaces: Mapping[str, StagedTensor] = field(default_factory=dict[str, StagedTensor])
    """The kernel's tensors that lie in a workspace of the program."""
    copies: tuple[StagedCopy, ...] = ()
    """What runs before, on the same stream: kernels that fill the workspaces."""
    promises: PromiseChecks | None = None
    """What it relies on, with the kernels that check it before."""
    sizes: Limits = ()
    """What its ``upto`` axes are narrowed to."""
    wholes: tuple[tile.Kernel, ...] = ()
    """The program, where it was rewritten before it was scheduled: at the same extents, then at those of its shares."""
    collapsed: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    """What a launch passes for the extents of matrices that are taken for single rows."""
    product: PlannedKernel | None = None
    """Of a stream that is cut into parts: the kernel that sums them up, before this one adds them."""

    def remarks(self, target: str) -> tuple[str, ...]:
        """What the plan says of this kernel, of its bytes, of each of its accesses, and how those to shared memory meet
        the banks."""
        moved = traffic(self.tile)
        bytes_ = () if moved is None else (str(moved),)
        lines = (line for verdict in self.verdicts(TARGETS[target]) for line in verdict.lines)
        operands = operand_verdicts(self.transport)
        banks = map(str, shared_uses(self.transport, target))
        return (*self.notes, *self.placement.notes, *bytes_, *lines, *operands, *banks)

    def verdicts(self, target: Target) -> tuple[AccessVerdict, ...]:
        """The verdict of the legality rules on every access, in order."""
        return verdicts(self.tile, self.transport, self.facts, self.workspaces, target)

    @property
    def binding(self) -> dict[str, Expr]:
        """What stands for the symbols of tensors that lie in a workspace, or are taken for single rows."""
        parts = (item.binding(name) for name, item in self.workspaces.items())
        return {**self.collapsed, **{symbol: value for part in parts for symbol, value in part.items()}}

    @property
    def before(self) -> tuple[tuple[object, PlannedKernel], ...]:
        """The kernels that run before, in order, each with what it is the same kernel by in other variants."""
        checks = self.promises.kernels if self.promises is not None else ()
        return (
            *((copy.item, copy.planned) for copy in self.copies),
            *((kernel.transport.sym_name.data, kernel) for kernel in checks),
            *(() if self.product is None else ((self.product.transport.sym_name.data, self.product),)),
        )

    @property
    def steps(self) -> tuple[LaunchStep, ...]:
        """The kernels in order, for the simulator."""
        from tilewright.simulate.steps import LaunchStep  # noqa: PLC0415 - a compiler without simulation needs none

        kernels = (*(kernel for _, kernel in self.before), self)
        return tuple(
            LaunchStep(k.transport, {n: i.copy_name for n, i in k.workspaces.items()}, k.collapsed) for k in kernels
        )

    @property
    def scratch(self) -> tuple[WorkspaceTensor, ...]:
        """The workspaces of the steps, for the simulator."""
        from tilewright.simulate.steps import WorkspaceTensor  # noqa: PLC0415 - as above

        every = [*self.workspaces.values(), *(i for _, k in self.before for i in k.workspaces.values())]
        kept = self.promises.checks.failed if self.promises is not None else None
        drawn = {tile.tensor_type(op.tensor).tensor_name.data: where for op, where in queue_draws(self.transport)}
        zeroed = {self.workspaces[name]: where for name, where in drawn.items() if name in self.workspaces}
        return tuple(
            WorkspaceTensor(i.copy_name, i.element, i.extents, i.strides, i.size_bytes, i == kept, zeroed.get(i, FALSE))
            for i in dict.fromkeys(every)
        )

    def broken(self, kept: Mapping[str, Any]) -> tuple[str, ...]:
        """The promises that a simulated launch found broken; ``kept`` are its workspaces that outlive a launch."""
        if self.promises is None:
            return ()
        checks = self.promises.checks
        counts = kept[checks.failed.copy_name]
        return tuple(str(promise) for promise, count in zip(checks.promises, counts, strict=True) if count)


@dataclass(frozen=True)
class StagedCopy:
    """The kernel that copies one tensor to its workspace."""

    item: StagedTensor
    planned: PlannedKernel


@dataclass(frozen=True)
class PromiseChecks:
    """The kernels of ``checks``, in order."""

    checks: Checks
    kernels: tuple[PlannedKernel, ...]


@dataclass(frozen=True)
class PlannedProgram:
    """All variants of one request, in dispatch order: the first whose predicate holds runs. ``left_out`` are the
    classes for which no kernel could be planned, ``traces`` the tile programs that were traced for it."""

    request: Request
    variants: tuple[PlannedKernel, ...]
    left_out: tuple[LeftOut, ...]
    traces: Tracing

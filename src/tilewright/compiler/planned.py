"""Planned kernels and programs: variants with their IR and proofs, before code generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.artifact.schema import LeftOut, Obligation
from tilewright.base.expr import FALSE, Expr
from tilewright.codegen.assemble import SPILL_TOLERANCE_BYTES
from tilewright.compiler.index_promises import Checks
from tilewright.compiler.launch_recipe import queue_draws
from tilewright.compiler.requests import Limits, Request
from tilewright.compiler.tracing import Tracing
from tilewright.compiler.traffic import traffic
from tilewright.compiler.verdicts import AccessVerdict, operand_verdicts, verdicts
from tilewright.compiler.workspaces import StagedTensor
from tilewright.hw.target import TARGETS, Target
from tilewright.schedule.conflicts import shared_uses
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as transport

if TYPE_CHECKING:
    from tilewright.simulate.steps import LaunchStep, WorkspaceTensor


@dataclass(frozen=True)
class PlannedKernel:
    """One variant before code generation: when it applies, its IRs, and its certificate."""

    predicate: Expr
    request: Request
    """The request it was planned for; its facts also describe tensors that lie in workspaces."""
    tile: tile.Kernel
    transport: transport.Kernel
    placement: Placement
    certificate: tuple[Obligation, ...]
    facts: CallFacts
    """The facts of the arguments alone."""
    notes: tuple[str, ...] = ()
    next_schedule: Callable[[str], PlannedKernel] | None = None
    """Plans the kernel with the next candidate schedule, given why this one was rejected after assembly."""
    spill_tolerance_bytes: int = SPILL_TOLERANCE_BYTES
    """Spilled bytes per thread that are accepted."""
    other_stores: Callable[[str], PlannedKernel | None] | None = None
    """Plans the kernel without stores that the hardware clips, given why; None where that has no schedule."""
    smaller: Callable[[], PlannedKernel] | None = None
    """Plans the kernel with the largest chosen extent halved; None where all are pinned or 1."""
    workspaces: Mapping[str, StagedTensor] = field(default_factory=dict[str, StagedTensor])
    """The kernel's tensors that lie in workspaces, by name."""
    copies: tuple[StagedCopy, ...] = ()
    """Kernels that fill the workspaces, launched before on the same stream."""
    promises: PromiseChecks | None = None
    """The promises it relies on, with the kernels that check them before."""
    sizes: Limits = ()
    """The sizes of its ``upto`` axes."""
    originals: tuple[tile.Kernel, ...] = ()
    """The original program, if it was rewritten before scheduling: at the same extents, then at those of its shares."""
    collapsed: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    """The extents that a launch passes for flattened matrices, by dimension."""
    product: PlannedKernel | None = None
    """With split-K: the kernel that computes the partial sums, which this kernel adds."""

    def remarks(self, target: str) -> tuple[str, ...]:
        """The lines of the plan: notes, bytes moved, the verdict on each access, operands of products, and bank
        conflicts of shared memory."""
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
        """Values for the symbols of tensors that lie in workspaces or are flattened."""
        parts = (item.binding(name) for name, item in self.workspaces.items())
        return {**self.collapsed, **{symbol: value for part in parts for symbol, value in part.items()}}

    @property
    def before(self) -> tuple[tuple[object, PlannedKernel], ...]:
        """The kernels that run before, in order, each with a key by which variants share it."""
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
    """Promise checks with their planned kernels, in order."""

    checks: Checks
    kernels: tuple[PlannedKernel, ...]


@dataclass(frozen=True)
class PlannedProgram:
    """All variants of one request, in dispatch order: the first whose predicate holds runs. ``left_out`` are the
    classes for which no kernel could be planned; ``traces`` caches the traced tile programs."""

    request: Request
    variants: tuple[PlannedKernel, ...]
    left_out: tuple[LeftOut, ...]
    traces: Tracing

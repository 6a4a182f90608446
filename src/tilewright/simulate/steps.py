"""Programs of several kernels, which run one after another and pass tensors in workspaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.expr import FALSE, Expr
from tilewright.simulate.arguments import bind
from tilewright.simulate.budget import DEFAULT_BUDGET, check_budget
from tilewright.simulate.execute import launch, queues
from tilewright.simulate.report import SimulationReport
from tilewright.simulate.symbols import Array
from tilewright.simulate.values import memory_dtype
from tilewright.tile.attributes import TensorType
from tilewright.transport.dialect import Kernel

_ALIGN_BYTES = 256
_POISON = 0xFF
"""Bytes of a workspace before anything is written: NaN as a float, -1 as an integer."""


@dataclass(frozen=True)
class LaunchStep:
    """One kernel. ``buffers`` maps its tensor arguments to workspaces where they are not the program's arguments of
    that name; ``extents`` are, by symbol, those of dense tensors that are not the arguments'."""

    kernel: Kernel
    buffers: Mapping[str, str]
    extents: Mapping[str, Expr] = field(default_factory=dict[str, Expr])


@dataclass(frozen=True)
class WorkspaceTensor:
    """A workspace that holds a tensor: ``strides`` in elements."""

    name: str
    element: DType
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    size_bytes: Expr
    kept: bool = False
    """The workspace persists between launches of the program, and is zero before the first."""
    zeroed: Expr = FALSE
    """The condition under which a launch fills the workspace with zeros before its kernels. Of a queue of programs it
    is that there are more than CTAs; a simulated launch has fewer CTAs, so that it fills the workspace sooner."""

    def allocate(self, symbols: Mapping[str, int]) -> Array:
        """The tensor over poisoned bytes of exactly the workspace's size (but a byte at least)."""
        size = self.size_bytes.evaluate(symbols)
        zero = self.kept or self.zeroed.evaluate(symbols)
        block = np.full(size + 2 * _ALIGN_BYTES, 0 if zero else _POISON, np.uint8)
        begin = -block.__array_interface__["data"][0] % _ALIGN_BYTES
        shape = tuple(d.evaluate(symbols) for d in self.dims)
        strides = tuple(s.evaluate(symbols) * self.element.bytes for s in self.strides)
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + self.element.bytes
        assert 0 in shape or reach <= size, "a workspace holds its tensor"
        return np.ndarray(shape, memory_dtype(self.element), block.data, begin, strides)


def _taken(kind: TensorType, array: Array, extents: Mapping[str, Expr], symbols: Mapping[str, int]) -> Array:
    """The array at the extents that a launch passes, over the same bytes."""
    if not extents:
        return array
    taken = array.reshape(tuple(dim.expr.substitute(extents).evaluate(symbols) for dim in kind.dims))
    assert not array.size or np.shares_memory(taken, array), "dispatch asks that its rows are dense"
    return taken


def run_steps(
    steps: Sequence[LaunchStep],
    scratch: Sequence[WorkspaceTensor],
    tensors: Mapping[str, Array],
    scalars: Mapping[str, int | float] | None = None,
    *,
    symbols: Mapping[str, int],
    budget: float = DEFAULT_BUDGET,
) -> tuple[SimulationReport, ...]:
    """Run kernels in order on arrays that they read and write in place; see ``run``.

    ``symbols`` gives the extents over which workspaces are sized. Every kernel gets the arguments it names; a workspace
    among ``tensors`` is taken from there.
    """
    arrays = {**{s.name: s.allocate(symbols) for s in scratch if s.name not in tensors}, **tensors}
    filled = {s.name for s in scratch if s.zeroed != FALSE}
    reports: list[SimulationReport] = []
    for step in steps:
        names = [n.data for n in step.kernel.arg_names]
        kinds = dict(zip(names, (a.type for a in step.kernel.body.block.args), strict=True))
        own = {
            n: _taken(kind, arrays[step.buffers.get(n, n)], step.extents, symbols)
            for n, kind in kinds.items()
            if isinstance(kind, TensorType)
        }
        numbers = {n: v for n, v in (scalars or {}).items() if n in names}
        arguments = bind(step.kernel, own, numbers)
        check_budget(step.kernel, arguments.symbols, budget)
        for name in queues(step.kernel, arguments):
            if step.buffers.get(name, name) in filled:
                arrays[step.buffers.get(name, name)][...] = 0
        reports.append(launch(step.kernel, arguments, None, 0))
    return tuple(reports)

"""The tile programs of a request: one for each choice of extents that the schedule tries."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.compiler.requests import Limits, Request
from tilewright.compiler.timing import timed
from tilewright.tile import dialect as tile
from tilewright.tile.tracer import trace


class Tracing:
    """The tile programs of a request, each traced once. They differ in sizes alone: the first is verified."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._traced: dict[tuple[frozenset[tuple[str, int]], Limits], tile.Kernel] = {}

    @timed("trace")
    def __call__(self, extents: Mapping[str, int], limits: Limits = ()) -> tile.Kernel:
        """The program with the given extents for its autos, over those that are pinned, and sizes for its ``upto``
        axes. It is shared: whoever changes it, changes a copy."""
        whole = {**extents, **dict(self.request.schedule.extents)}
        key = (frozenset(whole.items()), limits)
        found = self._traced.get(key)
        if found is None:
            signature = self.request.signature.with_extents(whole, limits)
            made = trace(self.request.function, signature, verify=not self._traced, traps=self.request.traps)
            (found,) = made.body.block.ops
            assert isinstance(found, tile.Kernel)
            self._traced[key] = found
        return found

    @property
    def text(self) -> str:
        """Every program traced so far with its extents: all that running the body has told the compiler."""
        sizes = ((sorted(extents), [(str(e), size) for e, size in limits]) for extents, limits in self._traced)
        return "\n".join(f"{of} {kernel}" for of, kernel in zip(sizes, self._traced.values(), strict=True))

"""Tile IR and Transport IR of example kernels, planned and not assembled."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache

from support.example_cases import EXAMPLES_BY_NAME
from tilewright.base.dtypes import DTYPES
from tilewright.compiler.program import plan
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.params import KernelFunction
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

Lowered = dict[str, tuple[tile.Kernel, t.Kernel]]
"""Both IRs of each kernel, by name."""


def lowered(
    kernel: KernelFunction,
    dtypes: dict[str, str],
    schedule: Schedule | None = None,
    keywords: Mapping[str, Hashable] | None = None,
) -> Lowered:
    """Both IRs of a kernel's variants, and of the kernels that serve them."""
    signature = Signature.of({n: DTYPES[d] for n, d in dtypes.items()}, static=None, keywords=dict(keywords or {}))
    request = Request(kernel, signature, default_facts(kernel), SM90A, schedule or Schedule())
    found: Lowered = {}
    for planned in plan(request).variants:
        for each in (*(copy.planned for copy in planned.copies), planned):
            found[each.transport.sym_name.data] = each.tile, each.transport
    return found


@cache
def example(name: str, dtype: str, schedule: Schedule | None = None) -> Lowered:
    """Those of an example in one dtype; where all is pinned, one with the example's name."""
    case = EXAMPLES_BY_NAME[name]
    return lowered(case.kernel, {n: d.name for n, d in case.tensor_dtypes(DTYPES[dtype]).items()}, schedule)

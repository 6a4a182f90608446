"""The executor: rows to their packed places, and back in a weighted sum."""

from __future__ import annotations

from typing import Any

from tilewright.diag import fail
from tilewright.ops.packing import kernels
from tilewright.ops.packing.plan import PackPlan


def pack(plan: PackPlan, x: Any) -> Any:
    """The rows of ``x``, (tokens, width), at their packed places: (P, width), 0 in padding."""
    _require("x", x, (plan.tokens, None))
    return kernels.pack_rows(plan.rows, x)


def unpack(plan: PackPlan, y: Any, weights: Any = None, added: Any = None) -> Any:
    """Each token's packed rows of ``y``, (P, width), added up by ``weights``, (tokens, choices), and to ``added``,
    (tokens, width): (tokens, width), of the dtype of ``y``.

    The sum goes over the choices in their order, in f32: the same bits in every run. Dropped pairs add nothing.
    """
    _require("y", y, (plan.capacity, None))
    for name, given, shape in (
        ("weights", weights, (plan.tokens, plan.choices)),
        ("added", added, (plan.tokens, y.shape[1])),
    ):
        if given is not None:
            _require(name, given, shape)
    return kernels.unpack_rows(plan.slots, y, weights, added, choices=plan.choices)


def _require(name: str, value: Any, shape: tuple[int | None, ...]) -> None:
    found = tuple(getattr(value, "shape", ()))
    if len(found) != len(shape) or any(w is not None and w != f for w, f in zip(shape, found, strict=True)):
        required = ", ".join("any" if w is None else str(w) for w in shape)
        fail("JIT012", found=f"{name} of {found}", required=f"({required}), as the plan has it")

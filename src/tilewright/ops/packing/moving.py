"""The executor: rows to their packed places, and back in a weighted sum."""

from __future__ import annotations

from math import gcd
from typing import Any

from tilewright.base.dtypes import dtype_named
from tilewright.diag import fail, type_shown
from tilewright.jit.outputs import empty
from tilewright.ops.packing import kernels
from tilewright.ops.packing.plan import PackPlan

_FEWEST_SPREAD = 4
"""Choices of a token from which on its row is read once."""
_FEWEST_FILLED, _FILLED = 8, 16
"""Rows of which one program fills the padding, which stands behind the others in any part of a block (128 rows, 65,536
of 128 experts, H200: 32 us, for 15 of bytes)."""


def pack(plan: PackPlan, x: Any) -> Any:
    """The rows of ``x``, (tokens, width), at their packed places: (P, width), of the dtype of ``x``, 0 in padding.

    With a plan that has ``unique_slots``, and some choices a token, each row of ``x`` is read once."""
    _require_plan(plan)
    _require("x", x, (plan.tokens, None))
    shape = plan.capacity, x.shape[1]
    part, slots = gcd(plan.policy.align, _FILLED), plan.unique_slots
    if slots is None or plan.choices < _FEWEST_SPREAD or part < _FEWEST_FILLED or not plan.tokens:
        return _called(kernels.pack_rows, "y", x, shape, rows=plan.rows, x=x)
    y = empty(x, shape, dtype_named(str(x.dtype)))
    kernels.fill_padding(plan.rows.reshape(-1, part), y.reshape(-1, part, shape[1]), part=part)
    kernels.spread_rows(slots, x, y, choices=plan.choices)
    return y


def unpack(plan: PackPlan, y: Any, weights: Any = None, added: Any = None) -> Any:
    """Each token's packed rows of ``y``, (P, width), added up by ``weights``, (tokens, choices), and to ``added``,
    (tokens, width): (tokens, width), of the dtype of ``y``.

    The sum goes over the choices in their order, in f32: the same bits in every run. Dropped pairs add nothing.
    """
    _require_plan(plan)
    _require("y", y, (plan.capacity, None))
    for name, given, shape in (
        ("weights", weights, (plan.tokens, plan.choices)),
        ("added", added, (plan.tokens, y.shape[1])),
    ):
        if given is not None:
            _require(name, given, shape)
    shape, tensors = (plan.tokens, y.shape[1]), {"slots": plan.slots, "y": y, "weights": weights, "added": added}
    return _called(kernels.unpack_rows, "out", y, shape, **tensors, choices=plan.choices)


def _called(kernel: Any, result: str, like: Any, shape: tuple[int, int], **given: Any) -> Any:
    """The ``result`` of a kernel, of the dtype of ``like``: allocated here, where a call that leaves it out takes
    longer, and of integers the dtype of the plan's, or of the weights'."""
    made = empty(like, shape, dtype_named(str(like.dtype)))
    kernel(**given, **{result: made})
    return made


def _require_plan(plan: object) -> None:
    if not isinstance(plan, PackPlan):
        fail("JIT012", found=type_shown(plan), required="a plan of tw.build_pack_plan")


def _require(name: str, value: Any, shape: tuple[int | None, ...]) -> None:
    found = tuple(getattr(value, "shape", ()))
    if len(found) != len(shape) or any(w is not None and w != f for w, f in zip(shape, found, strict=True)):
        required = ", ".join("any" if w is None else str(w) for w in shape)
        fail("JIT012", found=f"{name} of {found}", required=f"({required}), as the plan has it")

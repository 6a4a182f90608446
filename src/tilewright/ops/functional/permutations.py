"""Rows to their packed places by expert, and back in a weighted sum, by the plan and the kernels of ``ops.packing``."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import COMPUTED, INDICES, misfit, require_options, require_tensors, rows
from tilewright.ops.functional.dispatched import Composition
from tilewright.ops.packing import kernels, moving
from tilewright.ops.packing.plan import PackPlan, build_pack_plan, plan_by_kernels
from tilewright.ops.packing.policy import KEEP_ALL, MAX_BUCKETS, PackPolicy
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op

_UNLIMITED = -1


def _policy(align: int, capacity: int) -> PackPolicy:
    return PackPolicy(align, None if capacity == _UNLIMITED else capacity)


# -- the plan ---------------------------------------------------------------------------------------------------------
def _plan(ids: Any, buckets: int, align: int, capacity: int) -> tuple[Any, ...]:
    build = plan_by_kernels if is_simulated() else build_pack_plan
    plan = build(ids.contiguous(), buckets, _policy(align, capacity))
    return plan.slots, plan.rows, plan.pairs, plan.blocks, plan.offsets, plan.kept


def _plan_fake(ids: Any, buckets: int, align: int, capacity: int) -> tuple[Any, ...]:
    blocks = _policy(align, capacity).block_count(ids.numel(), buckets)
    shapes = (ids.shape, (blocks * align,), (blocks * align,), (blocks,), (buckets + 1,), (buckets,))
    return tuple(ids.new_empty(shape, dtype=torch.int32) for shape in shapes)


# -- rows there and back ----------------------------------------------------------------------------------------------
def _moved_by_kernels(x: Any) -> bool:
    return (x.is_cuda or is_simulated()) and x.dtype in COMPUTED and x.numel() > 0


def _held(slots: Any, own: Any, pairs: Any) -> PackPlan:
    """As much of a plan as moving rows takes."""
    return PackPlan(KEEP_ALL, slots, own, pairs, own[:0], own[:0], own[:0])


def _pack(x: Any, slots: Any, own: Any, pairs: Any) -> Any:
    if _moved_by_kernels(x) and own.numel():
        return moving.pack(_held(slots, own, pairs), x.contiguous())
    if not x.shape[0]:
        return x.new_zeros((own.shape[0], x.shape[1]))
    if x.dtype.is_floating_point and x.element_size() == 1:  # which PyTorch does not fill
        return _pack(x.view(torch.uint8), slots, own, pairs).view(x.dtype)
    return x[own.clamp(min=0).long()].masked_fill_((own < 0)[:, None], 0)


def _pack_fake(x: Any, slots: Any, own: Any, pairs: Any) -> Any:
    return x.new_empty((own.shape[0], x.shape[1]))


def _pack_save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[1:])


def _pack_gradient(ctx: Any, dy: Any) -> Any:
    return _unpacks(dy, *ctx.saved_tensors, None), None, None, None


def _unpack(y: Any, slots: Any, own: Any, pairs: Any, weights: Any) -> Any:
    if _moved_by_kernels(y) and slots.numel():
        if weights is not None:
            weights = (weights if weights.dtype in COMPUTED else weights.float()).contiguous()
        return moving.unpack(_held(slots, own, pairs), y.contiguous(), weights)
    wide = torch.float64 if y.dtype == torch.float64 else torch.float32
    total = y.new_zeros((slots.shape[0], y.shape[1]), dtype=wide)
    for j in range(slots.shape[1] if y.shape[0] else 0):
        row = y[slots[:, j].clamp(min=0).long()].to(wide).masked_fill_((slots[:, j] < 0)[:, None], 0)
        total += row if weights is None else row * weights[:, j, None].to(wide)
    return total.to(y.dtype)


def _unpack_fake(y: Any, slots: Any, own: Any, pairs: Any, weights: Any) -> Any:
    return y.new_empty((slots.shape[0], y.shape[1]))


def _unpack_save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.weighed = inputs[4] is not None
    ctx.save_for_backward(*inputs) if ctx.weighed else ctx.save_for_backward(*inputs[1:4])


def _unpack_gradient(ctx: Any, dout: Any) -> Any:
    """A packed row has the gradient of its token, times its weight; a weight that of both rows' product."""
    if not ctx.weighed:
        return _packs(dout, *ctx.saved_tensors), None, None, None, None
    y, slots, own, pairs, weights = ctx.saved_tensors
    if not torch.is_grad_enabled() and _moved_by_kernels(y) and weights.dtype in COMPUTED and dout.numel():
        dy, of_row = _row_gradients(own, pairs, dout.contiguous(), y.contiguous(), weights.reshape(-1))
        return dy, None, None, None, torch.where(slots >= 0, of_row[slots.clamp(min=0).long()], 0.0).to(weights.dtype)
    packed = _packs(dout, slots, own, pairs)  # whose own gradient may be asked for
    dy = dweights = None
    if ctx.needs_input_grad[0]:
        flat = weights.reshape(-1)
        of_row = flat[pairs.clamp(min=0).long()] if flat.numel() else flat.new_zeros(pairs.shape)
        dy = (packed * of_row[:, None]).to(y.dtype)  # rows without a pair are 0 in ``packed``
    if ctx.needs_input_grad[4]:
        of_row = (packed.to(weights.dtype) * y.to(weights.dtype)).sum(1)
        found = of_row[slots.clamp(min=0).long()] if of_row.numel() else weights * 0
        dweights = torch.where(slots >= 0, found, 0.0)
    return dy, None, None, None, dweights


def _row_gradients_by_pytorch(own: Any, pairs: Any, dout: Any, y: Any, weights: Any, bp: Any, bd: Any) -> Any:
    packed = dout[own.clamp(min=0).long()].float().masked_fill_((own < 0)[:, None], 0)
    return (packed * weights[pairs.clamp(min=0).long()].float()[:, None]).to(y.dtype), (packed * y.float()).sum(1)


_row_gradients = op(
    name="tilewright::unpack_gradient",
    outputs=("dy", "dweight"),
    dtypes={"dy": "y", "dweight": "f32"},
    fallback=_row_gradients_by_pytorch,
)(kernels.unpack_gradient)


_plans = Composition(
    "pack_plan(Tensor ids, int buckets, int align, int capacity) -> (" + ", ".join(["Tensor"] * 6) + ")",
    _plan,
    _plan_fake,
)
_packs = Composition(
    "pack_rows(Tensor x, Tensor slots, Tensor rows, Tensor pairs) -> Tensor",
    _pack,
    _pack_fake,
    _pack_gradient,
    _pack_save,
)
_unpacks = Composition(
    "unpack_rows(Tensor y, Tensor slots, Tensor rows, Tensor pairs, Tensor? weights) -> Tensor",
    _unpack,
    _unpack_fake,
    _unpack_gradient,
    _unpack_save,
)


# -- what users call --------------------------------------------------------------------------------------------------
def permute(
    x: Tensor,
    ids: Tensor,
    experts: int,
    *,
    align: int = 1,
    capacity: int | None = None,
    expert_map: Tensor | None = None,
) -> tuple[Tensor, PackPlan]:
    """(the rows of ``x`` packed by expert, the plan): ``x`` of (..., width), ``ids`` of (..., k), int32 or int64;
    packed rows of (P, width), zeros where a row is padding.

    Each expert's rows begin at a multiple of ``align``, in the order of their tokens; an expert takes its first
    ``capacity`` rows, all if None. An id that is no expert, -1 say, has no row. ``expert_map`` of all experts of a
    model names those here, -1 for the others: ``ids`` are looked up in it first, ``experts`` counts those here.

    The plan (``tw.build_pack_plan``) has ``kept``, the rows of each expert, ``offsets``, where they begin, and
    ``blocks``, the expert of each ``align`` rows. P is known from the shapes, and nobody waits. JIT010 for arguments
    that do not fit.
    """
    require_tensors("permute", (x, ids), (expert_map,))
    require_options("permute", experts=experts, align=align, capacity=capacity)
    shapes = tuple(x.shape), tuple(ids.shape)
    fits = x.dim() > 1 and ids.dim() == x.dim() and shapes[0][:-1] == shapes[1][:-1] and shapes[1][-1] > 0
    if not fits or ids.dtype not in INDICES or not 1 <= experts <= MAX_BUCKETS:
        found = f"x, ids of {shapes[0]}, {shapes[1]} {ids.dtype}, {experts} experts"
        required = f"(..., width), (..., k) of int32 or int64, 1 to {MAX_BUCKETS} experts"
        misfit("permute", found, required)
    _policy(align, _UNLIMITED if capacity is None else capacity)  # refuses
    chosen = ids.reshape(-1, ids.shape[-1])
    if expert_map is not None:
        chosen = _mapped(chosen, expert_map)
    limit = _UNLIMITED if capacity is None else capacity
    arrays = _plans(chosen, experts, align, limit)
    plan = PackPlan(PackPolicy(align, capacity), *arrays)
    return _packs(rows(x), plan.slots, plan.rows, plan.pairs), plan


def _mapped(ids: Any, expert_map: Any) -> Any:
    """Ids of the experts here; what is not in the map is none."""
    if expert_map.dim() != 1 or expert_map.dtype not in INDICES or not len(expert_map):
        found = f"permute: expert_map of {tuple(expert_map.shape)}, {expert_map.dtype}"
        misfit("permute", found, "int32 or int64 of (experts of the model,)")
    known = (ids >= 0) & (ids < len(expert_map))
    return torch.where(known, expert_map[ids.clamp(0, len(expert_map) - 1).long()], -1)


def unpermute(y: Tensor, plan: PackPlan, weights: Tensor | None = None) -> Tensor:
    """Each token's packed rows of ``y``, (P, width), added up, by ``weights`` of (..., k) where they are given:
    (tokens, width) of the dtype of ``y``.

    The sum goes over the choices in their order, in f32: the same bits in every run. A choice without a row adds
    nothing. Gradients of ``y`` and of ``weights``. JIT010 for arguments that do not fit.
    """
    require_tensors("unpermute", (y,), (weights,))
    if not isinstance(plan, PackPlan):  # pyright: ignore[reportUnnecessaryIsInstance]
        misfit("unpermute", f"{type(plan).__name__} for the plan", "what permute returned beside the packed rows")
    fits = y.dim() == 2 and y.shape[0] == plan.capacity
    if weights is not None:
        fits &= weights.dim() > 0 and weights.shape[-1] == plan.choices and weights.is_floating_point()
        fits &= weights.numel() == plan.tokens * plan.choices
    if not fits:
        given = tuple(y.shape), None if weights is None else (tuple(weights.shape), weights.dtype)
        required = f"({plan.capacity}, width) and floats of ({plan.tokens}, {plan.choices}), as the plan has them"
        misfit("unpermute", f"y, weights of {given[0]}, {given[1]}", required)
    flat = None if weights is None else weights.reshape(-1, plan.choices)
    return _unpacks(y, plan.slots, plan.rows, plan.pairs, flat)

"""A mixture of experts: rows packed by expert, two products over packed rows, and a weighted sum by token."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.diag import fail, shown
from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import (
    COMPUTED,
    LOW,
    described,
    is_pair,
    misfit,
    require_floats,
    require_options,
    require_tensors,
    rows,
    to_low_precision,
)
from tilewright.ops.functional.dispatched import Composition
from tilewright.ops.functional.gated import swiglu
from tilewright.ops.functional.grouped import grouped_matmul
from tilewright.ops.functional.linears import linear
from tilewright.ops.packing.moving import pack, unpack
from tilewright.ops.packing.plan import PackPlan, plan_by_kernels, with_own_handles
from tilewright.ops.packing.policy import MAX_BUCKETS, PackPolicy
from tilewright.ops.pytorch import Tensor, is_plain, torch, wants_gradient

_F = torch.nn.functional
EIGHT_BITS = (torch.float8_e4m3fn,)
_IDS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
_TILE_ROWS = 128
"""Rows of a block where experts have many; half of it where they have few."""
_FEW_ROWS = 16
"""Rows of a block, tiles of swapped operands, where experts have a quarter of them on average (8 of 128 experts, 2048
x 768, H200: both products of 64 tokens 173 us, in blocks of 64 rows 185; of 128 tokens 212 and 210)."""
_MOST_GATHERED = 8192
"""Inner width up to which the first product gathers its rows instead of reading packed ones. Gathering takes time by
its operations, packing by its bytes: 19 us against 126 (65,536 rows, 2048 x 768, H200), 79 against 69 (16,384, 4096 x
14336)."""
_ONE_TILE = {"bm": 64, "bn": 64}
"""Of products by the router where a token's bits may not depend on how many tokens there are."""
_MOST_ROUTED = 256
"""Experts of which one program holds the logits."""
_UNLIMITED = -1
_MOST_ROUNDED = 32768
"""Elements of a row of which a kernel holds all while it rounds them to 8 bits."""
_EIGHT_BIT_STEP = 128
"""Elements of a step of 8-bit products: as many bytes as 64 of 16 bits."""


# -- routing ----------------------------------------------------------------------------------------------------------
def _route(x: Any, router: Any, k: int, normalise: bool, batch_invariant: bool) -> Any:
    weights = torch.empty(x.shape[0], k, dtype=torch.float32, device=x.device)
    experts = torch.empty(x.shape[0], k, dtype=torch.int32, device=x.device)
    most = max(16, 1 << (router.shape[0] - 1).bit_length())
    logits = torch.empty(x.shape[0], router.shape[0], dtype=torch.float32, device=x.device)
    kernels.matmul(x, router, logits, **(_ONE_TILE if batch_invariant else {}))
    kernels.choose(logits, weights, experts, k=k, normalise=normalise, most=most)
    return weights, experts


def _route_fake(x: Any, router: Any, k: int, normalise: bool, batch_invariant: bool) -> Any:
    shape = (x.shape[0], k)
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.int32)


def _route_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, router, _, ctx.normalise, ctx.batch_invariant = inputs
    ctx.save_for_backward(x, router, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _route_gradient(ctx: Any, dweights: Any, _: Any) -> Any:
    """By PyTorch's products, or ours of one tile. Of weights that add up to 1 the softmax over the chosen ones is all
    that counts."""
    product = _product_of_one_tile if ctx.batch_invariant else _F.linear
    x, router, weights, experts = ctx.saved_tensors
    ids, mean = experts.long(), (dweights * weights).sum(1, keepdim=True)
    if ctx.normalise:
        dlogits = torch.zeros(x.shape[0], router.shape[0], dtype=torch.float32, device=x.device)
        dlogits.scatter_(1, ids, weights * (dweights - mean))
    else:
        p = torch.softmax(product(x, router).float(), 1)
        dlogits = (-p * mean).scatter_add(1, ids, weights * dweights)
    dlogits = dlogits.to(x.dtype)
    return product(dlogits, router.t()), dlogits.t() @ x, None, None, None


def _product_of_one_tile(a: Any, b: Any) -> Any:
    c = a.new_empty(a.shape[0], b.shape[0])
    kernels.matmul(a, b, c, **_ONE_TILE)
    return c


# -- experts ----------------------------------------------------------------------------------------------------------
def _rows_of_block(pairs: int, buckets: int, *, keep: bool, batch_invariant: bool) -> int:
    """Whole tiles of one expert: of half the rows where padding would outweigh what is multiplied, of few where the
    weights' bytes do. Gradients of weights add up blocks of half the rows."""
    if batch_invariant or pairs * 4 >= 3 * _TILE_ROWS * buckets:
        return _TILE_ROWS
    return _FEW_ROWS if not keep and pairs * 4 <= _FEW_ROWS * buckets else _TILE_ROWS // 2


def _policy(align: int, capacity: int) -> PackPolicy:
    return PackPolicy(align, None if capacity == _UNLIMITED else capacity)


def _experts(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, align: int, capacity: int, keep: bool) -> Any:
    """The result, and what the gradients take: the plan, packed rows, and both halves of the first product."""
    plan = with_own_handles(plan_by_kernels(ids, down.shape[0], _policy(align, capacity)))
    bm, inner, gathers = plan.policy.align, down.shape[2], not keep and down.shape[2] <= _MOST_GATHERED
    tokens, h = x if gathers else pack(plan, x), x.new_empty(plan.capacity, inner)
    kept = (tokens, x.new_empty(plan.capacity, 2, inner)) if keep else (x.new_empty(0), x.new_empty(0))
    rows, halves = plan.rows if gathers else None, kept[1] if keep else None
    kernels.gated_experts(plan.blocks, rows, tokens, _in_halves(gate_up), halves, h, bm=bm)
    out = x.new_empty(plan.capacity, down.shape[1])
    kernels.down_experts(plan.blocks, h, down, out, bm=bm, bn=256 if bm >= _TILE_ROWS // 2 else 128)
    y = unpack(plan, out, weights)
    return y, plan.slots, plan.rows, plan.pairs, plan.blocks, plan.offsets, plan.kept, *kept


def _experts_fake(
    x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, align: int, capacity: int, keep: bool
) -> Any:
    buckets = down.shape[0]
    blocks = _policy(align, capacity).block_count(ids.numel(), buckets)
    packed = blocks * align
    integers = (ids.shape, (packed,), (packed,), (blocks,), (buckets + 1,), (buckets,))
    kept = ((packed, x.shape[1]), (packed, 2, down.shape[2])) if keep else ((0,), (0,))
    made = (x.new_empty(shape, dtype=torch.int32) for shape in integers)
    return x.new_empty(x.shape), *made, *map(x.new_empty, kept)


def _experts_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, _, weights, gate_up, down, ctx.align, ctx.capacity, _ = inputs
    ctx.save_for_backward(weights, gate_up, down, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _experts_gradient(ctx: Any, dy: Any, *_: Any) -> Any:
    dx, dweights, dgate_up, ddown = _experts_backward(dy, *ctx.saved_tensors, ctx.align, ctx.capacity)
    return dx, None, dweights, dgate_up, ddown, None, None, None


def _backward(
    dy: Any, weights: Any, gate_up: Any, down: Any, slots: Any, rows: Any, pairs: Any, blocks: Any, offsets: Any,
    kept: Any, packed: Any, halves: Any, align: int, capacity: int,
) -> Any:  # fmt: skip
    """Of the sum over choices each row has the gradient of its token; its weight is applied behind the product."""
    plan = with_own_handles(PackPlan(_policy(align, capacity), slots, rows, pairs, blocks, offsets, kept))
    dpacked = pack(plan, dy)
    dh = dpacked.new_empty(dpacked.shape[0], down.shape[2])
    kernels.down_experts(blocks, dpacked, down.transpose(1, 2), dh, bm=align)
    dhalves, h, by_row = torch.empty_like(halves), torch.empty_like(dh), weights.new_empty(plan.capacity)
    kernels.gated_experts_backward(pairs, weights.reshape(-1), halves, dh, dhalves, h, by_row)
    flat = dhalves.view(plan.capacity, gate_up.shape[1])
    dpairs = flat.new_empty(plan.capacity, gate_up.shape[2])
    kernels.down_experts(blocks, flat, gate_up.transpose(1, 2), dpairs, bm=align)
    dx = unpack(plan, dpairs)
    dgate_up, ddown = gate_up.new_empty(gate_up.shape), down.new_empty(down.shape)
    for y, x, dw in ((flat, packed, dgate_up), (dpacked, h, ddown)):
        kernels.expert_weight_gradient(offsets, _in_blocks(y), _in_blocks(x), dw)
    dweights = torch.where(slots >= 0, by_row[slots.clamp(min=0).long()], 0.0) if by_row.numel() else weights * 0
    return dx, dweights, dgate_up, ddown


def _backward_fake(dy: Any, weights: Any, gate_up: Any, down: Any, *_: Any) -> Any:
    return tuple(t.new_empty(t.shape) for t in (dy, weights, gate_up, down))


# -- experts of 8 bits ------------------------------------------------------------------------------------------------
def _eight_bit_experts(
    x: Any, ids: Any, weights: Any, gate_up: Any, gate_up_scale: Any, down: Any, down_scale: Any, align: int,
    capacity: int,
) -> Any:  # fmt: skip
    """Both products of 8-bit floats: rows are divided by their greatest number, of x before they are gathered or as
    they are packed, of the first product's result behind it."""
    plan = plan_by_kernels(ids, down.shape[0], _policy(align, capacity))
    bm, inner, many = plan.policy.align, down.shape[2], plan.capacity
    h, out = x.new_empty(many, inner), x.new_empty(many, x.shape[1])
    both, by_column, tiles = _in_halves(gate_up), _in_halves(gate_up_scale), {"bm": bm, "bk": _EIGHT_BIT_STEP}
    if inner > _MOST_GATHERED:
        (tokens, by_row), rows = _in_eight_bits(x, gate_up.dtype, plan), None
    else:
        (tokens, by_token), rows = _in_eight_bits(x, gate_up.dtype), plan.rows
        by_row = kernels.scales_of_rows(rows, by_token)
    kernels.gated_experts(plan.blocks, rows, tokens, both, None, h, by_row, by_column, **tiles)
    inner_rows, by_inner_row = _in_eight_bits(h, down.dtype)
    kernels.down_experts(plan.blocks, inner_rows, down, out, by_inner_row, down_scale, **tiles)
    return unpack(plan, out, weights)


def _in_eight_bits(x: Any, dtype: Any, plan: PackPlan | None = None) -> tuple[Any, Any]:
    """Rows of ``x``, packed where a plan says so, divided by the scales beside them."""
    many = len(x) if plan is None else plan.capacity
    y, scale = x.new_empty((many, x.shape[1]), dtype=dtype), x.new_empty(many, dtype=torch.float32)
    if plan is None:
        kernels.quantize_rows(x, y, scale)
    else:
        kernels.pack_in_eight_bits(plan.rows, x, y, scale)
    return y, scale


def _eight_bit_fake(x: Any, *_: Any) -> Any:
    return x.new_empty(x.shape)


def _in_halves(gate_up: Any) -> Any:
    return gate_up.unflatten(1, (2, gate_up.shape[1] // 2))


def _in_blocks(x: Any) -> Any:
    return x.view(-1, _TILE_ROWS // 2, x.shape[1])


_router = Composition(
    "route(Tensor x, Tensor router, int k, bool normalise, bool batch_invariant) -> (Tensor, Tensor)",
    _route, _route_fake, _route_gradient, _route_save,
)  # fmt: skip
_packed_experts = Composition(
    "experts(Tensor x, Tensor ids, Tensor weights, Tensor gate_up, Tensor down, int align, int capacity, bool keep)"
    " -> (" + ", ".join(["Tensor"] * 9) + ")",
    _experts, _experts_fake, _experts_gradient, _experts_save,
)  # fmt: skip
_experts_backward = Composition(
    "experts_backward(Tensor dy, Tensor weights, Tensor gate_up, Tensor down, Tensor slots, Tensor rows, "
    "Tensor pairs, Tensor blocks, Tensor offsets, Tensor kept, Tensor packed, Tensor halves, int align, int capacity)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    _backward_fake,
)

_experts_of_eight_bits = Composition(
    "experts_of_eight_bits(Tensor x, Tensor ids, Tensor weights, Tensor gate_up, Tensor gate_up_scale, Tensor down, "
    "Tensor down_scale, int align, int capacity) -> Tensor",
    _eight_bit_experts,
    _eight_bit_fake,
)


# -- what users call --------------------------------------------------------------------------------------------------
def experts(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    *,
    gate_up_scale: Tensor | None = None,
    down_scale: Tensor | None = None,
    capacity: int | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """The sum over a token's choices of weights * (silu(x gate[e]^T) * (x up[e]^T)) down[e]^T, e its id of the choice.

    ``x`` of (..., width), ``ids`` (integers) and ``weights`` of (..., k); ``gate_up`` of (experts, 2 inner, width),
    gate first, ``down`` of (experts, width, inner). An id that is no expert adds nothing, nor do, beyond ``capacity``
    rows of an expert, the last ones. bfloat16 and float16 run on kernels that nobody waits for; other dtypes, and the
    CPU, on PyTorch's products. The same bits in every run, forward and backward.

    Weights of float8_e4m3fn hold those divided by ``gate_up_scale`` of (experts, 2 inner) and ``down_scale`` of
    (experts, width), float32: one scale for each row. Rows of x and of the first product's result are rounded to 8
    bits, too, each divided by its greatest number. No gradient (JIT011).

    ``batch_invariant``: a token's result, and its gradients, have the same bits whatever other tokens there are, and
    however many: one size of blocks for all, where else the tokens choose among three. JIT010 with a capacity, which
    others use up, and where PyTorch's products would run.
    """
    require_tensors("experts", (x, ids, weights, gate_up, down), (gate_up_scale, down_scale))
    require_options("experts", capacity=capacity, batch_invariant=batch_invariant)
    if gate_up.dtype in EIGHT_BITS or gate_up_scale is not None or down_scale is not None:
        scales = gate_up_scale, down_scale
        return _of_eight_bits(x, ids, weights, gate_up, down, scales, capacity, batch_invariant)
    x, gate_up, down = to_low_precision(x, gate_up, down)
    _check(x, ids, weights, gate_up, down, capacity)
    flat, chosen = rows(x), ids.reshape(-1, ids.shape[-1])
    scaled, by_kernels = weights.reshape(-1, ids.shape[-1]).float(), is_of_kernels(flat, gate_up, down)
    if batch_invariant:
        _require_invariance("experts", x, by_kernels, capacity)
    if not by_kernels:
        return _by_pytorch(flat, chosen, scaled, gate_up, down, capacity).view(x.shape)
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in (flat, scaled, gate_up, down))
    align = _rows_of_block(ids.numel(), down.shape[0], keep=keep, batch_invariant=batch_invariant)
    limit = _UNLIMITED if capacity is None else capacity
    small = chosen if chosen.dtype in (torch.int32, torch.int64) else chosen.long()
    return _packed_experts(flat, small, scaled, gate_up, down, align, limit, keep)[0].view(x.shape)


def _of_eight_bits(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, scales: tuple[Any, Any],
    capacity: int | None, batch_invariant: bool,
) -> Tensor:  # fmt: skip
    by_inner, by_width = scales
    x = to_low_precision(x)[0]
    _check(x, ids, weights, gate_up, down, capacity)
    shapes = [None if s is None else (tuple(s.shape), s.dtype) for s in scales]
    eight = gate_up.dtype == down.dtype and gate_up.dtype in EIGHT_BITS and x.dtype in COMPUTED
    if shapes != [(tuple(w.shape[:2]), torch.float32) for w in (gate_up, down)] or not eight:
        found = f"x, gate_up, down of {x.dtype}, {gate_up.dtype}, {down.dtype}, scales of {shown(shapes)}"
        required = "gate_up and down of float8_e4m3fn and one float32 scale for each of their rows, or no scales"
        misfit("experts", found, required)
    if wants_gradient((x, weights, by_inner, by_width)):
        fail("JIT011", found="a gradient of experts of 8 bits", required="tensors that want none")
    flat, chosen, scaled = rows(x), ids.reshape(-1, ids.shape[-1]), weights.reshape(-1, ids.shape[-1]).float()
    by_kernels = is_of_kernels(flat) and max(flat.shape[1], down.shape[2]) <= _MOST_ROUNDED
    if batch_invariant:
        _require_invariance("experts", x, by_kernels, capacity)
    if not by_kernels:
        first, last = (w.to(x.dtype) * s.to(x.dtype)[..., None] for w, s in ((gate_up, by_inner), (down, by_width)))
        return _by_pytorch(flat, chosen, scaled, first, last, capacity).view(x.shape)
    align = _rows_of_block(ids.numel(), down.shape[0], keep=True, batch_invariant=batch_invariant)
    limit = _UNLIMITED if capacity is None else capacity
    small = chosen if chosen.dtype in (torch.int32, torch.int64) else chosen.long()
    found = _experts_of_eight_bits(flat, small, scaled, gate_up, by_inner, down, by_width, align, limit)
    return found.view(x.shape)


def moe(
    x: Tensor,
    router: Tensor,
    gate_up: Tensor,
    down: Tensor,
    *,
    k: int,
    normalise: bool = True,
    scores: str = "softmax",
    bias: Tensor | None = None,
    groups: tuple[int, int] | None = None,
    factor: float = 1.0,
    shared: tuple[Tensor, Tensor] | None = None,
    gate_up_scale: Tensor | None = None,
    down_scale: Tensor | None = None,
    capacity: int | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """A mixture of experts: the k of the highest scores of x router^T, weighed by their scores, by ``experts``.

    ``router`` of (experts, width). ``scores`` is softmax or sigmoid; ``normalise`` lets the weights add up to 1.
    ``bias``, one number an expert, takes part in the choice, not in the weight. With ``groups=(n, m)`` the experts are
    n groups of neighbours, of which a token has experts of m: those of the greatest scores, or with a bias of the
    greatest sums of two. ``factor`` multiplies the weights. ``shared`` are gate_up and down of an
    expert that every token has. A token whose scores are NaN has k different experts, and the result NaN. The scales
    are those of 8-bit weights, as ``experts`` takes them. ``batch_invariant`` is that of ``experts``: one tile for the
    router's product, too.
    """
    pairs = groups is None or is_pair(groups, int), shared is None or is_pair(shared, torch.Tensor)
    if not all(pairs):
        misfit(
            "moe", f"groups={shown(groups)}, shared of {type(shared).__name__}", "None, or two integers, two tensors"
        )
    require_tensors("moe", (x, router, gate_up, down), (bias, gate_up_scale, down_scale, *(shared or ())))
    numbers = {"k": k, "factor": factor, "capacity": capacity}
    require_options("moe", **numbers, normalise=normalise, scores=scores, batch_invariant=batch_invariant)
    x, router = to_low_precision(x, router)
    fits = x.dim() > 0 and router.dim() == 2 and x.shape[-1] == router.shape[1] and router.shape[:1] == down.shape[:1]
    require_floats("moe", x, router, bias)
    if not fits or x.dtype != router.dtype:
        required = f"(..., width) and (experts, width) of one dtype, down of {tuple(down.shape)}"
        misfit("moe", f"x, router of {described(x, router)}", required)
    _check_routing(router.shape[0], k, scores, bias, groups)
    flat = rows(x)
    plain = bias is None and groups is None and scores == "softmax" and router.shape[0] <= _MOST_ROUTED
    by_kernels = is_of_kernels(flat, router)
    if batch_invariant:
        _require_invariance("moe", x, by_kernels, capacity)
    if plain and by_kernels:
        weights, ids = _router(flat, router, k, normalise, batch_invariant)
    else:
        logits = _logits_of_one_tile(flat, router) if batch_invariant else flat @ router.t()
        weights, ids = _routed_by_pytorch(logits.float(), k, normalise, scores, bias, groups)
    weights = weights if factor == 1 else weights * factor
    scales = {"gate_up_scale": gate_up_scale, "down_scale": down_scale}
    y = experts(flat, ids, weights, gate_up, down, **scales, capacity=capacity, batch_invariant=batch_invariant)
    if shared is not None and batch_invariant:
        every = ids.new_zeros(len(flat), 1), weights.new_ones(len(flat), 1)
        y = y + experts(flat, *every, *(w[None] for w in shared), batch_invariant=True)
    elif shared is not None:
        both, last = shared
        y = linear(swiglu(*linear(flat, both).chunk(2, 1)), last, residual=y)
    return y.view(x.shape)


def _logits_of_one_tile(x: Any, router: Any) -> Any:
    """By a product of one group, which has gradients."""
    return grouped_matmul(x, router[None], x.new_full((1,), len(x), dtype=torch.int32), batch_invariant=True)


def _require_invariance(name: str, x: Any, by_kernels: bool, capacity: int | None) -> None:
    if not by_kernels or capacity is not None:
        misfit(
            name,
            f"batch_invariant=True, x of {x.dtype} on {x.device}, capacity={capacity}",
            "bfloat16 or float16 on a GPU, and no capacity: rows of one token would displace another's",
        )


def _routed_by_pytorch(
    logits: Any, k: int, normalise: bool, scores: str, bias: Any, groups: tuple[int, int] | None
) -> tuple[Any, Any]:
    score = torch.softmax(logits, 1) if scores == "softmax" else torch.sigmoid(logits)
    choice = score if bias is None else score + bias.float()
    ids = (choice if groups is None else _of_best_groups(choice, *groups, 1 if bias is None else 2)).topk(k, 1).indices
    weights = score.gather(1, ids)
    return weights / weights.sum(1, keepdim=True) if normalise else weights, ids


def _of_best_groups(choice: Any, count: int, chosen: int, best: int) -> Any:
    """Scores of the experts of the ``chosen`` groups with the greatest sums of their ``best`` experts; others -inf."""
    by_group = choice.unflatten(1, (count, -1))
    sums = by_group.topk(min(best, by_group.shape[2]), 2).values.sum(2)
    left_out = torch.ones_like(sums, dtype=torch.bool).scatter(1, sums.topk(chosen, 1).indices, False)
    return by_group.masked_fill(left_out[..., None], -torch.inf).flatten(1)


def _check_routing(experts: int, k: int, scores: str, bias: Any, groups: tuple[int, int] | None) -> None:
    count, chosen = (1, 1) if groups is None else groups
    fits = 1 <= chosen <= count and experts % count == 0 and (bias is None or tuple(bias.shape) == (experts,))
    most = min(experts // count * chosen, 64) if fits else 64
    if scores not in ("softmax", "sigmoid") or not fits or not 1 <= k <= most:
        shape = None if bias is None else tuple(bias.shape)
        misfit(
            "moe",
            f"{experts} experts, scores={shown(scores)}, k={k}, groups={shown(groups)}, bias of {shape}",
            f"softmax or sigmoid, k from 1 to {most}, groups=(n, m): n divides the experts, m is at most n; a "
            f"bias of ({experts},)",
        )


def _by_pytorch(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, capacity: int | None) -> Any:
    """An expert at a time, over the rows that chose it, in the order of their pairs; over all rows where nobody can
    tell how many chose it: of fake tensors, those of ``meta``, and those that ``vmap`` batches."""
    y = torch.zeros(x.shape, dtype=torch.float32 if x.dtype in LOW else x.dtype, device=x.device)
    counted = torch.compiler.is_compiling() or is_plain((x, ids, weights, gate_up, down))
    for e in range(down.shape[0]):
        chosen = ids == e
        if counted:
            token, choice = chosen.nonzero(as_tuple=True)
            token, choice = token[:capacity], choice[:capacity]
            found, share = _expert(x[token], gate_up[e], down[e]), weights[token, choice, None]
            y = y.index_add(0, token, found.to(y.dtype) * share.to(y.dtype))
            continue
        if capacity is not None:
            chosen = chosen & (chosen.flatten().cumsum(0) <= capacity).view(chosen.shape)
        share = torch.where(chosen, weights, 0.0).sum(1, keepdim=True)
        found = _expert(x, gate_up[e], down[e]).to(y.dtype) * share.to(y.dtype)
        y = y + torch.where(chosen.any(1, keepdim=True), found, 0.0)
    return y.to(x.dtype)


def _expert(x: Any, gate_up: Any, down: Any) -> Any:
    gate, up = (x @ gate_up.t()).chunk(2, 1)
    return (_F.silu(gate) * up) @ down.t()


def is_of_kernels(*tensors: Any) -> bool:
    """Kernels run on tensors like these: of one 16-bit dtype, on a GPU or in the simulator; of ``meta`` their shapes
    are known."""
    first = tensors[0]
    return (
        first.dtype in LOW
        and all(t.dtype == first.dtype for t in tensors)
        and (first.is_cuda or first.is_meta or is_simulated())
        and first.shape[1] > 0
    )


def _check(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any, capacity: int | None) -> None:
    shapes = [tuple(t.shape) for t in (x, ids, weights, gate_up, down)]
    many, inner = (down.shape[0], down.shape[2]) if down.dim() == 3 else (0, 0)
    width = x.shape[-1] if x.dim() else 0
    fits = shapes[3:] == [(many, 2 * inner, width), (many, width, inner)]
    fits &= shapes[1] == shapes[2] and len(shapes[1]) > 1 and shapes[1][:-1] == shapes[0][:-1]
    fits &= ids.dtype in _IDS and weights.dtype.is_floating_point and x.dtype.is_floating_point
    fits &= gate_up.dtype == down.dtype and (gate_up.dtype == x.dtype != EIGHT_BITS[0] or gate_up.dtype in EIGHT_BITS)
    if not fits or not 1 <= many <= MAX_BUCKETS or (capacity or 0) < 0:
        misfit(
            "experts",
            f"x, ids, weights, gate_up, down of {described(x, ids, weights, gate_up, down)}, capacity={capacity}",
            "(..., width), integers and floats of (..., k), (experts, 2 inner, width), (experts, width, "
            f"inner), x and both of these of one dtype, at most {MAX_BUCKETS} experts, a capacity of at least 0",
        )

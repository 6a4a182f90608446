"""Attention over packed sequences, whose lengths are known to the device alone, and its gradients."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NoReturn

from tilewright.diag import shown
from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import (
    INDICES,
    LOW,
    ending,
    misfit,
    require_options,
    require_tensors,
    to_low_precision,
)
from tilewright.ops.functional.dispatched import AttentionPair, Composition
from tilewright.ops.pytorch import Tensor, is_plain, torch, wants_gradient

WIDTHS = (64, 128, 256)
"""Widths of a head that kernels are made for; others go to PyTorch."""
GRADIENT_WIDTHS = (64, 128)
"""Head widths for which gradient kernels exist: both accumulators of keys fill the registers."""


_SHORT = 96
"""Rows of a sequence, on average, up to which tiles of 64 rows are faster than those of 128."""


# -- by kernels -------------------------------------------------------------------------------------------------------
def _by_kernels(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, sinks: Any, used_q: Any, used_k: Any, scale: float, causal: bool,
    window: int | None, softcap: float | None, at_end: bool, packed: bool, y: Any, lse: Any,
) -> None:  # fmt: skip
    """Into ``y`` and ``lse``."""
    given = _options(q, k, causal, window, softcap)
    if not packed:
        given |= {"at_end": True} if at_end else {}
        attend = kernels.varlen_attention(q.shape[-1])
        attend(cu_q, cu_k, q, k, v, y, sinks, used_q, used_k, lse, scale=scale, **given)
        return
    before, behind = cu_q.new_zeros(2, len(q))  # as they are where the offsets are refused, and behind the last row
    kernels.sequence_places(cu_q, before, behind)
    attend = kernels.packed_attention(q.shape[-1])
    if len(q) <= _SHORT * (len(cu_q) - 1):
        given |= {"bq": 64}
    attend(cu_q, before, behind, q, k, v, y, sinks, lse, scale=scale, **given)


def _options(q: Any, k: Any, causal: bool, window: int | None, softcap: float | None) -> dict[str, Any]:
    """Those of a kernel's keywords that are not as they are by default."""
    given: dict[str, Any] = {"causal": True} if causal else {}
    given |= {name: value for name, value in (("window", window), ("softcap", softcap)) if value is not None}
    group = q.shape[1] // k.shape[1]
    return given | ({"group": group} if group > 1 else {})


def _gradients_by_kernels(
    do: Any, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, used_q: Any, used_k: Any, y: Any, lse: Any, scale: float,
    causal: bool, window: int | None, softcap: float | None, at_end: bool,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Those of q, k and v, in one order of sums: the same bits every time; and delta, the sums of do * y over rows."""
    width, given = q.shape[-1], _options(q, k, causal, window, softcap)
    given |= {"at_end": True} if at_end else {}
    used = used_q, used_k
    delta = torch.empty_like(lse)
    kernels.attention_delta(*(x.transpose(0, 1)[None] for x in (do, y)), delta[None], width=width)
    rows = do, q, k, v, lse, delta
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    dk, dv = (k.new_empty((k.shape[0], *q.shape[1:])) for _ in range(2))
    kernels.varlen_query_gradient(width)(cu_q, cu_k, *rows, dq, *used, scale=scale, **given)
    kernels.varlen_key_gradients(width)(cu_q, cu_k, *rows, dk, dv, *used, scale=scale, **given)
    return dq, _summed(dk, k), _summed(dv, v), delta


def _summed(grad: Any, like: Any) -> Any:
    """Of a gradient for each head of queries, the sum of those that share a head of keys."""
    if grad.shape[1] != like.shape[1]:
        grad = grad.unflatten(1, (like.shape[1], -1)).sum(2, dtype=torch.float32)
    return grad.to(like.dtype)


# -- by PyTorch -------------------------------------------------------------------------------------------------------
def _sequences(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, used_q: Any, used_k: Any, scale: float, causal: bool,
    window: int | None, softcap: float | None, at_end: bool, exact: Any,
) -> Iterator[tuple[slice, slice, Any, Any, Any]]:  # fmt: skip
    """Of a sequence at a time, after its offsets were read: its queries and keys, its keys and values for each head of
    queries, and its scores, -inf where a query does not see a key."""
    queries, keys = _bounds("cu_seqlens_q", cu_q, q, used_q, at_end), _bounds("cu_seqlens_k", cu_k, k, used_k, at_end)
    group = q.shape[1] // k.shape[1]
    for (first, last), (begin, end) in zip(queries, keys, strict=True):
        own = last - first
        t = torch.arange(begin - end, 0, device=q.device)
        s = torch.arange(-own, 0, device=q.device)[:, None]
        seen = t <= s if causal else torch.ones((own, end - begin), dtype=torch.bool, device=q.device)
        if window is not None:
            seen = seen & (t > s - window)
        held, values = (x[begin:end].to(exact).repeat_interleave(group, 1) for x in (k, v))
        x = torch.einsum("shd,thd->hst", q[first:last].to(exact), held) * scale
        if softcap is not None:
            x = softcap * torch.tanh(x / softcap)
        yield slice(first, last), slice(begin, end), held, values, x.masked_fill(~seen, -torch.inf)


def _by_pytorch(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, sinks: Any, used_q: Any, used_k: Any, scale: float, causal: bool,
    window: int | None, softcap: float | None, at_end: bool, packed: bool, y: Any, lse: Any,
) -> None:  # fmt: skip
    """Into ``y`` and ``lse``."""
    y.zero_()
    lse.zero_()
    options = scale, causal, window, softcap, at_end, lse.dtype
    for s, t, _, values, x in _sequences(q, k, v, cu_q, cu_k, used_q, used_k, *options):
        total = torch.logsumexp(x, -1) if t.stop > t.start else x.new_full(x.shape[:-1], -torch.inf)
        if sinks is not None:
            total = torch.logaddexp(total, sinks.to(lse.dtype)[:, None])
        p = torch.exp(x - total.nan_to_num(neginf=0.0)[..., None])
        y[s] = torch.einsum("hst,thd->shd", p, values)
        lse[:, s] = total


def _gradients_by_pytorch(
    do: Any, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, used_q: Any, used_k: Any, y: Any, lse: Any, scale: float,
    causal: bool, window: int | None, softcap: float | None, at_end: bool,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """As ``_gradients_by_kernels``."""
    options = scale, causal, window, softcap, at_end, lse.dtype
    exact, heads, groups = lse.dtype, q.shape[1], k.shape[1]
    delta = torch.einsum("shd,shd->hs", do.to(exact), y.to(exact))
    dq, dk, dv = (torch.zeros(x.shape, dtype=exact, device=x.device) for x in (q, k, v))
    for s, t, held, values, x in _sequences(q, k, v, cu_q, cu_k, used_q, used_k, *options):
        p = torch.exp(x - lse[:, s].nan_to_num(neginf=0.0)[..., None])
        dp = torch.einsum("shd,thd->hst", do[s].to(exact), values)
        ds = p * (dp - delta[:, s][..., None]) * scale
        if softcap is not None:
            ds = ds * (1 - (x.masked_fill(x.isinf(), 0.0) / softcap) ** 2)
        dq[s] = torch.einsum("hst,thd->shd", ds, held)
        for into, of, rows in ((dk, ds, q), (dv, p, do)):
            each = torch.einsum("hst,shd->thd", of, rows[s].to(exact))
            into[t] = each.unflatten(1, (groups, heads // groups)).sum(2)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), delta


def _bounds(name: str, offsets: Any, rows: Any, used: Any, at_end: bool) -> list[tuple[int, int]]:
    """Where the rows of sequences that are used begin and end, on the host."""
    found = [int(x) for x in offsets.tolist()]
    if found[0] != 0 or found[-1] > len(rows) or any(low > high for low, high in pairwise(found)):
        _misfit(f"{name}={shown(found)}", f"ascending integers from 0 to at most {len(rows)}, the rows")
    whole = [*pairwise(found)]
    if used is None:
        return whole
    lengths = [min(max(int(n), 0), end - begin) for n, (begin, end) in zip(used.tolist(), whole, strict=True)]
    return [(end - n, end) if at_end else (begin, begin + n) for n, (begin, end) in zip(lengths, whole, strict=True)]


# -- the operator -----------------------------------------------------------------------------------------------------
def _run_into(*given: Any) -> None:
    """Takes what the operator takes, and its results."""
    q, k, scale = given[0], given[1], given[8]
    run = _by_kernels if _is_served(q, k, scale) else _by_pytorch
    run(*given)


def _empty(q: Any, *_: Any) -> tuple[Any, Any]:
    sums = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=sums)


def _is_served(q: Any, k: Any, scale: float) -> bool:
    """By kernels, which take the greatest score before they scale."""
    where = q.is_cuda or is_simulated()
    return where and q.dtype in LOW and q.shape[-1] in WIDTHS and scale > 0 and q.numel() > 0 and k.numel() > 0


# -- its gradients ----------------------------------------------------------------------------------------------------
def _gradients(
    do: Any, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, sinks: Any, used_q: Any, used_k: Any, y: Any, lse: Any,
    scale: float, causal: bool, window: int | None, softcap: float | None, at_end: bool,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Of q, k, v and sinks; of absent sinks a tensor without elements."""
    served = _is_served(q, k, scale) and q.shape[-1] in GRADIENT_WIDTHS
    run = _gradients_by_kernels if served else _gradients_by_pytorch
    options = scale, causal, window, softcap, at_end
    *found, delta = run(do, q, k, v, cu_q, cu_k, used_q, used_k, y, lse, *options)
    if sinks is None:
        return *found, q.new_empty(0)
    rows = _rows_used(len(q), cu_q, used_q, at_end)
    weights = torch.exp(sinks.to(lse.dtype)[:, None] - lse)  # of a key without a value
    return *found, torch.where(rows, -weights * delta, 0.0).sum(1).to(sinks.dtype)


def _rows_used(count: int, cu: Any, used: Any, at_end: bool) -> Any:
    """Which of so many rows are used, on the device."""
    rows = torch.arange(count, device=cu.device)
    if used is None:
        return rows < cu[-1]
    own = torch.searchsorted(cu[1:], rows, right=True).clamp(max=len(used) - 1)
    from_end = cu[1:][own] - rows
    near = from_end if at_end else rows - cu[own] + 1
    return (from_end > 0) & (near <= used[own])


def _empty_gradients(do: Any, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, sinks: Any, *_: Any) -> Any:
    return (*(x.new_empty(x.shape) for x in (q, k, v)), q.new_empty(0) if sinks is None else torch.empty_like(sinks))


_backward = Composition(
    "varlen_attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
    "Tensor? sinks, Tensor? seqused_q, Tensor? seqused_k, Tensor o, Tensor lse, float scale, bool causal, int? window, "
    "float? softcap, bool left_padded) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _gradients,
    _empty_gradients,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.options = inputs[8:13]  # tiles of several sequences have the same gradients
    ctx.mark_non_differentiable(output[1])


def _differentiated(ctx: Any, do: Any, _: Any) -> tuple[Any, ...]:
    *rows, cu_q, cu_k, sinks, used_q, used_k, y, lse = ctx.saved_tensors
    dq, dk, dv, dsinks = _backward(do, *rows, cu_q, cu_k, sinks, used_q, used_k, y, lse, *ctx.options)
    return dq, dk, dv, None, None, None if sinks is None else dsinks, *[None] * 8


_FORMALS = (
    "Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? sinks, Tensor? seqused_q, "
    "Tensor? seqused_k, float scale, bool causal, int? window, float? softcap, bool left_padded, bool packed"
)
_attention = AttentionPair(
    "varlen_attention", _FORMALS, _run_into, _empty, "what writes to out= has none", _differentiated, _save
)


# -- what users call --------------------------------------------------------------------------------------------------
def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    *,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    left_padded: bool = False,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    packed: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Attention within each of many sequences, packed one behind the other, as torch.nn.attention.varlen and
    FlashAttention lay them.

    ``q`` of (rows, heads, width), ``k`` and ``v`` of (rows, groups, width), of any strides; groups divide heads.
    Sequence b has the queries cu_seqlens_q[b] .. cu_seqlens_q[b + 1] and the keys cu_seqlens_k[b] ..
    cu_seqlens_k[b + 1]: int32 or int64 on the device, which nobody waits for; lengths may be 0. ``causal`` is aligned
    at the end of a sequence: its last query sees all its keys. ``window``: of these the last so many (causal only).
    ``softcap``: scores x become softcap tanh(x / softcap). ``sinks``, one a head, are scores of a key without a value.
    ``scale`` is 1 / sqrt(width) if not given. A query that sees nothing has zeros, rows of no sequence too.

    ``seqused_q`` and ``seqused_k``, an integer a sequence: of its rows only the first so many are used, with
    ``left_padded`` the last so many. Others may hold anything, have results and gradients of zeros, and take no time
    beyond those of their tile. Where sequences are padded to one length, q, k and v may be of (sequences, length,
    heads, width) without offsets, k and v of a length of their own; the result has the shape of q. Of sequences of
    which only the ends are known, ``torch.nn.functional.pad(ends, (1, 0))`` are the offsets.

    ``packed``: a tile has rows of several sequences, where one tensor gives both offsets: faster for short ones (512 of
    1 to 128 rows, 16 heads of 128, H200: 161 us instead of 393; 32 of 1,024 rows: 464 instead of 316). An infinity or
    NaN among the values of one sequence may then reach the results of those that lie beside it.

    Offsets that do not begin with 0, ascend and end within the rows are reported (RUN023) by a later call of any
    kernel, or by ``tw.check()``, and no result is written, or zeros; PyTorch's path refuses them (JIT010). Kernels
    for bfloat16 and float16, widths 64, 128 and 256; others, and the CPU, by PyTorch. q, k, v and sinks have gradients,
    by kernels for widths 64 and 128; what writes to ``out`` has none (JIT011). JIT010 for arguments that do not fit.
    """
    given = q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, seqused_q, seqused_k
    return _attended(given, scale, causal, window, softcap, left_padded, packed, out)[0]


def varlen_attention_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    *,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    left_padded: bool = False,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    packed: bool = False,
) -> tuple[Tensor, Tensor]:
    """(varlen_attention, the natural logarithm of each row's sum of exponentials in float32, of (heads, rows), sinks
    counted in; -inf where a query sees nothing, 0 in rows that are not used and in those of no sequence). For padded
    sequences it is of (sequences, heads, length). The second has no gradient."""
    given = q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, seqused_q, seqused_k
    return _attended(given, scale, causal, window, softcap, left_padded, packed, None)


def _attended(
    given: tuple[Any, ...], scale: float | None, causal: bool, window: int | None, softcap: float | None,
    left_padded: bool, packed: bool, out: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    require_tensors("varlen_attention", given[:3], given[3:])
    if given[0].dim() == 4 and given[3] is None and given[4] is None:
        return _padded(given, scale, causal, window, softcap, left_padded, packed, out)
    flags = {"causal": causal, "left_padded": left_padded, "packed": packed}
    require_options("varlen_attention", scale=scale, window=window, softcap=softcap, **flags)
    given = (*to_low_precision(*given[:3]), *given[3:])
    _check(*given)
    _check_options(causal, window, softcap)
    tensors = tuple(t for t in given if t is not None)
    differentiated = wants_gradient(tensors)
    q = given[0]
    factor = q.shape[-1] ** -0.5 if scale is None else float(scale)
    together = given[3] is given[4] and q.shape[0] == given[1].shape[0]
    if packed and (not together or given[6] is not None or given[7] is not None):
        required = "one tensor as cu_seqlens_q and cu_seqlens_k, as many rows of queries as of keys, all of them used"
        _misfit("packed=True", required)
    cap = None if softcap is None else float(softcap)
    options = (factor, bool(causal), ending(window), cap, bool(left_padded), bool(packed))
    if out is None:
        run: Any = _attention.compute if is_plain(tensors) and not differentiated else _attention.operator
        return run(*given, *options)
    require_tensors("varlen_attention", (out,))
    if (out.shape, out.dtype, out.device) != (q.shape, q.dtype, q.device) or not out.is_contiguous():
        found = f"out of {tuple(out.shape)}, {out.dtype}, strides {out.stride()}"
        _misfit(found, f"{tuple(q.shape)}, {q.dtype}, row-major, as the result")
    if differentiated or wants_gradient((out,)):
        _attention.refuse_gradient()
    lse = _empty(q)[1]
    torch.ops.tilewright.varlen_attention_out(*given, *options, out, lse)
    return out, lse


def _padded(
    given: tuple[Any, ...], scale: float | None, causal: bool, window: int | None, softcap: float | None,
    left_padded: bool, packed: bool, out: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Of sequences that are padded to one length, as rows one behind the other: views of what is given."""
    q, k, v, _, _, *others = given
    shapes = [tuple(t.shape) for t in (q, k, v)]
    if k.dim() != 4 or shapes[1] != shapes[2] or shapes[0][0] != shapes[1][0] or not all(shapes[0][:2]):
        required = "q of (sequences, length, heads, width), k and v of (sequences, length, groups, width)"
        _misfit(f"q, k, v of {', '.join(map(str, shapes))}", required)
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.shape[0] > 1 and t.stride(0) != t.shape[1] * t.stride(1):
            _misfit(f"{name} of strides {t.stride()}", "sequences that lie one behind the other: no row is copied")
    count, length = shapes[0][:2]
    ends = torch.arange(count + 1, dtype=torch.int32, device=q.device)
    offsets = ends * length, ends * shapes[1][1]
    rows = (t.flatten(0, 1) for t in (q, k, v))
    into = None if out is None else out.view(-1, *out.shape[2:]) if out.is_contiguous() else out
    whole = (*rows, *offsets, *others)
    y, lse = _attended(whole, scale, causal, window, softcap, left_padded, packed, into)
    return y.view(shapes[0]) if out is None else out, lse.view(-1, count, length).transpose(0, 1)


def _check(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor | None, cu_k: Tensor | None, sinks: Tensor | None,
    used_q: Tensor | None, used_k: Tensor | None,
) -> None:  # fmt: skip
    if cu_q is None or cu_k is None:
        _misfit("no cu_seqlens", "offsets of queries and of keys, or q, k and v of (sequences, length, heads, width)")
    shapes = [tuple(t.shape) for t in (q, k, v, cu_q, cu_k)]
    if [len(s) for s in shapes] != [3, 3, 3, 1, 1] or shapes[1] != shapes[2] or q.shape[2] != k.shape[2]:
        required = "q of (rows, heads, width), k and v of (rows, groups, width), offsets of (sequences + 1)"
        _misfit(f"q, k, v, cu_seqlens_q, cu_seqlens_k of {', '.join(map(str, shapes))}", required)
    if shapes[3] != shapes[4] or shapes[3][0] < 2:
        found = f"{shapes[3][0]} offsets of queries, {shapes[4][0]} of keys"
        _misfit(found, "one more than there are sequences, of both; at least one sequence")
    heads, groups = q.shape[1], k.shape[1]
    if groups < 1 or heads % groups:
        _misfit(f"{heads} heads of queries, {groups} of keys", "groups that divide heads")
    if not (q.dtype == k.dtype == v.dtype and q.dtype.is_floating_point):
        _misfit(f"q of {q.dtype}, k and v of {k.dtype} and {v.dtype}", "one floating-point dtype")
    for name, offsets in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        if offsets.dtype not in INDICES:
            _misfit(f"{name} of {offsets.dtype}", "int32 or int64")
    if sinks is not None and (tuple(sinks.shape) != (heads,) or not sinks.dtype.is_floating_point):
        _misfit(f"sinks of {tuple(sinks.shape)}, {sinks.dtype}", f"({heads},), one float a head")
    for name, lengths in (("seqused_q", used_q), ("seqused_k", used_k)):
        if lengths is not None and (lengths.dtype not in INDICES or tuple(lengths.shape) != (len(cu_q) - 1,)):
            _misfit(f"{name} of {tuple(lengths.shape)}, {lengths.dtype}", f"({len(cu_q) - 1},), int32 or int64")
    tensors = (k, v, cu_q, cu_k, *(t for t in (sinks, used_q, used_k) if t is not None))
    if any(t.device != q.device for t in tensors):
        _misfit(f"tensors on {', '.join(str(t.device) for t in (q, *tensors))}", "one device")


def _check_options(causal: bool, window: int | None, softcap: float | None) -> None:
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        _misfit(f"window={shown(window)}", "None, or an integer of at least 1")
    if window is not None and not causal:
        _misfit(f"window={window} without causal=True", "causal=True: a window ends with the last key that is seen")
    if softcap is not None and not (math.isfinite(softcap) and softcap > 0):
        _misfit(f"softcap={shown(softcap)}", "None, or a number above 0")


def _misfit(found: str, required: str) -> NoReturn:
    misfit("varlen_attention", found, required)

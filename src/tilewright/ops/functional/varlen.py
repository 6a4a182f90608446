"""Attention over packed sequences, whose lengths are known to the device alone."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NoReturn

from tilewright.diag import fail, shown
from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import to_low_precision
from tilewright.ops.functional.dispatched import AttentionPair
from tilewright.ops.pytorch import Tensor, is_plain, torch, wants_gradient

WIDTHS = (64, 128, 256)
"""Widths of a head that kernels are made for; others go to PyTorch."""
_LOW = (torch.bfloat16, torch.float16)
_INDICES = (torch.int32, torch.int64)


# -- by kernels -------------------------------------------------------------------------------------------------------
def _by_kernels(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, sinks: Any, scale: float, causal: bool, window: int | None,
    softcap: float | None, packed: bool, y: Any, lse: Any,
) -> None:  # fmt: skip
    """Into ``y`` and ``lse``."""
    given: dict[str, Any] = {"causal": True} if causal else {}
    given |= {name: value for name, value in (("window", window), ("softcap", softcap)) if value is not None}
    group = q.shape[1] // k.shape[1]
    given |= {"group": group} if group > 1 else {}
    if not packed:
        kernels.varlen_attention(q.shape[-1])(cu_q, cu_k, q, k, v, y, sinks, lse, scale=scale, **given)
        return
    before, behind = (cu_q.new_zeros(len(q)) for _ in range(2))  # as they are where the offsets are refused
    kernels.sequence_places(cu_q, before, behind)
    attend = kernels.packed_attention(q.shape[-1])
    attend(cu_q, before, behind, q, k, v, y, sinks, lse, scale=scale, **given)


# -- by PyTorch -------------------------------------------------------------------------------------------------------
def _by_pytorch(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, sinks: Any, scale: float, causal: bool, window: int | None,
    softcap: float | None, packed: bool, y: Any, lse: Any,
) -> None:  # fmt: skip
    """A sequence at a time, after its offsets were read."""
    exact = lse.dtype
    y.zero_()
    lse.zero_()
    queries, keys = _bounds("cu_seqlens_q", cu_q, q), _bounds("cu_seqlens_k", cu_k, k)
    for (first, last), (begin, end) in zip(pairwise(queries), pairwise(keys), strict=True):
        own, group = last - first, q.shape[1] // k.shape[1]
        t = torch.arange(begin - end, 0, device=q.device)
        s = torch.arange(-own, 0, device=q.device)[:, None]
        seen = t <= s if causal else torch.ones((own, end - begin), dtype=torch.bool, device=q.device)
        if window is not None:
            seen = seen & (t > s - window)
        held, values = (x[begin:end].to(exact).repeat_interleave(group, 1) for x in (k, v))
        x = torch.einsum("shd,thd->hst", q[first:last].to(exact), held) * scale
        if softcap is not None:
            x = softcap * torch.tanh(x / softcap)
        x = x.masked_fill(~seen, -torch.inf)
        total = torch.logsumexp(x, -1) if end > begin else x.new_full(x.shape[:-1], -torch.inf)
        if sinks is not None:
            total = torch.logaddexp(total, sinks.to(exact)[:, None])
        p = torch.exp(x - total.nan_to_num(neginf=0.0)[..., None])
        y[first:last] = torch.einsum("hst,thd->shd", p, values)
        lse[:, first:last] = total


def _bounds(name: str, offsets: Any, rows: Any) -> list[int]:
    """Where sequences begin and end, on the host."""
    found = [int(x) for x in offsets.tolist()]
    if found[0] != 0 or found[-1] > len(rows) or any(low > high for low, high in pairwise(found)):
        _misfit(f"{name}={shown(found)}", f"ascending integers from 0 to at most {len(rows)}, the rows")
    return found


# -- the operator -----------------------------------------------------------------------------------------------------
def _run_into(*given: Any) -> None:
    """Takes what the operator takes, and its results."""
    q, k, scale = given[0], given[1], given[6]
    run = _by_kernels if _is_served(q, k, scale) else _by_pytorch
    run(*given)


def _empty(q: Any, *_: Any) -> tuple[Any, Any]:
    sums = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=sums)


def _is_served(q: Any, k: Any, scale: float) -> bool:
    """By kernels, which take the greatest score before they scale."""
    where = q.is_cuda or is_simulated()
    return where and q.dtype in _LOW and q.shape[-1] in WIDTHS and scale > 0 and q.numel() > 0 and k.numel() > 0


_FORMALS = (
    "Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? sinks, float scale, bool causal, "
    "int? window, float? softcap, bool packed"
)
_attention = AttentionPair("varlen_attention", _FORMALS, _run_into, _empty, "it has no backward yet")


# -- what users call --------------------------------------------------------------------------------------------------
def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
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

    ``packed``: a tile has rows of several sequences, where one tensor gives both offsets: faster for short ones (512 of
    1 to 128 rows, 16 heads of 128, H200: 205 us instead of 446; 32 of 1,024 rows: 480 instead of 401). An infinity or
    NaN among the values of one sequence may then reach the results of those that lie beside it.

    Offsets that do not begin with 0, ascend and end within the rows are reported (RUN023) by a later call of any
    kernel, or by ``tw.check()``, and no result is written, or zeros; PyTorch's path refuses them (JIT010). Kernels
    for bfloat16 and float16, widths 64, 128 and 256; others, and the CPU, by PyTorch. No gradient yet (JIT011); JIT010
    for arguments that do not fit.
    """
    return _attended((q, k, v, cu_seqlens_q, cu_seqlens_k, sinks), scale, causal, window, softcap, packed, out)[0]


def varlen_attention_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    packed: bool = False,
) -> tuple[Tensor, Tensor]:
    """(varlen_attention, the natural logarithm of each row's sum of exponentials in float32, of (heads, rows), sinks
    counted in; -inf where a query sees nothing, 0 in rows of no sequence)."""
    return _attended((q, k, v, cu_seqlens_q, cu_seqlens_k, sinks), scale, causal, window, softcap, packed, None)


def _attended(
    given: tuple[Any, ...], scale: float | None, causal: bool, window: int | None, softcap: float | None,
    packed: bool, out: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    given = (*to_low_precision(*given[:3]), *given[3:])
    _check(*given)
    _check_options(causal, window, softcap)
    if wants_gradient(tuple(t for t in given if t is not None)):
        _attention.refuse_gradient()
    q = given[0]
    factor = q.shape[-1] ** -0.5 if scale is None else float(scale)
    if packed and (given[3] is not given[4] or q.shape[0] != given[1].shape[0]):
        _misfit("packed=True", "one tensor as cu_seqlens_q and cu_seqlens_k, and as many rows of queries as of keys")
    options = (factor, bool(causal), window, None if softcap is None else float(softcap), bool(packed))
    if out is None:
        plain = is_plain(tuple(t for t in given if t is not None))
        run: Any = _attention.compute if plain else _attention.operator
        return run(*given, *options)
    if (out.shape, out.dtype, out.device) != (q.shape, q.dtype, q.device) or not out.is_contiguous():
        found = f"out of {tuple(out.shape)}, {out.dtype}, strides {out.stride()}"
        _misfit(found, f"{tuple(q.shape)}, {q.dtype}, row-major, as the result")
    if wants_gradient((out,)):
        _attention.refuse_gradient()
    lse = _empty(q)[1]
    torch.ops.tilewright.varlen_attention_out(*given, *options, out, lse)
    return out, lse


def _check(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, sinks: Tensor | None) -> None:
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
        if offsets.dtype not in _INDICES:
            _misfit(f"{name} of {offsets.dtype}", "int32 or int64")
    if sinks is not None and (tuple(sinks.shape) != (heads,) or not sinks.dtype.is_floating_point):
        _misfit(f"sinks of {tuple(sinks.shape)}, {sinks.dtype}", f"({heads},), one float a head")
    tensors = (k, v, cu_q, cu_k, *(() if sinks is None else (sinks,)))
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
    fail("JIT010", found=f"varlen_attention: {found}", required=required)

"""The RMS norm of each head with the rotary embedding behind it, rounded once."""

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import (
    described,
    is_served,
    misfit,
    require_floats,
    require_options,
    require_tensors,
    to_float,
)
from tilewright.ops.functional.norms import RMS_IS_CAST, weight_sums
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op

_WIDEST = 256
"""Heads of up to as many elements are kept in registers."""
_GROUPS = (16, 32, 64, 128, 256)
"""Tokens of one head whose gradients of the weight one program sums: the least with which programs are at most
``_PARTS``."""
_PARTS = 1024


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.unbind(-2)
    c, s = cos[:, :, None].to(x.dtype), sin[:, :, None].to(x.dtype)
    return torch.stack((first * c - second * s, second * c + first * s), -2)


def _normed(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Without a weight; and 1 / sqrt(mean(x^2) + eps)."""
    wide = _wide(x)
    scale = torch.rsqrt(wide.square().mean((-2, -1), keepdim=True) + eps)
    return wide * scale, scale


def _composed(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, eps: float, bs: Any = None, upto: Any = None) -> Tensor:
    normed, _ = _normed(x, eps)
    return _turned(normed * w.to(normed.dtype), cos, sin).to(x.dtype)


def _composed_gradients(
    x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, dy: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """dx, and what each head of each token adds to dw."""
    normed, scale = _normed(x, eps)
    back = _turned(_wide(dy), cos, -sin)
    g = back * w.to(back.dtype)
    return (scale * (g - normed * (normed * g).mean((-2, -1), keepdim=True))).to(x.dtype), back * normed


def _gradients_fallback(
    x: Any, w: Any, cos: Any, sin: Any, dy: Any, dw: Any, eps: float, group: Any, bs: Any, upto: Any
) -> Any:
    dx, each = _composed_gradients(x, w, cos, sin, dy, eps)
    dw.zero_()
    dw[:, 0] = each.sum(1)
    return dx


_gradients = op(
    name="tilewright::rms_norm_rotary_gradients", outputs=("dx",), mutates=("dw",), fallback=_gradients_fallback
)(kernels.rms_norm_rotary_gradients)


def _gradient(x: Tensor, w: Tensor, cos: Tensor, sin: Tensor, dy: Tensor, eps: float) -> Any:
    """In one pass; where autograd watches (``torch.func.grad``, ``create_graph``), by PyTorch's own operators, which
    have gradients themselves."""
    if torch.is_grad_enabled():
        dx, each = _composed_gradients(x, w, cos, sin, dy, eps)
        return dx, each.sum((0, 1, 2)).to(w.dtype), None, None
    batch, tokens, heads, _, half = x.shape
    count = batch * tokens * heads
    known = isinstance(count, int)  # no symbol of a graph for all extents
    group = next((size for size in _GROUPS if known and count <= size * _PARTS), _GROUPS[-1])
    parts = x.new_empty((batch, -(-tokens // group), heads, 2, half), dtype=torch.float32)
    dx = _gradients(x, w, cos, sin, dy, parts, eps=eps, group=group, upto=_upto(half))
    return dx, weight_sums(parts.reshape(1, -1, 2 * half), w.flatten())[0].view(2, half), None, None


def _upto(half: int) -> int:
    """The tile along a half of a head."""
    return next(size for size in (32, 64, 128) if half <= size)


_rms_norm_rotary = op(name="tilewright::rms_norm_rotary", backward=_gradient, fallback=_composed)(
    kernels.rms_norm_rotary
)


def rms_norm_rotary(
    x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, *, eps: float = 1e-6, heads_first: bool = False
) -> Tensor:
    """``rotary(rms_norm(x, weight, eps=eps), cos, sin)`` of heads, which is rounded once, in the dtype of x; under
    autocast as ``rms_norm``.

    x is of (batch, tokens, heads, width), or with ``heads_first`` of (batch, heads, tokens, width), the weight of
    (width,). Cosines and sines are of (tokens, width / 2), or with a batch before, which may be 1; or of (..., width)
    where both halves are the same. They get no gradient. JIT010 for other shapes.
    """
    require_tensors("rms_norm_rotary", (x, weight, cos, sin))
    require_options("rms_norm_rotary", eps=eps, heads_first=heads_first)
    require_floats("rms_norm_rotary", x, weight, cos, sin)
    x = x.transpose(1, 2) if heads_first and x.dim() == 4 else x
    half = x.shape[-1] // 2 if x.dim() == 4 else 0
    angles = cos[None] if cos.dim() == 2 else cos
    if (
        x.dim() != 4
        or x.shape[-1] % 2
        or weight.shape != x.shape[-1:]
        or cos.shape != sin.shape
        or angles.dim() != 3
        or angles.shape[0] not in (1, x.shape[0])
        or angles.shape[1] != x.shape[1]
        or angles.shape[2] not in (half, 2 * half)
    ):
        misfit(
            "rms_norm_rotary",
            f"x, weight, cos, sin of {described(x, weight, cos, sin)}",
            "x of (batch, tokens, heads, width), weight of (width,), cos and sin of (tokens, width / 2)",
        )
    if RMS_IS_CAST:
        x, weight = to_float(x, weight)
    shape = (x.shape[0], x.shape[1], half)
    cos, sin = (t[..., :half].detach().expand(shape) for t in (cos, sin))
    given = x.unflatten(-1, (2, half)), weight.unflatten(0, (2, half)), cos, sin
    is_of_kernels = is_served(*given) and x.numel() > 0 and x.shape[-1] <= _WIDEST
    y = (_rms_norm_rotary(*given, eps, upto=_upto(half)) if is_of_kernels else _composed(*given, eps)).flatten(-2)
    return y.transpose(1, 2) if heads_first else y

"""Rotary position embedding."""

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import is_served, misfit, require_floats, require_options, require_tensors
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op


def turned_halves(x: Any, cos: Any, sin: Any) -> Any:
    """x of (..., tokens, heads, 2, width / 2) turned, in float32 or float64."""
    wide = x if x.dtype == torch.float64 else x.float()
    first, second = wide.unbind(-2)
    c, s = cos[:, None].to(wide.dtype), sin[:, None].to(wide.dtype)
    return torch.stack((first * c - second * s, second * c + first * s), -2)


def _turned(x: Any, cos: Any, sin: Any, inverse: bool, bs: Any = None, bd: Any = None) -> Any:
    return turned_halves(x, cos, -sin if inverse else sin).to(x.dtype)


def _gradient(cos: Tensor, sin: Tensor, dy: Tensor, inverse: bool) -> Any:
    return _rotary(dy, cos, sin, inverse=not inverse), None, None


_rotary = op(name="tilewright::rotary", backward=_gradient, fallback=_turned)(kernels.rotary)


def rotary(x: Tensor, cos: Tensor, sin: Tensor, *, heads_first: bool = False) -> Tensor:
    """x of (batch, tokens, heads, width) with its halves turned by the angles of their token, whose cosines and sines
    are of (tokens, width / 2), or of (tokens, width) where both halves are the same, as models keep them.

    ``heads_first``: x is of (batch, heads, tokens, width). ``cos`` and ``sin`` get no gradient. JIT010 for other
    shapes.
    """
    require_tensors("rotary", (x, cos, sin))
    require_options("rotary", heads_first=heads_first)
    require_floats("rotary", x, cos, sin)
    x = x.transpose(1, 2) if heads_first and x.dim() == 4 else x
    half = x.shape[-1] // 2 if x.dim() == 4 else 0
    if (
        x.dim() != 4
        or x.shape[-1] % 2
        or cos.shape != sin.shape
        or cos.dim() != 2
        or (cos.shape[-1] != half and cos.shape[-1] != 2 * half)
    ):
        misfit(
            "rotary",
            f"x of {tuple(x.shape)}, cos of {tuple(cos.shape)}, sin of {tuple(sin.shape)}",
            "x of (batch, tokens, heads, width), cos and sin of (tokens, width / 2)",
        )
    cos, sin = cos[:, :half].detach(), sin[:, :half].detach()
    split = x.unflatten(-1, (2, half))
    y = (_rotary if is_served(x, cos, sin) else _composed)(split, cos, sin, inverse=False).flatten(-2)
    return y.transpose(1, 2) if heads_first else y


def _composed(x: Tensor, cos: Tensor, sin: Tensor, inverse: bool) -> Tensor:
    return _turned(x, cos, sin, inverse)

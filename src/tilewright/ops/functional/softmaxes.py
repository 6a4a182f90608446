"""Softmax and its logarithm."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import (
    ONE_TILE,
    is_served,
    on_rows,
    require_axis,
    require_floats,
    require_options,
    require_tensors,
    stored,
    to_float,
)
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op


def _gradient(aten: Any) -> Any:
    def gradient(y: Any, dy: Any, bm: Any, bn: Any) -> Any:
        return aten(dy.to(y.dtype), y, -1, y.dtype)

    return gradient


_softmax_backward = op(name="tilewright::softmax_backward", fallback=_gradient(torch.ops.aten._softmax_backward_data))(
    kernels.softmax_backward
)
_log_softmax_backward = op(
    name="tilewright::log_softmax_backward", fallback=_gradient(torch.ops.aten._log_softmax_backward_data)
)(kernels.log_softmax_backward)


def _long_backward(y: Tensor, dy: Tensor, log: bool) -> Tensor:
    return _log_softmax_backward(y, dy) if log else _softmax_backward(y, dy)


_softmax = op(
    name="tilewright::softmax",
    backward=(_softmax_backward,),
    fallback=lambda x, bm, upto: torch.softmax(x, -1),
)(kernels.softmax)
_log_softmax = op(
    name="tilewright::log_softmax",
    backward=(_log_softmax_backward,),
    fallback=lambda x, bm, upto: torch.log_softmax(x, -1),
)(kernels.log_softmax)
_softmax_long = op(
    name="tilewright::softmax_long",
    backward=_long_backward,
    fallback=lambda x, log, bm, bn: (torch.log_softmax if log else torch.softmax)(x, -1),
)(kernels.softmax_long)


def softmax(x: Tensor, dim: int = -1, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``, as ``torch.softmax``: float32 under autocast, ``dtype`` where given."""
    return _along(x, dim, dtype, out, log=False)


def log_softmax(x: Tensor, dim: int = -1, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """The logarithm of softmax along ``dim``, as ``torch.log_softmax``."""
    return _along(x, dim, dtype, out, log=True)


def _along(x: Tensor, dim: int, dtype: Any, out: Tensor | None, *, log: bool) -> Tensor:
    if dtype is None and type(dim) is int and dim == -1:
        known = (_log_softmax if log else _softmax).known(x, out=out)
        if known is not None:
            return known
    name = "log_softmax" if log else "softmax"
    require_tensors(name, (x,))
    require_options(name, dim=dim, dtype=dtype)
    x = to_float(x)[0] if dtype is None else x.to(dtype)
    require_floats(name, x)
    require_axis(name, x, dim)
    if not is_served(x) or x.dim() == 0 or not x.numel():
        return stored((torch.log_softmax if log else torch.softmax)(x, dim), out)
    if dim not in (-1, x.dim() - 1):
        return stored(_last(x.movedim(dim, -1), None, log).movedim(-1, dim), out)
    return _last(x, out, log)


def _last(x: Tensor, out: Tensor | None, log: bool) -> Tensor:
    if x.shape[-1] > ONE_TILE:
        return on_rows(_softmax_long, (x,), log, out=out)
    return on_rows(_log_softmax if log else _softmax, (x,), out=out)

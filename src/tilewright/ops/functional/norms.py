"""RMS and layer norm over the last axis, alone or with the residual added before."""

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import (
    ONE_TILE,
    described,
    is_served,
    like,
    misfit,
    note_rows,
    on_rows,
    require_floats,
    require_options,
    require_tensors,
    rows,
    stored,
    to_float,
)
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import TorchOp, op

_IN_REGISTERS = 8192
"""Rows of up to as many elements, with their gradients, are kept in registers."""
_ROW_BYTES = 16384
"""Of rows of x whose gradients of the layer norm are computed in one pass: 8,192 of float32 spill."""
_GROUPS = (8, 16, 32, 63)
"""Rows whose gradients of the weight one program sums: the least with which all programs run at once, at most 63 (8,192
rows in 131 programs, of an H200's 132 SMs)."""
_AT_ONCE = 128
"""Programs that run at once."""

_F = torch.nn.functional


# -- gradients of the weights ---------------------------------------------------------------------------------------


def _weight_fallback(x: Any, dy: Any, mean: Any, rstd: Any, br: Any, bn: Any) -> Any:
    wide = x.float() if mean is None else x.float() - mean[..., None]
    return (dy.float() * wide * rstd[..., None]).sum(1)


def _weights_fallback(x: Any, dy: Any, mean: Any, rstd: Any, br: Any, bn: Any) -> Any:
    return _weight_fallback(x, dy, mean, rstd, br, bn), dy.float().sum(1)


_AS_F32 = {"dw": "f32", "db": "f32"}
_weight_backward = op(
    name="tilewright::norm_weight_backward", outputs=("dw",), dtypes=_AS_F32, fallback=_weight_fallback
)(kernels.norm_weight_backward)
_weights_backward = op(
    name="tilewright::norm_weights_backward", outputs=("dw", "db"), dtypes=_AS_F32, fallback=_weights_fallback
)(kernels.norm_weight_backward)


_COLUMNS = 128
"""Columns that a program sums: 74 us for 8192 x 8192 of bf16 on the H200, where the schedule's choice takes 148."""


def _groups(count: int) -> int:
    """Into how many groups rows are split: enough programs to fill a GPU, and groups of equal size."""
    return next((p for p in (64, 32, 16, 8, 4, 2) if count % p == 0), 1)


def _sums_fallback(parts: Any, w: Any, bp: Any, bn: Any) -> Any:
    return parts.sum(1).to(w.dtype)


weight_sums = op(name="tilewright::norm_weight_sums", fallback=_sums_fallback)(kernels.norm_weight_sums)


def _weight_gradients(x: Tensor, dy: Tensor, mean: Tensor | None, rstd: Tensor, w: Tensor, bias: bool) -> Any:
    """dw, and with ``bias`` db: sums of each group by a kernel, their sum in a fixed order by another."""
    p = _groups(x.shape[0])
    split = [t if t is None else t.reshape(p, -1, *t.shape[1:]) for t in (x, dy, mean, rstd)]
    if not bias:
        return weight_sums(_weight_backward(*split, bn=_COLUMNS)[None], w)[0], None
    found = _weights_backward(*split, bn=_COLUMNS)
    return tuple(weight_sums(parts[None], w)[0] for parts in found)


# -- RMS norm -------------------------------------------------------------------------------------------------------


def _rms_fallback(x: Any, w: Any, eps: float, bm: Any, upto: Any) -> Any:
    if w is None or w.dtype == x.dtype:
        return _F.rms_norm(x, (x.shape[-1],), w, eps)
    return _F.rms_norm(x.float(), (x.shape[-1],), w.float(), eps).to(x.dtype)


def _add_rms_fallback(x: Any, residual: Any, w: Any, eps: float, bm: Any, upto: Any) -> Any:
    total = _sum(x, residual)
    return _rms_fallback(total, w, eps, bm, upto).to(x.dtype), total.to(x.dtype)


def _sum(x: Any, residual: Any) -> Any:
    """Of 16-bit floats in float32, as kernels have it before it is rounded."""
    return x + residual if x.dtype == torch.float64 else x.float() + residual.float()


def _rms_backward_fallback(x: Any, w: Any, dy: Any, after: Any, eps: float, bm: Any, bn: Any) -> Any:
    wide, g = x.float(), dy.float() if w is None else dy.float() * w.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1) + eps)
    normed = wide * rstd[:, None]
    d = rstd[:, None] * (g - normed * (normed * g).mean(-1, keepdim=True))
    return (d if after is None else d + after).to(x.dtype), rstd


_rms_backward = op(name="tilewright::rms_norm_backward", dtypes={"rstd": "f32"}, fallback=_rms_backward_fallback)(
    kernels.rms_norm_backward
)


def _gradients_fallback(x: Any, w: Any, dy: Any, after: Any, dw: Any, eps: float, group: int, upto: int) -> Any:
    dx, rstd = _rms_backward_fallback(x, w, dy, after, eps, None, None)
    dw.zero_()
    dw[0] = (dy.float() * x.float() * rstd[:, None]).sum(0)
    return dx


_gradients = op(name="tilewright::rms_norm_gradients", outputs=("dx",), mutates=("dw",), fallback=_gradients_fallback)(
    kernels.rms_norm_gradients
)


def _dx_and_dw(x: Tensor, w: Tensor | None, dy: Tensor, after: Tensor | None, eps: float) -> Any:
    """In one pass over rows that fit registers; where autograd watches (``torch.func.grad``, ``create_graph``), by
    operators that change no argument, whose own gradient is refused only when it is asked for."""
    if w is None or not _in_one_pass(x):
        dx, rstd = _rms_backward(x, w, dy, after, eps=eps)
        return dx, None if w is None else _weight_gradients(x, dy, None, rstd, w, bias=False)[0]
    sums, group = _sums_of_groups(x, 1)
    dx = _gradients(x, w, dy, after, sums[0], eps=eps, group=group)
    return dx, weight_sums(sums, w)[0]


def _in_one_pass(x: Tensor) -> bool:
    """Whether a row fits registers, and autograd does not watch."""
    return x.shape[1] <= _IN_REGISTERS and not torch.is_grad_enabled()


def _sums_of_groups(x: Tensor, kinds: int) -> tuple[Tensor, int]:
    """Room for a row of sums of each group of rows, of so many kinds; and how many rows are a group."""
    rows, width = x.shape
    known = rows if isinstance(rows, int) else _GROUPS[-1] * _AT_ONCE  # a symbol of a graph for all extents
    group = next((size for size in _GROUPS if known <= size * _AT_ONCE), _GROUPS[-1])
    return x.new_empty((kinds, -(-rows // group), width), dtype=torch.float32), group


def _rms_gradients(x: Tensor, w: Tensor | None, dy: Tensor, eps: float) -> Any:
    return _dx_and_dw(x, w, dy, None, eps)


def _add_rms_gradients(total: Tensor, w: Tensor | None, dy: Tensor, dtotal: Tensor, eps: float) -> Any:
    dx, dw = _dx_and_dw(total, w, dy, dtotal, eps)
    return dx, dx, dw


_rms_norm = op(name="tilewright::rms_norm", backward=_rms_gradients, fallback=_rms_fallback)(kernels.rms_norm)
_add_rms_norm = op(
    name="tilewright::add_rms_norm",
    backward=_add_rms_gradients,
    fallback=_add_rms_fallback,
)(kernels.add_rms_norm)


def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6, out: Tensor | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, in the dtype of x; under autocast as PyTorch's, float32
    from 2.13 on.

    Differs from ``torch.nn.functional.rms_norm`` in the default of ``eps``, which is that of float32 there.
    """
    known = _rms_norm.known(x, weight, eps, out=out)
    if known is not None:
        return known
    _check("rms_norm", eps, x, weight)
    if RMS_IS_CAST:
        x, weight = to_float(x, weight)
    if not _is_kernels(x, weight):
        return stored(_F.rms_norm(x, x.shape[-1:], weight, eps), out)
    return on_rows(_rms_norm, (x,), weight, eps, out=out)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """(the RMS norm of x + residual, x + residual): the kernel normalises the sum before it is rounded."""
    known = _add_rms_norm.known(x, residual, weight, eps)
    if known is not None:
        return known
    _check("add_rms_norm", eps, x, weight, residual=residual)
    if (RMS_IS_CAST and _casts(x)) or not _is_kernels(x, residual, weight):
        total = x + residual
        return rms_norm(total, weight, eps=eps), total
    y, total = _added(_add_rms_norm, x, residual, weight, eps)
    return like(y, x), like(total, x)


RMS_IS_CAST = torch._C._dispatch_has_kernel_for_dispatch_key("aten::rms_norm", "AutocastCUDA")
"""Whether PyTorch computes the RMS norm in float32 under autocast, as it does the layer norm: 2.11 does not, 2.13
does."""


def _casts(x: Tensor) -> bool:
    """Autocast computes norms in float32; what is normalised is the sum that PyTorch's own addition gives."""
    return x.is_cuda and torch.is_autocast_enabled("cuda")


_WITHOUT: Any = object()


def _check(operator: str, eps: float, x: Tensor, *weights: Tensor | None, residual: Any = _WITHOUT) -> None:
    """JIT010 for what is no norm of PyTorch's, either."""
    summed = () if residual is _WITHOUT else (residual,)
    require_tensors(operator, (x, *summed), weights)
    require_options(operator, eps=eps)
    require_floats(operator, x, *summed, *weights)
    if x.dim() == 0:
        misfit(operator, "x without an axis", "x of (..., width)")
    if summed and x.shape != residual.shape:
        misfit(operator, f"x of {tuple(x.shape)}, residual of {tuple(residual.shape)}", "one shape")
    for weight in weights:
        if weight is not None and weight.shape != x.shape[-1:]:
            misfit(operator, f"x, weights of {described(x, *weights)}", f"weights of ({x.shape[-1]},), or None")


def _added(op: TorchOp, x: Tensor, residual: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Both results of ``op`` on rows."""
    flat = rows(x), rows(residual)
    found = op(*flat, *others)
    if x.dim() != 2:
        note_rows(op, (*flat, *others), (x, residual, *others), x.shape)
    return found


# -- layer norm -----------------------------------------------------------------------------------------------------


def _layer_fallback(x: Any, w: Any, b: Any, eps: float, bm: Any, upto: Any) -> Any:
    same = [t if t is None else t.to(x.dtype) for t in (w, b)]
    return _F.layer_norm(x, (x.shape[-1],), *same, eps)


def _add_layer_fallback(x: Any, residual: Any, w: Any, b: Any, eps: float, bm: Any, upto: Any) -> Any:
    total = _sum(x, residual)
    return _layer_fallback(total, w, b, eps, bm, upto).to(x.dtype), total.to(x.dtype)


def _layer_backward_fallback(x: Any, w: Any, dy: Any, after: Any, eps: float, bm: Any, upto: Any) -> Any:
    wide, g = x.float(), dy.float() if w is None else dy.float() * w.float()
    mean = wide.mean(-1)
    rstd = torch.rsqrt(wide.var(-1, correction=0) + eps)
    normed = (wide - mean[:, None]) * rstd[:, None]
    d = rstd[:, None] * (g - g.mean(-1, keepdim=True) - normed * (normed * g).mean(-1, keepdim=True))
    return (d if after is None else d + after).to(x.dtype), mean, rstd


_layer_backward = op(
    name="tilewright::layer_norm_backward",
    dtypes={"mean": "f32", "rstd": "f32"},
    fallback=_layer_backward_fallback,
)(kernels.layer_norm_backward)


def _one_pass_fallback(x: Any, w: Any, dy: Any, after: Any, sums: Any, eps: float, group: int, upto: int) -> Any:
    dx, mean, rstd = _layer_backward_fallback(x, w, dy, after, eps, None, None)
    sums.zero_()
    sums[0, 0] = (dy.float() * (x.float() - mean[:, None]) * rstd[:, None]).sum(0)
    sums[1, 0] = dy.float().sum(0)
    return dx


_one_pass = op(
    name="tilewright::layer_norm_gradients", outputs=("dx",), mutates=("sums",), fallback=_one_pass_fallback
)(kernels.layer_norm_gradients)


def _layer_gradients_of(x: Tensor, w: Tensor | None, b: Tensor | None, dy: Tensor, after: Any, eps: float) -> Any:
    """dx, dw and db, as ``_dx_and_dw`` has those of the RMS norm."""
    if w is None or not _in_one_pass(x) or x.shape[1] * x.element_size() > _ROW_BYTES:
        dx, mean, rstd = _layer_backward(x, w, dy, after, eps=eps)
        if w is None:
            return dx, None, None if b is None else dy.float().sum(0).to(b.dtype)
        dw, db = _weight_gradients(x, dy, mean, rstd, w, bias=b is not None)
        return dx, dw, db if b is None else db.to(b.dtype)
    sums, group = _sums_of_groups(x, 2)
    dx = _one_pass(x, w, dy, after, sums, eps=eps, group=group)
    dw, db = weight_sums(sums, w)
    return dx, dw, None if b is None else db.to(b.dtype)


def _layer_gradients(x: Tensor, w: Tensor | None, b: Tensor | None, dy: Tensor, eps: float) -> Any:
    return _layer_gradients_of(x, w, b, dy, None, eps)


def _add_layer_gradients(
    total: Tensor, w: Tensor | None, b: Tensor | None, dy: Tensor, dtotal: Tensor, eps: float
) -> Any:
    dx, dw, db = _layer_gradients_of(total, w, b, dy, dtotal, eps)
    return dx, dx, dw, db


_layer_norm = op(name="tilewright::layer_norm", backward=_layer_gradients, fallback=_layer_fallback)(kernels.layer_norm)
_add_layer_norm = op(name="tilewright::add_layer_norm", backward=_add_layer_gradients, fallback=_add_layer_fallback)(
    kernels.add_layer_norm
)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    out: Tensor | None = None,
) -> Tensor:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last axis, in the dtype of x; float32 under
    autocast."""
    known = _layer_norm.known(x, weight, bias, eps, out=out)
    if known is not None:
        return known
    _check("layer_norm", eps, x, weight, bias)
    x, weight, bias = to_float(x, weight, bias)
    if not _is_kernels(x, weight, bias):
        return stored(_layer_fallback(x, weight, bias, eps, None, None), out)
    return on_rows(_layer_norm, (x,), weight, bias, eps, out=out)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """(the layer norm of x + residual, x + residual): the kernel normalises the sum before it is rounded."""
    known = _add_layer_norm.known(x, residual, weight, bias, eps)
    if known is not None:
        return known
    _check("add_layer_norm", eps, x, weight, bias, residual=residual)
    if _casts(x) or not _is_kernels(x, residual, weight, bias):
        total = x + residual
        return layer_norm(total, weight, bias, eps=eps), total
    y, total = _added(_add_layer_norm, x, residual, weight, bias, eps)
    return like(y, x), like(total, x)


def _is_kernels(x: Tensor, *others: Tensor | None) -> bool:
    return is_served(x, *others) and x.dim() > 0 and x.numel() > 0 and x.size(-1) <= ONE_TILE

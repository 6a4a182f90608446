"""Linear layers and products, with bias, activation and residual added before the result is stored."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import (
    LOW,
    described,
    misfit,
    note_rows,
    require_options,
    require_tensors,
    rows,
    stored,
    to_low_precision,
)
from tilewright.ops.kernels.eight_bits import BLOCK
from tilewright.ops.pytorch import Tensor, torch, wants_gradient
from tilewright.ops.registration import op

_F = torch.nn.functional

ACTIVATIONS: dict[str, Any] = {
    "none": lambda z: z,
    "relu": _F.relu,
    "silu": _F.silu,
    "gelu": _F.gelu,
    "gelu_tanh": lambda z: _F.gelu(z, approximate="tanh"),
}
_SLOPES: dict[str, Any] = {
    "none": lambda d, z: d,
    "relu": lambda d, z: torch.where(z > 0, d, 0),
    "silu": lambda d, z: torch.ops.aten.silu_backward(d, z),
    "gelu": lambda d, z: torch.ops.aten.gelu_backward(d, z),
    "gelu_tanh": lambda d, z: torch.ops.aten.gelu_backward(d, z, approximate="tanh"),
}


def _fallback(a: Any, b: Any, bias: Any, residual: Any, activation: str, bm: Any, bn: Any, bk: Any) -> Any:
    z = ACTIVATIONS[activation](_F.linear(a, b, bias))
    return z if residual is None else z + residual


def _fallback_kept(a: Any, b: Any, bias: Any, residual: Any, activation: str, bm: Any, bn: Any, bk: Any) -> Any:
    z = _F.linear(a, b, bias)
    c = ACTIVATIONS[activation](z)
    return c if residual is None else c + residual, z


def _gradients(a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, dc: Tensor, activation: str) -> Any:
    """What came before an activation is computed again: ``linear`` keeps it."""
    return _of_kept(a, b, bias, residual, dc, activation, None if activation == "none" else _linear(a, b, bias))


def _gradients_kept(
    a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, dc: Tensor, activation: str, kept: Tensor
) -> Any:
    """Where a gradient of the gradient may be asked for, what was kept is computed again, as its own is needed then."""
    return _of_kept(a, b, bias, residual, dc, activation, _linear(a, b, bias) if torch.is_grad_enabled() else kept)


def _of_kept(a: Any, b: Any, bias: Any, residual: Any, dc: Any, activation: str, z: Any) -> Any:
    """By PyTorch's products where rows are whole 16 bytes (of 4100 x 4100 x 4100 its own took 642 and 624 us, of padded
    copies 305 and 326, ours 276 and 280; of 4096 it is as fast as ours)."""
    dz = _SLOPES[activation](dc, z)
    by_kernels = (dz.is_cuda or is_simulated()) and dz.dtype in LOW and not torch.is_grad_enabled()
    if by_kernels and (dz.shape[1] % 8 or a.shape[1] % 8):
        dz = dz.contiguous()
        da, db = _linear(dz, b.t()), _linear(dz.t(), a.t())
    else:
        da, db = dz @ b, dz.t() @ a
    return da, db, None if bias is None else dz.sum(0), None if residual is None else dc


_linear = op(name="tilewright::linear", backward=_gradients, fallback=_fallback)(kernels.linear)
_linear_kept = op(
    name="tilewright::linear_kept", outputs=("c", "kept"), backward=_gradients_kept, fallback=_fallback_kept
)(kernels.linear)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    residual: Tensor | None = None,
    x_scale: Tensor | None = None,
    weight_scale: Tensor | None = None,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """activation(x @ weight.T + bias) + residual, for x of (..., in), weight of (out, in), and residual of (..., out).

    ``activation`` is none, relu, silu, gelu or gelu_tanh. bfloat16 and float16 run on the kernel's tensor cores,
    accumulated in float32; other dtypes on PyTorch's products. Under autocast in its dtype; a residual of another dtype
    is added behind the product, as PyTorch promotes. Where a gradient is wanted, what comes before an activation is
    stored, too.

    x and weight of float8_e4m3fn are multiplied by the float32 ``x_scale`` and ``weight_scale``: of (...,) and (out,),
    a number a row, or of (..., ceil(in / 128)) and (ceil(out / 128), ceil(in / 128)), of blocks of 1 x 128 and 128 x
    128, as ``quantize`` makes those of x. The result is of ``dtype``, bfloat16 if not given, float16 or float32. The
    tensor core's sums of 8-bit products have fewer bits than float32, blocks are added in float32. There is no gradient
    (JIT011).
    """
    kept = activation != "none" and _wants_gradient(x, weight, bias, residual)
    if x_scale is None and weight_scale is None and dtype is None:
        if kept and out is None:
            known, _ = _linear_kept.known(x, weight, bias, residual, activation) or (None, None)
        else:
            known = _linear.known(x, weight, bias, residual, activation, out=out)
        if known is not None:
            return known
    require_tensors("linear", (x, weight), (bias, residual, x_scale, weight_scale))
    require_options("linear", activation=activation, dtype=dtype)
    _check_activation(activation)
    if x.dtype == _EIGHT or x_scale is not None or weight_scale is not None or dtype is not None:
        return stored(_scaled(x, weight, bias, activation, residual, (x_scale, weight_scale), dtype), out)
    x, weight, bias = to_low_precision(x, weight, bias)
    _check(x, weight, bias)
    if not _is_kernels(x, weight, bias, residual):
        bias, residual = _of_shape(bias, weight.shape[:1]), _of_shape(residual, (*x.shape[:-1], len(weight)))
        z = ACTIVATIONS[activation](_F.linear(x, weight, bias))
        return stored(z if residual is None else z + residual, out)
    shape = (*x.shape[:-1], weight.shape[0])
    bias, residual = _of_shape(bias, shape[-1:]), _of_shape(residual, shape)
    flat, added = rows(x), None if residual is None else rows(residual)
    if kept:
        return stored(_linear_kept(flat, weight, bias, added, activation)[0].view(shape), out)
    if out is not None and x.dim() == 2:
        return _linear(flat, weight, bias, added, activation, out=out)
    result = _linear(flat, weight, bias, added, activation)
    if x.dim() == 2:
        return stored(result, out)
    others = (weight, bias)
    note_rows(_linear, (flat, *others, added, activation), (x, *others, residual, activation), shape)
    return stored(result.view(shape), out)


# -- 8-bit floats ------------------------------------------------------------------------------------------------------
_EIGHT = torch.float8_e4m3fn


def _multiplied(
    dtype: Any, a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any, residual: Any, activation: str, blocks: bool,
    bm: Any, bn: Any, bk: Any,
) -> Any:  # fmt: skip
    if blocks:
        a_scale, b_scale = (s.repeat_interleave(BLOCK, 1)[:, : a.shape[1]] for s in (a_scale, b_scale))
        b_scale = b_scale.repeat_interleave(BLOCK, 0)[: b.shape[0]]
    added = None if bias is None else bias.float()
    z = ACTIVATIONS[activation](_F.linear(a.float() * a_scale, b.float() * b_scale, added))
    return (z if residual is None else z + residual.float()).to(dtype)


_scaled_linears = {
    dtype: op(name=f"tilewright::scaled_linear_{short}", dtypes={"c": short}, fallback=partial(_multiplied, dtype))(
        kernels.scaled_linear
    )
    for short, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32))
}


def _scaled(
    x: Tensor, weight: Tensor, bias: Any, activation: str, residual: Any, scales: tuple[Any, Any], dtype: Any
) -> Tensor:
    dtype = torch.bfloat16 if dtype is None else dtype
    blocks = _check_scales(x, weight, scales, dtype)
    shape = (*x.shape[:-1], weight.shape[0])
    bias, residual = _of_shape(bias, shape[-1:]), _of_shape(residual, shape)
    flat, added = rows(x), None if residual is None else rows(residual)
    by_row = (rows(scales[0]), scales[1]) if blocks else (scales[0].reshape(-1, 1), scales[1][:, None])
    given = flat, weight, *by_row, bias, added
    bm = 64 if flat.shape[0] <= 64 else 128
    if flat.numel() and weight.numel():
        return _scaled_linears[dtype](*given, activation, blocks, bm).view(shape)
    return _multiplied(dtype, *given, activation, blocks, bm, None, None).view(shape)


def _check_scales(x: Tensor, weight: Tensor, scales: tuple[Any, Any], dtype: Any) -> bool:
    """Whether they are of blocks; JIT010 for others than of rows or blocks."""
    found = [None if s is None else (tuple(s.shape), s.dtype) for s in scales]
    shapes = [None if s is None or s.dtype != torch.float32 else tuple(s.shape) for s in scales]
    fits = x.dtype == weight.dtype == _EIGHT and weight.dim() == 2 and x.dim() > 0 and x.shape[-1] == weight.shape[1]
    if fits and dtype in _scaled_linears:
        n, k = weight.shape
        if shapes == [tuple(x.shape[:-1]), (n,)]:
            return False
        if shapes == [(*x.shape[:-1], -(-k // BLOCK)), (-(-n // BLOCK), -(-k // BLOCK))]:
            return True
    misfit(
        "linear",
        f"x and weight of {tuple(x.shape)} {x.dtype}, {tuple(weight.shape)} {weight.dtype}, scales of "
        f"{', '.join(map(str, found))}, dtype={dtype}",
        "x and weight of float8_e4m3fn, float32 scales of their rows, or of their blocks of 1 x 128 and 128 x "
        "128, and dtype of bfloat16, float16 or float32; dtype and scales for these alone",
    )


def _of_shape(t: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """As PyTorch broadcasts it; JIT010 where it does not."""
    if t is None or tuple(t.shape) == shape:
        return t
    if t.dim() > len(shape) or any(n != 1 and n != of for n, of in zip(t.shape[::-1], shape[::-1], strict=False)):
        misfit("linear", f"a bias or residual of {tuple(t.shape)}", f"what broadcasts to {tuple(shape)}")
    return t.expand(shape)


def _check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """JIT010 for what PyTorch does not multiply, either."""
    fits = weight.dim() == 2 and x.dim() > 0 and x.shape[-1] == weight.shape[1] and x.dtype == weight.dtype
    if not fits or x.dtype == torch.bool or (bias is not None and bias.dtype != x.dtype):
        found = f"x, weight, bias of {described(x, weight, bias)}"
        misfit("linear", found, "(..., in), (out, in) and (out,) of one dtype: weight.to(x.dtype)")


def _check_activation(activation: str) -> None:
    if activation not in ACTIVATIONS:
        misfit("linear", f"activation={activation!r}", ", ".join(ACTIVATIONS))


def _wants_gradient(*given: Any) -> bool:
    return wants_gradient(tuple(t for t in given if isinstance(t, torch.Tensor)))


def _is_kernels(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> bool:
    dtype = x.dtype
    if dtype not in LOW or weight.dtype != dtype or weight.dim() != 2 or not x.numel():
        return False
    return (bias is None or bias.dtype == dtype) and (residual is None or residual.dtype == dtype)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """activation(a @ b + bias) + residual, for a of (..., k) and b of (k, n). See ``linear``.

    Batches of ``b``, and vectors, are PyTorch's products.
    """
    require_tensors("matmul", (a, b), (bias, residual))
    require_options("matmul", activation=activation)
    if b.dim() != 2 or a.dim() < 2:
        _check_activation(activation)
        a, b, bias = to_low_precision(a, b, bias)
        _check_product(a, b)
        z = a @ b
        z = ACTIVATIONS[activation](z if bias is None else z + bias)
        return stored(z if residual is None else z + residual, out)
    return linear(a, b.t(), bias, activation=activation, residual=residual, out=out)


def _check_product(a: Tensor, b: Tensor) -> None:
    fits = a.dim() > 0 and b.dim() > 0 and a.dtype == b.dtype != torch.bool
    if not fits or a.shape[-1] != b.shape[max(b.dim() - 2, 0)]:
        misfit("matmul", f"a, b of {described(a, b)}", "(..., k) and (k, n) of one dtype")
    if b.dim() > 2 and a.dim() > 2 and not _meet(a.shape[:-2], b.shape[:-2]):
        misfit("matmul", f"a, b of {described(a, b)}", "batches that broadcast")


def _meet(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))

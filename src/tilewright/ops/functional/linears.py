"""Linear layers and products, with bias, activation and residual added before the result is stored."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.diag import fail
from tilewright.ops import kernels
from tilewright.ops.functional.arguments import LOW, note_rows, rows, stored, to_low_precision
from tilewright.ops.pytorch import Tensor, torch
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


def _gradients(a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, dc: Tensor, activation: str) -> Any:
    """By PyTorch's products. What came before an activation is computed again, not kept."""
    dz = dc if activation == "none" else _SLOPES[activation](dc, _linear(a, b, bias))
    return dz @ b, dz.t() @ a, None if bias is None else dz.sum(0), None if residual is None else dc


_linear = op(name="tilewright::linear", backward=_gradients, fallback=_fallback)(kernels.linear)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """activation(x @ weight.T + bias) + residual, for x of (..., in), weight of (out, in), and residual of (..., out).

    ``activation`` is none, relu, silu, gelu or gelu_tanh. bfloat16 and float16 run on the kernel's tensor cores,
    accumulated in float32; other dtypes on PyTorch's products. Under autocast in its dtype.
    """
    _check_activation(activation)
    if out is None:
        known = _linear.known(x, weight, bias, residual, activation)
        if known is not None:
            return known
    x, weight, bias, residual = to_low_precision(x, weight, bias, residual)
    if not _is_kernels(x, weight, bias, residual):
        z = ACTIVATIONS[activation](_F.linear(x, weight, bias))
        return stored(z if residual is None else z + residual, out)
    shape = (*x.shape[:-1], weight.shape[0])
    bias, residual = _of_shape(bias, shape[-1:]), _of_shape(residual, shape)
    flat, added = rows(x), None if residual is None else rows(residual)
    if out is not None and x.dim() == 2:
        return _linear(flat, weight, bias, added, activation, out=out)
    result = _linear(flat, weight, bias, added, activation)
    if x.dim() == 2:
        return stored(result, out)
    others = (weight, bias)
    note_rows(_linear, (flat, *others, added, activation), (x, *others, residual, activation), shape)
    return stored(result.view(shape), out)


def _of_shape(t: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """As PyTorch broadcasts it."""
    return t if t is None or tuple(t.shape) == shape else t.expand(shape)


def _check_activation(activation: str) -> None:
    if activation not in ACTIVATIONS:
        fail("JIT010", found=f"activation={activation!r}", required=", ".join(ACTIVATIONS))


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
    if b.dim() != 2 or a.dim() < 2:
        _check_activation(activation)
        a, b, bias, residual = to_low_precision(a, b, bias, residual)
        z = a @ b
        z = ACTIVATIONS[activation](z if bias is None else z + bias)
        return stored(z if residual is None else z + residual, out)
    return linear(a, b.t(), bias, activation=activation, residual=residual, out=out)

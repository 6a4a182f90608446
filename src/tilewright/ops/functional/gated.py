"""Gated linear units: an activation of one half times the other."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import (
    described,
    is_served,
    misfit,
    on_rows,
    require_floats,
    require_tensors,
    stored,
)
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op

_F = torch.nn.functional


def _approximation(tanh: bool) -> str:
    return "tanh" if tanh else "none"


def _swiglu_backward_fallback(gate: Any, up: Any, dy: Any, bm: Any, bn: Any) -> Any:
    return torch.ops.aten.silu_backward(dy * up, gate), dy * _F.silu(gate)


def _geglu_backward_fallback(gate: Any, up: Any, dy: Any, tanh: bool, bm: Any, bn: Any) -> Any:
    kind = _approximation(tanh)
    return torch.ops.aten.gelu_backward(dy * up, gate, approximate=kind), dy * _F.gelu(gate, approximate=kind)


_swiglu_backward = op(name="tilewright::swiglu_backward", fallback=_swiglu_backward_fallback)(kernels.swiglu_backward)
_geglu_backward = op(name="tilewright::geglu_backward", fallback=_geglu_backward_fallback)(kernels.geglu_backward)
_swiglu = op(
    name="tilewright::swiglu",
    backward=(_swiglu_backward,),
    fallback=lambda gate, up, bm, bn: _F.silu(gate) * up,
)(kernels.swiglu)
_geglu = op(
    name="tilewright::geglu",
    backward=(_geglu_backward,),
    fallback=lambda gate, up, tanh, bm, bn: _F.gelu(gate, approximate=_approximation(tanh)) * up,
)(kernels.geglu)


def swiglu(gate: Tensor, up: Tensor, *, out: Tensor | None = None) -> Tensor:
    """silu(gate) * up of two tensors of one shape and dtype; halves of one tensor are taken as they lie."""
    known = _swiglu.known(gate, up, out=out)
    if known is not None:
        return known
    _check("swiglu", gate, up)
    if not _is_kernels(gate, up):
        return stored(_F.silu(gate) * up, out)
    return on_rows(_swiglu, (gate, up), out=out)


def geglu(gate: Tensor, up: Tensor, *, approximate: str = "none", out: Tensor | None = None) -> Tensor:
    """gelu(gate) * up of two tensors of one shape and dtype; ``approximate="tanh"`` as in PyTorch."""
    known = _geglu.known(gate, up, approximate == "tanh", out=out) if approximate in _APPROXIMATE else None
    if known is not None:
        return known
    _check("geglu", gate, up)
    if approximate not in _APPROXIMATE:
        misfit("geglu", f"approximate={approximate!r}", ", ".join(_APPROXIMATE))
    if not _is_kernels(gate, up):
        return stored(_F.gelu(gate, approximate=approximate) * up, out)
    return on_rows(_geglu, (gate, up), approximate == "tanh", out=out)


_APPROXIMATE = ("none", "tanh")


def _check(operator: str, gate: Tensor, up: Tensor) -> None:
    require_tensors(operator, (gate, up))
    require_floats(operator, gate, up)
    if not gate.is_nested and gate.shape != up.shape:  # of nested ones PyTorch compares
        misfit(operator, f"gate, up of {described(gate, up)}", "one shape")


def _is_kernels(gate: Tensor, up: Tensor) -> bool:
    return is_served(gate) and gate.dtype == up.dtype and gate.shape == up.shape and gate.dim() > 0

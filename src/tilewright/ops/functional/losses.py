"""Cross-entropy of logits, and of a linear layer's logits that are never held all at once."""

from __future__ import annotations

from typing import Any

from tilewright.diag import fail
from tilewright.ops import kernels
from tilewright.ops.functional.arguments import is_served, to_float, to_low_precision
from tilewright.ops.functional.dispatched import define, differentiate
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op

_F = torch.nn.functional


def _rows_fallback(x: Any, target: Any, ignored: int, smoothing: float, smoothed: bool, bm: Any, bn: Any) -> Any:
    wide = x.float()
    loss = _F.cross_entropy(wide, target, ignore_index=ignored, label_smoothing=smoothing, reduction="none")
    return loss.to(torch.float32), torch.logsumexp(wide, -1)


def _backward_fallback(
    x: Any, target: Any, lse: Any, dloss: Any, ignored: int, smoothing: float, bm: Any, bn: Any
) -> Any:
    keep = target != ignored
    p = torch.exp(x.float() - lse[:, None]) - smoothing / x.shape[1]
    p.scatter_add_(1, torch.where(keep, target, 0)[:, None], torch.full_like(lse, smoothing - 1)[:, None])
    return torch.where(keep[:, None], p * dloss[:, None], 0).to(x.dtype)


_AS_F32 = {"loss": "f32", "lse": "f32"}
_backward = op(name="tilewright::cross_entropy_backward", dtypes={"dx": "x"}, fallback=_backward_fallback)(
    kernels.cross_entropy_backward
)


def _gradient(x: Tensor, target: Tensor, lse: Tensor, dloss: Tensor, ignored: int, smoothing: float) -> Any:
    return _backward(x, target, lse, dloss, ignored=ignored, smoothing=smoothing), None


_rows = op(name="tilewright::cross_entropy", dtypes=_AS_F32, backward=_gradient, fallback=_rows_fallback)(
    kernels.cross_entropy
)


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """As ``torch.nn.functional.cross_entropy``, with the loss computed in float32 from logits of any dtype, and
    returned in the dtype of the logits (float32 under autocast).

    Classes are the last axis of 2-D logits, the second of others. Weights of classes and targets that are probabilities
    go to PyTorch's own. A target that is no class gives NaN, where PyTorch stops the GPU.
    """
    logits = to_float(logits)[0]
    if weight is not None or target.dtype != torch.int64 or not is_served(logits) or logits.dim() < 2:
        return _F.cross_entropy(
            logits, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    classes = logits if logits.dim() == 2 else logits.movedim(1, -1)
    if classes.shape[:-1] != target.shape:
        fail("JIT010", found=f"target of {tuple(target.shape)}", required=f"{tuple(classes.shape[:-1])}, by the logits")
    loss = _rows(
        classes.reshape(-1, classes.shape[-1]),
        target.reshape(-1),
        ignored=ignore_index,
        smoothing=label_smoothing,
        smoothed=label_smoothing != 0.0,
    )[0]
    return _reduced(loss, target, ignore_index, reduction).to(_result_dtype(logits))


def _result_dtype(logits: Tensor) -> Any:
    """Autocast of the CPU computes losses in float32, too."""
    return torch.float32 if torch.is_autocast_enabled(logits.device.type) else logits.dtype


def _reduced(loss: Tensor, target: Tensor, ignored: int, reduction: str) -> Tensor:
    match reduction:
        case "mean":
            return loss.sum() / (target != ignored).sum()
        case "sum":
            return loss.sum()
        case "none":
            return loss.view(target.shape)
        case _:
            fail("JIT010", found=f"reduction={reduction!r}", required="mean, sum or none")


# -- of a linear layer ----------------------------------------------------------------------------------------------


def _chunked(x: Any, w: Any, target: Any, ignored: int, chunk: int, dx: bool, dw: bool) -> Any:
    """The sum of losses, and its gradients: of ``chunk`` rows of logits at a time, which are then overwritten."""
    total = torch.zeros((), dtype=torch.float32, device=x.device)
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if dx else x.new_empty(0)
    grad_w = torch.zeros(w.shape, dtype=torch.float32, device=w.device) if dw else w.new_empty(0)
    ones = torch.ones(min(chunk, x.shape[0]), dtype=torch.float32, device=x.device)
    for begin in range(0, x.shape[0], chunk):
        part, wanted = x[begin : begin + chunk], target[begin : begin + chunk]
        logits = part @ w.t()
        loss, lse = _rows(logits, wanted, ignored=ignored, smoothed=False)
        total += loss.sum()
        if dx or dw:
            d = _backward(logits, wanted, lse, ones[: len(part)], ignored=ignored)
            if dx:
                torch.mm(d, w, out=grad_x[begin : begin + chunk])
            if dw:
                grad_w += d.t() @ part
    return total, grad_x, grad_w.to(w.dtype)


def _fake(x: Any, w: Any, target: Any, ignored: int, chunk: int, dx: bool, dw: bool) -> Any:
    grads = [t.new_empty(t.shape) if wanted else t.new_empty(0) for t, wanted in ((x, dx), (w, dw))]
    return x.new_empty((), dtype=torch.float32), *grads


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _scaled(ctx: Any, dtotal: Any, *_: Any) -> Any:
    """The gradients that the forward left, times that of the sum. Differentiated again, they have none."""
    grads = [g * dtotal if g.numel() else None for g in ctx.saved_tensors]
    return *grads, None, None, None, None, None


define(
    "linear_cross_entropy(Tensor x, Tensor w, Tensor target, SymInt ignored, int chunk, bool dx, bool dw)"
    " -> (Tensor, Tensor, Tensor)",
    _chunked,
    _fake,
)
differentiate("linear_cross_entropy", _scaled, _save)


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    chunk: int = 2048,
) -> Tensor:
    """The cross-entropy of ``x @ weight.T`` for x of (..., width) and weight of (classes, width): the loss is float32,
    of logits in the dtype of x; under autocast in its dtype.

    Only ``chunk`` rows of logits exist at a time; gradients are computed with them, and kept in the dtypes of x and
    weight. ``reduction`` is mean or sum.
    """
    if reduction not in ("mean", "sum"):
        fail("JIT010", found=f"reduction={reduction!r}", required="mean or sum: no loss of a single row is kept")
    x, weight = to_low_precision(x, weight)
    flat = x.reshape(-1, x.shape[-1])
    if target.numel() != flat.shape[0]:
        fail("JIT010", found=f"target of {tuple(target.shape)}", required=f"one for each row of x of {tuple(x.shape)}")
    if not is_served(x, weight):
        return _F.cross_entropy(flat @ weight.t(), target.reshape(-1), ignore_index=ignore_index, reduction=reduction)
    grad = torch.is_grad_enabled()
    total = torch.ops.tilewright.linear_cross_entropy(
        flat, weight, target.reshape(-1), ignore_index, chunk, grad and x.requires_grad, grad and weight.requires_grad
    )[0]
    return total if reduction == "sum" else total / (target != ignore_index).sum()

"""Cross-entropy of logits, and of a linear layer's logits that are never held all at once."""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import (
    described,
    is_autocast,
    is_served,
    misfit,
    require_floats,
    require_options,
    require_tensors,
    rows,
    to_float,
    to_low_precision,
)
from tilewright.ops.functional.dispatched import Composition
from tilewright.ops.pytorch import Tensor, torch, wants_gradient
from tilewright.ops.registration import op

_F = torch.nn.functional


def _rows_fallback(x: Any, target: Any, ignored: int, smoothing: float, smoothed: bool, bm: Any, bn: Any) -> Any:
    wide = x.float()
    loss = _F.cross_entropy(wide, target, ignore_index=ignored, label_smoothing=smoothing, reduction="none")
    top = wide.amax(-1)
    return loss.to(torch.float32), top, torch.exp(wide - top[:, None]).sum(-1)


def _backward_fallback(
    x: Any, target: Any, top: Any, total: Any, dloss: Any, ignored: int, smoothing: float, bm: Any, bn: Any
) -> Any:
    keep = target != ignored
    p = torch.exp(x.float() - top[:, None]) / total[:, None] - smoothing / x.shape[1]
    p.scatter_add_(1, torch.where(keep, target, 0)[:, None], torch.full_like(top, smoothing - 1)[:, None])
    return torch.where(keep[:, None], p * dloss[:, None], 0).to(x.dtype)


_AS_F32 = {"loss": "f32", "top": "f32", "total": "f32"}
_backward = op(name="tilewright::cross_entropy_backward", dtypes={"dx": "x"}, fallback=_backward_fallback)(
    kernels.cross_entropy_backward
)


def _gradient(
    x: Tensor, target: Tensor, top: Tensor, total: Tensor, dloss: Tensor, ignored: int, smoothing: float
) -> Any:
    return _backward(x, target, top, total, dloss, ignored=ignored, smoothing=smoothing), None


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
    dtype: Any = None,
) -> Tensor:
    """As ``torch.nn.functional.cross_entropy``, with the loss computed in float32 from logits of any dtype, and
    returned in ``dtype``, if none is given that of the logits (float32 under autocast).

    Classes are the last axis of 2-D logits, the second of others. Weights of classes and targets that are probabilities
    go to PyTorch's own. A target that is no class gives NaN, where PyTorch stops the GPU.
    """
    require_tensors("cross_entropy", (logits, target), (weight,))
    options = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
    require_options("cross_entropy", **options, dtype=dtype)
    _check_classes(logits, target, weight, reduction, label_smoothing)
    logits = to_float(logits)[0]
    dtype = _result_dtype(logits) if dtype is None else dtype
    served = target.dtype == torch.int64 and is_served(logits) and logits.dim() > 1 and logits.numel() > 0
    if weight is not None or not served:
        return _F.cross_entropy(logits, target, weight, **options).to(dtype)
    classes = logits if logits.dim() == 2 else logits.movedim(1, -1)
    loss = _rows(
        rows(classes),
        target.reshape(-1),
        ignored=ignore_index,
        smoothing=label_smoothing,
        smoothed=label_smoothing != 0.0,
    )[0]
    return _reduced(loss, target, ignore_index, reduction).to(dtype)


_REDUCTIONS = ("mean", "sum", "none")
_INTEGERS = (torch.int64, torch.uint8)


def _check_classes(logits: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float) -> None:
    """JIT010 for what ``torch.nn.functional.cross_entropy`` does not take, either."""
    require_floats("cross_entropy", logits, weight)
    axis, shape = min(1, logits.dim() - 1), tuple(logits.shape)
    of_rows = shape[:axis] + shape[axis + 1 :] if shape else shape
    wanted = shape if target.is_floating_point() else of_rows
    fits = len(shape) > 0 and (tuple(target.shape) == wanted or (len(shape), tuple(target.shape)) == (1, (1,)))
    if not fits or not (target.is_floating_point() or target.dtype in _INTEGERS):
        required = f"classes beside rows, and int64 of {of_rows}, or one probability for each logit"
        misfit("cross_entropy", f"logits, target of {described(logits, target)}", required)
    if weight is not None and tuple(weight.shape) != shape[axis : axis + 1]:
        misfit("cross_entropy", f"weight of {tuple(weight.shape)}", f"{shape[axis : axis + 1]}, by the logits")
    if reduction not in _REDUCTIONS:
        misfit("cross_entropy", f"reduction={reduction!r}", "mean, sum or none")
    if not 0 <= smoothing <= 1:
        misfit("cross_entropy", f"label_smoothing={smoothing}", "a number from 0 to 1")


def _result_dtype(logits: Tensor) -> Any:
    """Autocast of the CPU computes losses in float32, too."""
    return torch.float32 if is_autocast(logits.device.type) else logits.dtype


def _reduced(loss: Tensor, target: Tensor, ignored: int, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.sum() / (target != ignored).sum()
    return loss.sum() if reduction == "sum" else loss.view(target.shape)


# -- of a linear layer ----------------------------------------------------------------------------------------------

_LOGIT_ROWS = 2048
"""Rows whose logits exist at a time: enough tiles of the product for every multiprocessor, several times."""
_WIDE_PRODUCTS = hasattr(torch.ops.aten.addmm, "dtype_out")
"""Products of 16-bit tensors are added to a float32 one as they are made (PyTorch 2.8)."""


def _with_gradient_fallback(
    x: Any, target: Any, dloss: Any, ignored: int, smoothing: float, smoothed: bool, bm: Any, bn: Any
) -> Any:
    loss, top, total = _rows_fallback(x, target, ignored, smoothing, smoothed, bm, bn)
    return loss, _backward_fallback(x, target, top, total, dloss, ignored, smoothing, bm, bn)


_rows_with_gradient = op(
    name="tilewright::cross_entropy_with_gradient", dtypes={"loss": "f32", "dx": "x"}, fallback=_with_gradient_fallback
)(kernels.cross_entropy_with_gradient)


def _losses(x: Any, w: Any, bias: Any, target: Any, ignored: int, smoothing: float, chunk: int) -> Any:
    """The loss of each row."""
    loss = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    options = {"ignored": ignored, "smoothing": smoothing, "smoothed": smoothing != 0.0}
    for begin in range(0, x.shape[0], _LOGIT_ROWS):
        part = slice(begin, begin + _LOGIT_ROWS)
        loss[part] = _rows(_F.linear(x[part], w, bias), target[part], **options)[0]
    return loss


def _gradients(
    dloss: Any, x: Any, w: Any, bias: Any, target: Any, ignored: int, smoothing: float, chunk: int,
    dx: bool, dw: bool, db: bool,
) -> Any:  # fmt: skip
    """The loss of each row, and the gradients of sum(loss * dloss) that are wanted, the others empty.

    The gradient of a chunk of logits is held for the products with it. One chunk of all rows gives the weight's
    gradient at once, in whose memory logits may lie before; several are added up in float32."""
    count = x.shape[0]
    step = _chunk(count, x.shape[1]) if chunk == _BY_MEMORY else chunk
    loss = torch.empty(count, dtype=torch.float32, device=x.device)
    at_once = max(_LOGIT_ROWS, x.shape[1]) if step >= count else _LOGIT_ROWS
    grad_x = x.new_empty(x.shape if dx and not count else 0)
    grad_w = w.new_zeros(w.shape if dw and not count else 0)
    grad_b = torch.zeros(w.shape[0] if db else 0, dtype=torch.float32, device=w.device)
    for begin in range(0, count, step):
        part = slice(begin, begin + step)
        given = dloss[part].contiguous(), x[part], w, bias, target[part], loss[part]
        d = _of_logits(*given, ignored, smoothing, at_once)
        if dx:
            grad_x = grad_x if begin else x.new_empty(x.shape)
            torch.mm(d, w, out=grad_x[part])
        if dw:
            grad_w = d.t() @ x if step >= count else _add_product(grad_w if begin else None, d.t(), x[part])
        if db:
            grad_b += d.sum(0, dtype=torch.float32)
        del d  # as the logits
    return loss, grad_x, grad_w.to(w.dtype), grad_b.to(w.dtype)


_BY_MEMORY = 0


def _chunk(rows: int, width: int) -> int:
    """Rows whose gradient of the logits is held: all, where that takes no more than the float32 sum of the weight's
    gradient that it saves; else chunks of one size, which take half as much as the sum."""
    return max(rows, 1) if rows <= 2 * width else -(-rows // -(-rows // width))


def _of_logits(
    dloss: Any, x: Any, w: Any, bias: Any, target: Any, loss: Any, ignored: int, smoothing: float, at_once: int
) -> Any:
    """The gradient of the logits of these rows, in the dtype of x; their losses go into ``loss``. Logits of so many
    rows exist ``at_once``."""
    d = x.new_empty((x.shape[0], w.shape[0]))
    options = {"ignored": ignored, "smoothing": smoothing, "smoothed": smoothing != 0.0}
    for begin in range(0, x.shape[0], at_once):
        part = slice(begin, begin + at_once)
        given = _F.linear(x[part], w, bias), target[part], dloss[part]
        _rows_with_gradient(*given, **options, out=(loss[part], d[part]))
        del given  # before the next logits are allocated
    return d


def _add_product(total: Any, a: Any, b: Any) -> Any:
    """``total``, none at first, plus a @ b, in float32."""
    if a.dtype == torch.float32:
        return a @ b if total is None else total.addmm_(a, b)
    if not a.is_cuda or not _WIDE_PRODUCTS:
        product = (a @ b).float()
        return product if total is None else total.add_(product)
    if total is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)


def _losses_fake(x: Any, *_: Any) -> Any:
    return x.new_empty((x.shape[0],), dtype=torch.float32)


def _gradients_fake(
    dloss: Any, x: Any, w: Any, bias: Any, target: Any, ignored: int, smoothing: float, chunk: int,
    dx: bool, dw: bool, db: bool,
) -> Any:  # fmt: skip
    made = (
        t.new_empty(s if wanted else (0,))
        for t, s, wanted in ((x, x.shape, dx), (w, w.shape, dw), (w, w.shape[:1], db))
    )
    return _losses_fake(x), *made


def _losses_save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.numbers = inputs[4:]


def _losses_gradient(ctx: Any, dloss: Any) -> Any:
    """Of losses that are weighed later: the logits are computed again."""
    wanted = ctx.needs_input_grad[:3]
    grads = _with_gradients(dloss, *ctx.saved_tensors, *ctx.numbers, *wanted)[1:]
    return *(g if w else None for g, w in zip(grads, wanted, strict=True)), None, None, None, None


_FORMALS = "Tensor x, Tensor w, Tensor? bias, Tensor target, SymInt ignored, float smoothing, int chunk"
_WANTED = "bool dx, bool dw, bool db"
_FOUR = "(Tensor, Tensor, Tensor, Tensor)"
_by_row = Composition(
    f"linear_cross_entropy_rows({_FORMALS}) -> Tensor", _losses, _losses_fake, _losses_gradient, _losses_save
)
_with_gradients = Composition(
    f"linear_cross_entropy_gradients(Tensor dloss, {_FORMALS}, {_WANTED}) -> {_FOUR}", _gradients, _gradients_fake
)


# -- reduced, with the gradients computed at once ---------------------------------------------------------------------


def _reduced_loss(
    x: Any, w: Any, bias: Any, target: Any, ignored: int, smoothing: float, chunk: int, mean: bool,
    dx: bool, dw: bool, db: bool,
) -> Any:  # fmt: skip
    scale = 1 / (target != ignored).sum().float() if mean else torch.ones((), device=x.device)
    weights = scale.expand(x.shape[0])
    loss, *grads = _gradients(weights, x, w, bias, target, ignored, smoothing, chunk, dx, dw, db)
    return loss.sum() * scale, *grads


def _reduced_fake(x: Any, w: Any, bias: Any, *others: Any) -> Any:
    return x.new_empty((), dtype=torch.float32), *_gradients_fake(None, x, w, bias, *others[:4], *others[5:])[1:]


def _reduced_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.save_for_backward(*output[1:], *inputs[:3])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # of these, as large as they are
    ctx.wanted = inputs[-3:]


def _reduced_gradient(ctx: Any, dtotal: Any, *_: Any) -> Any:
    """The gradients that the forward left, times that of the loss."""
    dx, dw, db, x, w, bias = ctx.saved_tensors
    if torch.is_grad_enabled():  # so that a second gradient is refused, not zero
        grads = _scaled_once(dtotal, dx, dw, db, x, w, bias)
    else:
        grads = _scaled(dtotal, dx, dw, db)
    return *(g if wanted else None for g, wanted in zip(grads, ctx.wanted, strict=True)), *[None] * 8


def _scaled_by_pytorch(x: Any, factor: Any, bn: Any) -> Any:
    return (x * factor).to(x.dtype)


_scale = op(name="tilewright::scaled", dtypes={"y": "x"}, fallback=_scaled_by_pytorch)(kernels.scaled)


def _scaled(dtotal: Any, *grads: Any) -> Any:
    """By a kernel: PyTorch's product with one element of the device reaches a quarter of the memory's speed."""
    factor = dtotal.reshape(1)
    return tuple(_scale(g.reshape(-1), factor).view(g.shape) if g.numel() else torch.empty_like(g) for g in grads)


def _scaled_apart(dtotal: Any, dx: Any, dw: Any, db: Any, x: Any, w: Any, bias: Any) -> Any:
    return _scaled(dtotal, dx, dw, db)


def _scaled_fake(dtotal: Any, dx: Any, dw: Any, db: Any, x: Any, w: Any, bias: Any) -> Any:
    return tuple(g.new_empty(g.shape) for g in (dx, dw, db))


_reduced_with_gradients = Composition(
    f"linear_cross_entropy_reduced({_FORMALS}, bool mean, {_WANTED}) -> {_FOUR}",
    _reduced_loss, _reduced_fake, _reduced_gradient, _reduced_save,
)  # fmt: skip
_scaled_once = Composition(
    "linear_cross_entropy_scaled(Tensor dtotal, Tensor dx, Tensor dw, Tensor db, Tensor x, Tensor w, Tensor? bias)"
    " -> (Tensor, Tensor, Tensor)",
    _scaled_apart, _scaled_fake,
)  # fmt: skip


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    chunk: int | None = None,
) -> Tensor:
    """The cross-entropy of ``x @ weight.T + bias`` for x of (..., width), weight of (classes, width), bias of
    (classes,): the loss is float32, of logits in the dtype of x; under autocast in its dtype.

    Logits exist for 2,048 rows at a time. Of a loss that is reduced by mean or sum the gradients are computed with them
    and kept in the dtypes of x and weight; with ``reduction="none"`` the backward computes the logits again. ``chunk``
    rows of the logits' gradient are held for the products with it: if None, all of up to 2 width rows, else up to
    width. With these, all that is held beside x's gradient and 2,048 rows of logits is 6 bytes for each element of a
    16-bit weight, whatever the rows. The same bits in every run; a gradient of a gradient is refused (JIT011).
    """
    require_tensors("linear_cross_entropy", (x, weight, target), (bias,))
    require_options(
        "linear_cross_entropy",
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
        chunk=chunk,
    )
    x, weight, bias = to_low_precision(x, weight, bias)
    _check(x, weight, bias, target, reduction, label_smoothing, chunk)
    flat = rows(x)
    if target.dtype != torch.int64 or not is_served(x, weight, bias):
        return _by_pytorch(flat, weight, bias, target, ignore_index, reduction, label_smoothing)
    numbers = (ignore_index, label_smoothing, _BY_MEMORY if chunk is None else chunk)
    given = (flat, weight, bias, target.reshape(-1), *numbers)
    wanted = [wants_gradient((t,)) for t in (flat, weight, bias)]
    if reduction == "none" or not any(wanted):
        return _reduced(_by_row(*given), target, ignore_index, reduction)
    whole = reduction == "mean" and x.dtype != torch.float16  # whose gradients of a mean would underflow
    total = _reduced_with_gradients(*given, whole, *wanted)[0]
    return total if whole or reduction == "sum" else total / (target != ignore_index).sum()


def _by_pytorch(
    x: Any, w: Any, bias: Any, target: Any, ignored: int, reduction: str, smoothing: float
) -> Any:  # fmt: skip
    likely = target.is_floating_point()
    loss = _F.cross_entropy(
        _F.linear(x, w, bias),
        rows(target) if likely else target.reshape(-1),
        ignore_index=ignored,
        reduction=reduction,
        label_smoothing=smoothing,
    )
    return loss.view(target.shape[:-1] if likely else target.shape) if reduction == "none" else loss


def _check(
    x: Any, w: Any, bias: Any, target: Any, reduction: str, smoothing: float, chunk: int | None
) -> None:  # fmt: skip
    require_floats("linear_cross_entropy", x, w, bias)
    found = required = ""
    likely, count = target.is_floating_point(), prod(x.shape[:-1])
    if x.dim() == 0 or w.dim() != 2 or w.shape[1] != x.shape[-1] or (bias is not None and bias.shape != w.shape[:1]):
        found = f"x of {tuple(x.shape)}, weight of {tuple(w.shape)}"
        found += "" if bias is None else f", bias of {tuple(bias.shape)}"
        required = "(..., width), (classes, width) and (classes,)"
    elif x.dtype != w.dtype or (bias is not None and bias.dtype != x.dtype):
        found, required = f"x, weight, bias of {described(x, w, bias)}", "one dtype"
    elif target.numel() != count * (w.shape[0] if likely else 1):  # numel() of a size would fix one that is symbolic
        found, required = f"target of {tuple(target.shape)}", f"one for each row of x of {tuple(x.shape)}"
    elif not (likely or target.dtype in _INTEGERS):
        found, required = f"target of {target.dtype}", "int64: target.long()"
    elif reduction not in _REDUCTIONS:
        found, required = f"reduction={reduction!r}", "mean, sum or none"
    elif not 0 <= smoothing <= 1:
        found, required = f"label_smoothing={smoothing}", "a number from 0 to 1"
    elif chunk is not None and chunk < 1:
        found, required = f"chunk={chunk}", "at least one row, or None"
    if found:
        misfit("linear_cross_entropy", found, required)

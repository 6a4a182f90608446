"""Common handling of operators' arguments: autocast as in PyTorch, rows of tensors of any rank, ``out=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, cast

from tilewright.diag import fail, shown
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import TorchOp

COMPUTED = frozenset((torch.bfloat16, torch.float16, torch.float32))
"""Dtypes that the kernels have; tensors of others, such as float64, go to PyTorch's own operators."""


def is_served(*tensors: Tensor | None) -> bool:
    """All of them are of dtypes that the kernels have, and no nested tensors, which have no one shape."""
    for tensor in tensors:  # a generator takes twice as long, at every call
        if tensor is not None and (tensor.dtype not in COMPUTED or tensor.is_nested):
            return False
    return True


def to_float(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Under autocast of CUDA as float32, as PyTorch computes softmax, norms and losses there."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    return tuple(t.float() if t is not None and t.is_cuda and t.dtype in LOW else t for t in tensors)


LOW = (torch.bfloat16, torch.float16)
"""Dtypes of tensor cores' products."""
INDICES = (torch.int32, torch.int64)
ENDLESS = 1 << 30
"""Windows of so many keys end nowhere: no tensor has as many rows, and a row less such a one would leave 32 bits."""
ONE_TILE = 16384
"""Rows of up to as many elements are read once, and kept in registers."""


def is_autocast(device: str) -> bool:
    """Whether autocast is enabled for devices of this type; PyTorch does not support the query for ``meta``."""
    return device != "meta" and torch.is_autocast_enabled(device)


def to_low_precision(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Under autocast in its dtype, as PyTorch computes products and attention there."""
    first = next(t for t in tensors if t is not None)
    kind = first.device.type
    if not is_autocast(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(t.to(dtype) if t is not None and t.dtype in COMPUTED else t for t in tensors)


def rows(x: Tensor) -> Tensor:
    """All axes but the last flattened to one. Copies only where the strides require it."""
    if x.dim() == 2:
        return x
    return x.flatten(0, -2) if x.dim() > 2 else x[None]  # not reshape(-1, 0), which no size fits


def like(y: Tensor, x: Tensor) -> Tensor:
    """Rows in the shape of what they were made of."""
    return y if x.dim() == 2 else y.view(x.shape)


def stored(result: Tensor, out: Tensor | None) -> Tensor:
    """The result, or ``out`` filled with it; JIT010 for another shape, JIT011 where a gradient is required."""
    if out is None:
        return result
    require_alike(out, result)
    if torch.is_grad_enabled() and (result.requires_grad or out.requires_grad):
        fail("JIT011", found="a gradient through out=", required="tensors that need none, or torch.no_grad()")
    return out.copy_(result)


_AS_WRITTEN = {
    "add_layer_norm": "y, total = ops.add_layer_norm(x, residual, weight, bias)",
    "add_rms_norm": "y, total = ops.add_rms_norm(x, residual, weight)",
    "attention": "attention(q, k, v, causal=True), of (batch, heads, tokens, width)",
    "attention_with_lse": "y, lse = ops.attention_with_lse(q, k, v, causal=True)",
    "cross_entropy": 'cross_entropy(logits, target, reduction="mean"), of (rows, classes) and (rows,)',
    "cumsum": "cumsum(x, dim=1)",
    "embedding": "embedding(index, weight), of any shape and (rows, width)",
    "experts": "experts(x, ids, weights, gate_up, down), ids and weights of (tokens, choices)",
    "geglu": "geglu(gate, up), of one shape",
    "grouped_matmul": "grouped_matmul(x, weight, offsets), of (rows, in), (groups, out, in) and (groups + 1,)",
    "index_add": "index_add(x, 0, index, source)",
    "layer_norm": "layer_norm(x, weight, bias), of (..., width), (width,) and (width,)",
    "linear": 'linear(x, weight, bias, activation="gelu"), of (..., in), (out, in) and (out,)',
    "linear_cross_entropy": "linear_cross_entropy(x, weight, target), of (rows, in), (classes, in) and (rows,)",
    "log_softmax": "log_softmax(x, dim=-1)",
    "matmul": "matmul(a, b), of (..., k) and (k, n)",
    "merge_states": "merge_states(y, lse), of (parts, ..., width) and (parts, ...)",
    "moe": "moe(x, router, gate_up, down, k=2)",
    "paged_append": "paged_append(key, value, k_cache, v_cache, slots)",
    "decode_parts": "parts = ops.decode_parts(q, k_cache, v_cache, block_table, seq_lens)",
    "paged_decode": "paged_decode(q, k_cache, v_cache, block_table, seq_lens)",
    "permute": "packed, plan = ops.permute(x, ids, experts)",
    "quantize": "y, scale = ops.quantize(x, block=128)",
    "rms_norm": "rms_norm(x, weight), of (..., width) and (width,)",
    "rms_norm_rotary": "rms_norm_rotary(x, weight, cos, sin), of (batch, tokens, heads, width), (width,) and twice "
    "(tokens, width / 2)",
    "rotary": "rotary(x, cos, sin), of (batch, tokens, heads, width) and twice (tokens, width / 2)",
    "softmax": "softmax(x, dim=-1)",
    "swiglu": "swiglu(gate, up), of one shape",
    "unpermute": "unpermute(packed, plan, weights)",
    "varlen_attention": "varlen_attention(q, k, v, cu_seqlens, cu_seqlens, causal=True)",
}


def misfit(operator: str, found: str, required: str) -> NoReturn:
    """JIT010 for arguments of ``operator``, and a call as it is written."""
    written = _AS_WRITTEN[operator]
    example = written if " = " in written else f"ops.{written}"
    fail("JIT010", found=f"{operator}: {found}", required=required, help=f"write, for example: {example}")


_NESTED = ("softmax", "log_softmax", "swiglu", "geglu")
"""Operators of which PyTorch computes nested tensors."""


def require_tensors(operator: str, required: tuple[Any, ...], optional: tuple[Any, ...] = ()) -> None:
    """JIT010 for a list, an array or None where ``operator`` wants a tensor, for nested and sparse tensors, and for
    those of several devices, but for integers beside floats of ``meta``; optional ones may be None."""
    given = (*required, *(t for t in optional if t is not None))
    for value in given:
        if isinstance(value, torch.Tensor) and value.is_nested and operator not in _NESTED:
            misfit(operator, "a nested tensor", "tensors of one shape: x.to_padded_tensor(0.0), or x.values()")
        if not (isinstance(value, torch.Tensor) or hasattr(value, "__torch_function__")):
            misfit(operator, f"{type(value).__name__} for a tensor", "tensors of PyTorch: torch.as_tensor(x) makes one")
        if isinstance(value, torch.Tensor) and not value.is_nested and value.layout != torch.strided:
            misfit(operator, f"a tensor of layout {str(value.layout)[6:]}", "dense tensors: x.to_dense()")
    _require_one_device(operator, [t for t in given if isinstance(t, torch.Tensor)])


def _require_one_device(operator: str, tensors: list[Tensor]) -> None:
    device = tensors[0].device if tensors else None  # of torch.fx.symbolic_trace, which refuses what follows itself
    if all(t.device == device for t in tensors):
        return
    floats = [t for t in tensors if t.is_floating_point()]
    if not floats or not all(t.is_meta for t in floats):
        found = ", ".join(str(t.device) for t in tensors)
        misfit(operator, f"tensors on {found}", f"one device: x.to({str(device)!r})")


_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def require_floats(operator: str, *tensors: Tensor | None) -> None:
    """JIT010 for integers, flags, complex numbers and floats of 8 bits."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype not in _FLOATS:
            misfit(operator, described(*tensors), "float32, bfloat16, float16 or float64: x.float()")


def _is_integer(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool | torch.Tensor)


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool | torch.Tensor)


_Kind: TypeAlias = tuple[str, Callable[[Any], bool]]
_INTEGER: _Kind = ("an integer", _is_integer)
_NUMBER: _Kind = ("a number", _is_number)
_FLAG: _Kind = ("True or False", lambda value: isinstance(value, bool))
_TEXT: _Kind = ("text", lambda value: isinstance(value, str))
_DTYPE: _Kind = ("a dtype", lambda value: isinstance(value, torch.dtype))
_NONE: _Kind = ("None", lambda value: value is None)
_KINDS: dict[str, tuple[_Kind, ...]] = {
    **dict.fromkeys(("dim", "k", "align", "ignore_index", "experts"), (_INTEGER,)),
    **dict.fromkeys(("capacity", "chunk", "window", "split", "block", "padding_idx"), (_INTEGER, _NONE)),
    **dict.fromkeys(("eps", "label_smoothing", "factor", "alpha"), (_NUMBER,)),
    **dict.fromkeys(("scale", "softcap"), (_NUMBER, _NONE)),
    **dict.fromkeys(("causal", "normalise", "heads_first", "batch_invariant", "left_padded", "packed"), (_FLAG,)),
    **dict.fromkeys(("activation", "reduction", "scores"), (_TEXT,)),
    "balanced": (_FLAG, _NONE),
    "dtype": (_DTYPE, _NONE),
}
"""Of each option what it may be."""


def require_options(operator: str, **given: Any) -> None:
    """JIT010 for options of other types; a compiled graph has them as they were traced."""
    if torch.compiler.is_compiling():
        return
    for name, value in given.items():
        kinds = _KINDS[name]
        if not any(is_of(value) for _, is_of in kinds):
            misfit(operator, f"{name}={shown(value)}", " or ".join(kind for kind, _ in kinds))


def ending(window: int | None) -> int | None:
    """The window, or None where it is ``ENDLESS``."""
    return None if window is not None and window >= ENDLESS else window


def is_pair(value: Any, of: type) -> bool:
    """Two of a type."""
    return isinstance(value, tuple | list) and [isinstance(v, of) for v in cast("list[Any]", value)] == [True, True]


def described(*tensors: Tensor | None) -> str:
    """Shapes and dtypes, for what is found."""
    return ", ".join("None" if t is None else f"{tuple(t.shape)} {str(t.dtype)[6:]}" for t in tensors)


def require_axis(operator: str, x: Tensor, dim: int) -> None:
    """JIT010 where ``x`` has no axis ``dim``."""
    most = max(x.dim(), 1)
    if not -most <= dim < most:
        misfit(operator, f"dim={dim} of x of {tuple(x.shape)}", f"an axis from {-most} to {most - 1}")


def require_alike(out: Tensor, result: Tensor) -> None:
    """JIT010 for an ``out`` of another shape, dtype or device than the result, or what has these."""
    if not isinstance(out, torch.Tensor):
        fail("JIT010", found=f"out of {type(out).__name__}", required="a tensor as the result")
    if out.shape != result.shape or out.dtype != result.dtype or out.device != result.device:
        fail(
            "JIT010",
            found=f"out of {tuple(out.shape)}, {out.dtype} on {out.device}",
            required=f"{tuple(result.shape)}, {result.dtype} on {result.device}, as the result",
            help=f"out=x.new_empty({tuple(result.shape)}), or leave it out: the result is allocated",
        )


def on_rows(op: TorchOp, tensors: tuple[Tensor, ...], *others: Any, out: Tensor | None) -> Tensor:
    """``op`` on the rows of ``tensors``, which have one shape; straight into ``out`` where that has rows, too."""
    x = tensors[0]
    if x.dim() == 2:
        return op(*tensors, *others) if out is None else op(*tensors, *others, out=out)
    flat = tuple([rows(t) for t in tensors])
    y = op(*flat, *others).view(x.shape)
    note_rows(op, (*flat, *others), (*tensors, *others), x.shape)
    return stored(y, out)


def note_rows(op: TorchOp, rows: tuple[Any, ...], given: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    """Let ``op.known`` serve calls like that with ``given``, of which ``rows`` was made."""
    if not torch.compiler.is_compiling():
        op.note_rows(rows, given, tuple(shape))

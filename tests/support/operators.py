"""A small call of every operator that ``tilewright.ops`` registers with PyTorch, for its own checks (``opcheck``)."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402
from tilewright.ops import registration  # noqa: E402
from tilewright.ops.functional import (  # noqa: E402
    attentions,
    eight_bits,
    gated,
    grouped,
    indexed,
    linears,
    losses,
    norms,
    permutations,
    rotaries,
    rotary_norms,
    softmaxes,
    states,
)
from tilewright.ops.functional.dispatched import compositions  # noqa: E402

assert all(getattr(ops, name) for name in ops.__all__)  # all are registered
BF16 = torch.bfloat16
TARGET = torch.tensor([3, 0, -100, 7, 1, 2])
TABLE = torch.tensor([3, 0, 7, 1, 3])
GROUPS = torch.tensor([0, 2, 2, 5])
Arguments = Callable[[], tuple[Any, ...]]


def normal(*shape: int, dtype: Any = torch.float32, grad: bool = False) -> Any:
    """Random numbers, the same at every call."""
    random = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=random).to(dtype).requires_grad_(grad)


def _heads(count: int, *, width: int = 64, grad: bool = False) -> tuple[Any, ...]:
    """So many tensors of (1, 2, 6, width), the first with a gradient."""
    return tuple(normal(1, 2, 6, width, dtype=BF16, grad=grad and i == 0) for i in range(count))


def _of_kernels() -> dict[str, tuple[Any, Arguments]]:
    n, g = normal, lambda *shape: normal(*shape, grad=True)
    sums = tuple(n(1, 2, 6) for _ in range(2))

    def eight(*shape: int) -> Any:
        return normal(*shape).to(torch.float8_e4m3fn)

    of_heads = (*_heads(4), *sums, 0.1, True, 1)
    wide = (*_heads(4, width=256), *sums, 0.1, True, 1)
    return {
        "softmax": (softmaxes._softmax, lambda: (g(6, 10), None, 65536)),
        "log_softmax": (softmaxes._log_softmax, lambda: (g(6, 10), None, 65536)),
        "softmax_long": (softmaxes._softmax_long, lambda: (g(6, 10), True, None, None)),
        "softmax_backward": (softmaxes._softmax_backward, lambda: (n(6, 10), n(6, 10), None, None)),
        "log_softmax_backward": (softmaxes._log_softmax_backward, lambda: (n(6, 10), n(6, 10), None, None)),
        "rms_norm": (norms._rms_norm, lambda: (g(6, 10), g(10), 1e-6, None, 16384)),
        "rms_norm_bare": (norms._rms_norm, lambda: (g(6, 10), None, 1e-6, None, 16384)),
        "add_rms_norm": (norms._add_rms_norm, lambda: (g(6, 10), n(6, 10), g(10), 1e-6, None, 16384)),
        "rms_norm_backward": (norms._rms_backward, lambda: (n(6, 10), n(10), n(6, 10), None, 1e-6, None, None)),
        "rms_norm_gradients": (
            norms._gradients,
            lambda: (n(6, 10), n(10), n(6, 10), None, n(2, 10), 1e-6, 3, 8192),
        ),
        "layer_norm_gradients": (
            norms._one_pass,
            lambda: (n(6, 10), n(10), n(6, 10), n(6, 10), n(2, 2, 10), 1e-5, 3, 8192),
        ),
        "layer_norm": (norms._layer_norm, lambda: (g(6, 10), g(10), g(10), 1e-5, None, 16384)),
        "add_layer_norm": (norms._add_layer_norm, lambda: (g(6, 10), n(6, 10), n(10), None, 1e-5, None, 16384)),
        "layer_norm_backward": (
            norms._layer_backward,
            lambda: (n(6, 10), n(10), n(6, 10), n(6, 10), 1e-5, None, 16384),
        ),
        "norm_weight_backward": (
            norms._weight_backward,
            lambda: (n(2, 3, 10), n(2, 3, 10), None, n(2, 3), None, None),
        ),
        "norm_weights_backward": (
            norms._weights_backward,
            lambda: (n(2, 3, 10), n(2, 3, 10), n(2, 3), n(2, 3), None, None),
        ),
        "norm_weight_sums": (norms.weight_sums, lambda: (n(2, 3, 10), normal(10, dtype=BF16), 64, 32)),
        "swiglu": (gated._swiglu, lambda: (g(6, 10), n(6, 10), None, None)),
        "swiglu_backward": (gated._swiglu_backward, lambda: (n(6, 10), n(6, 10), n(6, 10), None, None)),
        "geglu": (gated._geglu, lambda: (g(6, 10), n(6, 10), True, None, None)),
        "geglu_backward": (gated._geglu_backward, lambda: (n(6, 10), n(6, 10), n(6, 10), False, None, None)),
        "cross_entropy": (losses._rows, lambda: (g(6, 10), TARGET, -100, 0.1, True, None, None)),
        "cross_entropy_backward": (
            losses._backward,
            lambda: (n(6, 10), TARGET, n(6), n(6), n(6), -100, 0.1, None, None),
        ),
        "cross_entropy_with_gradient": (
            losses._rows_with_gradient,
            lambda: (n(6, 10), TARGET, n(6), -100, 0.1, True, None, None),
        ),
        "scaled": (losses._scale, lambda: (n(60), n(1), None)),
        "rms_norm_rotary": (
            rotary_norms._rms_norm_rotary,
            lambda: (g(1, 5, 3, 2, 4), g(2, 4), n(1, 5, 4), n(1, 5, 4), 1e-6, None, 32),
        ),
        "rms_norm_rotary_gradients": (
            rotary_norms._gradients,
            lambda: (
                *(n(1, 5, 3, 2, 4), n(2, 4), n(1, 5, 4), n(1, 5, 4), n(1, 5, 3, 2, 4), n(1, 2, 3, 2, 4)),
                *(1e-6, 3, 16, 32),
            ),
        ),
        "rotary": (rotaries._rotary, lambda: (g(1, 5, 3, 2, 4), n(5, 4), n(5, 4), False, None, None)),
        "linear": (
            linears._linear,
            lambda: (
                *(normal(*s, dtype=BF16, grad=s == (6, 10)) for s in ((6, 10), (4, 10), (4,), (6, 4))),
                *("gelu", None, None, 64),
            ),
        ),
        "activation_backward": (linears._activation_backward, lambda: (n(6, 4), n(6, 4), "gelu_tanh", None, None)),
        "linear_kept": (
            linears._linear_kept,
            lambda: (
                *(normal(*s, dtype=BF16, grad=s == (6, 10)) for s in ((6, 10), (4, 10), (4,), (6, 4))),
                *("gelu", None, None, 64),
            ),
        ),
        **{
            f"scaled_linear {op.name}": (op, lambda: (*_of_scales(), None, n(5, 4), "gelu", True, 64, 128, 128))
            for op in linears._scaled_linears.values()
        },
        "quantize_rows": (eight_bits._rows, lambda: (n(6, 10), None, 65536)),
        "quantize_long_rows": (eight_bits._long_rows, lambda: (n(6, 10), 4, 1024)),
        "quantize_blocks": (eight_bits._blocks, lambda: (n(6, 200), 16)),
        "unpack_gradient": (
            permutations._row_gradients,
            lambda: (*_packed()[2:4], n(6, 64), n(_packed()[0].shape[0], 64), n(12), 2, 1024),
        ),
        "embedding": (indexed._embedding, lambda: (TABLE, g(8, 10), None, None)),
        "cumsum": (indexed._cumsum, lambda: (g(6, 10), None, None)),
        "cumsum_reverse": (indexed._cumsum_reverse, lambda: (g(6, 10), None, 256)),
        "grouped_matmul": (grouped._grouped, lambda: (GROUPS, g(6, 10), n(3, 4, 10), None, None, 64)),
        "grouped_weight_gradient": (
            grouped._weight_gradient,
            lambda: (GROUPS, n(6, 4), n(6, 10), None, None, 64),
        ),
        "grouped_scaled_rows": (
            grouped._scaled_rows,
            lambda: (GROUPS, eight(6, 16), n(6), eight(3, 16, 16), n(3, 16), None, None, 128),
        ),
        "grouped_scaled_blocks": (
            grouped._scaled_blocks,
            lambda: (GROUPS, eight(6, 144), n(6, 2), eight(3, 16, 144), n(3, 1, 2), 128, 128),
        ),
        "merge_states": (states._merge_states, lambda: (n(3, 6, 10), n(3, 6), None, 8)),
        "attention": (attentions._operator(64, lse=False), lambda: (*_heads(3), 0.1, True, 1, None, None)),
        "attention_lse": (
            attentions._operator(64, lse=True),
            lambda: (*_heads(3, grad=True), 0.1, True, 1, None, None),
        ),
        "attention_delta": (attentions._rows, lambda: (*_heads(2), 16, 64)),
        "attention_query_gradient": (attentions._backwards[64][0], lambda: (*of_heads, 64, 64)),
        "attention_key_gradients": (attentions._backwards[64][1], lambda: (*of_heads, 64, 64)),
        "attention_key_gradient": (attentions._backwards[256][1], lambda: (*wide, 32, 64)),
        "attention_value_gradient": (attentions._backwards[256][2], lambda: (*wide, 32, 64)),
    }


def _mixture(*, grad: bool = True) -> tuple[Any, ...]:
    """x, ids, weights, gate_up, down."""
    x, gate_up, down = (normal(*s, dtype=BF16, grad=grad) for s in ((6, 64), (3, 128, 64), (3, 64, 64)))
    ids = torch.tensor([[0, 1], [2, 1], [1, 0], [0, 2], [2, 0], [1, 2]])
    return x, ids, normal(6, 2).abs().requires_grad_(grad), gate_up, down


def _of_eight_bits() -> tuple[Any, ...]:
    x, ids, weights, *both = _mixture(grad=False)
    gate_up, down = (w.to(torch.float8_e4m3fn) for w in both)
    return x, ids, weights, gate_up, normal(3, 128).abs(), down, normal(3, 64).abs(), 128, -1


def _of_experts_backward() -> tuple[Any, ...]:
    given = _mixture(grad=False)
    y, *kept = torch.ops.tilewright.experts(*given, 64, -1, True)
    return (y, *given[2:], *kept, 64, -1)


def _of_scales() -> tuple[Any, ...]:
    """Two factors of 8 bits, and the scales of their blocks."""
    factors = (normal(*s).to(torch.float8_e4m3fn) for s in ((5, 200), (4, 200)))
    return (*factors, normal(5, 2).abs(), normal(1, 2).abs())


def _packed() -> tuple[Any, ...]:
    """Packed rows, and the plan's slots, rows and pairs."""
    x, ids, *_ = _mixture(grad=False)
    packed, plan = ops.permute(x.float(), ids, 3, align=4)
    return packed.requires_grad_(), plan.slots, plan.rows, plan.pairs


def _sequences() -> tuple[Any, ...]:
    offsets = torch.tensor([0, 2, 6], dtype=torch.int32)
    used = torch.tensor([1, 9], dtype=torch.int32)
    rows = (normal(6, heads, 64, dtype=BF16) for heads in (4, 2, 2))
    return (*rows, offsets, offsets, normal(4), None, used, 0.125, True, 5, 2.0, False, False)


def _of_sequences_backward() -> tuple[Any, ...]:
    q, k, v, cu_q, cu_k, sinks, used_q, used_k, *options, _ = _sequences()
    rows = normal(6, 4, 64, dtype=BF16), q, k, v
    return (*rows, cu_q, cu_k, sinks, used_q, used_k, normal(6, 4, 64, dtype=BF16), normal(4, 6), *options)


def _pages() -> tuple[Any, ...]:
    q, k, v = (normal(*s, dtype=BF16) for s in ((2, 2, 4, 64), (8, 16, 2, 64), (8, 16, 2, 64)))
    table = torch.tensor([[3, 1, 4], [5, -1, -1]], dtype=torch.int32)
    return q, k, v, table, torch.tensor([40, 9], dtype=torch.int32), None, None, None, 0.125, 5, 64, False


def _appended() -> tuple[Any, ...]:
    key, value, k, v = (normal(*s, dtype=BF16) for s in (*[(3, 2, 64)] * 2, *[(8, 16, 2, 64)] * 2))
    slots, query = torch.tensor([3, -1, 17], dtype=torch.int32), normal(3, 4, 64, dtype=BF16)
    return key, value, k, v, slots, normal(3, 32), normal(3, 32), None, None, query, torch.zeros_like(query)


def _of_compositions() -> dict[str, Arguments]:
    n, g = normal, lambda *shape: normal(*shape, grad=True)
    return {
        "attention_backward": lambda: (*_heads(5), n(1, 2, 6), 0.1, True),
        "embedding_backward": lambda: (g(5, 10), TABLE, 8),
        "experts": lambda: (*_mixture(), 64, -1, True),
        "experts_backward": _of_experts_backward,
        "experts_of_eight_bits": _of_eight_bits,
        "index_add": lambda: (g(8, 10), TABLE, n(5, 10)),
        "linear_cross_entropy_rows": lambda: (g(6, 8), g(10, 8), None, TARGET, -100, 0.1, 0),
        "linear_cross_entropy_gradients": lambda: (
            *(n(6), n(6, 8), n(10, 8), n(10), TARGET, -100, 0.0, 4),
            *(True, True, True),
        ),
        "linear_cross_entropy_reduced": lambda: (
            *(g(6, 8), n(10, 8), None, TARGET, -100, 0.0, 4, True),
            *(True, False, False),
        ),
        "linear_cross_entropy_scaled": lambda: (n(), n(6, 8), n(0), n(10), n(6, 8), n(10, 8), n(10)),
        "decode_parts": lambda: (torch.tensor([40, 9], dtype=torch.int32), 8, 25, 1, None),
        "pack_plan": lambda: (_mixture(grad=False)[1], 3, 4, -1),
        "pack_rows": lambda: (g(6, 64), *_packed()[1:]),
        "paged_append": _appended,
        "paged_decode": _pages,
        "paged_decode_out": lambda: (*_pages(), normal(2, 2, 4, 64, dtype=BF16), n(2, 2, 4)),
        "products_by_group": lambda: (GROUPS, g(6, 10), g(3, 4, 10)),
        "route": lambda: (*(normal(*s, dtype=BF16, grad=True) for s in ((6, 64), (3, 64))), 2, True, False),
        "unpack_rows": lambda: (*_packed(), g(6, 2)),
        "weight_gradients_by_group": lambda: (GROUPS, n(6, 4), n(6, 10)),
        "varlen_attention": _sequences,
        "varlen_attention_backward": _of_sequences_backward,
        "varlen_attention_out": lambda: (*_sequences(), normal(6, 4, 64, dtype=BF16), n(4, 6)),
    }


OF_KERNELS = _of_kernels()
"""Operators of one kernel."""
_COMPOSED = _of_compositions()


def _into(name: str) -> tuple[Any, ...]:
    """Arguments of the form with ``out=``."""
    op, arguments = OF_KERNELS[name]
    values = tuple(v.detach() if isinstance(v, torch.Tensor) else v for v in arguments())
    return (*values, *(torch.empty(shape, dtype=dtype) for shape, dtype in op.signature.described(values)))


CALLS: dict[str, tuple[Any, Arguments]] = (
    {name: (op.overload, arguments) for name, (op, arguments) in OF_KERNELS.items()}
    | {f"{name}, out=": (op.out_overload, lambda name=name: _into(name)) for name, (op, _) in OF_KERNELS.items()}
    | {name: (getattr(torch.ops.tilewright, name).default, arguments) for name, arguments in _COMPOSED.items()}
)
"""By a name: the operator, and what makes its arguments, tensors of the CPU."""


def unchecked() -> set[str]:
    """Names of operators that ``CALLS`` has not; of heads of 128 and 256 those of 64 stand for them."""
    ours = {op.name for op in registration.operators() if op.name.startswith("tilewright::")}
    ours |= {f"tilewright::{c.name}" for c in compositions()}
    checked = {overload.name().removesuffix("_out") for overload, _ in CALLS.values()}
    return ours - checked - {name.replace("_64", f"_{width}") for name in checked for width in (128, 256)}


_UTILS = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
"""All tests but that of schemas, which multiplies the arguments: PyTorch has no products of 8-bit floats."""


def opcheck(name: str, device: str = "cpu") -> None:
    """All of PyTorch's tests of an operator."""
    overload, arguments = CALLS[name]

    def placed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    given = tuple(map(placed, arguments()))
    eight_bits = any(isinstance(v, torch.Tensor) and v.dtype == torch.float8_e4m3fn for v in given)
    torch.library.opcheck(overload, given, test_utils=_UTILS if eight_bits else ("test_schema", *_UTILS))

"""Operators of PyTorch, shipped compiled: ``from tilewright import ops; y = ops.rms_norm(x, weight)``.

They run under autograd, autocast and ``torch.compile``; tensors of the CPU, and of dtypes that no kernel has, are
computed by PyTorch. Their kernels are in ``ops.kernels``, which needs no PyTorch; ``ops.listing`` says what is shipped
of them, ``tilewright build ops`` makes the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.ops.execution import simulated
    from tilewright.ops.functional import (
        add_layer_norm,
        add_rms_norm,
        attention,
        attention_with_lse,
        cross_entropy,
        cumsum,
        decode_parts,
        embedding,
        experts,
        geglu,
        grouped_matmul,
        index_add,
        layer_norm,
        linear,
        linear_cross_entropy,
        log_softmax,
        matmul,
        merge_states,
        moe,
        paged_append,
        paged_decode,
        paged_decode_with_lse,
        permute,
        quantize,
        rms_norm,
        rotary,
        softmax,
        swiglu,
        unpermute,
        varlen_attention,
        varlen_attention_with_lse,
    )

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "attention",
    "attention_with_lse",
    "cross_entropy",
    "cumsum",
    "decode_parts",
    "embedding",
    "experts",
    "geglu",
    "grouped_matmul",
    "index_add",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "matmul",
    "merge_states",
    "moe",
    "paged_append",
    "paged_decode",
    "paged_decode_with_lse",
    "permute",
    "quantize",
    "rms_norm",
    "rotary",
    "simulated",
    "softmax",
    "swiglu",
    "unpermute",
    "varlen_attention",
    "varlen_attention_with_lse",
]


def __getattr__(name: str) -> Any:
    """PyTorch is imported when the first operator is asked for; JIT005 where it is not installed."""
    if name not in __all__:
        raise AttributeError(f"module 'tilewright.ops' has no attribute {name!r}")
    from tilewright.ops import execution, functional  # noqa: PLC0415 - what lists or builds kernels needs no PyTorch

    found = execution.simulated if name == "simulated" else getattr(functional, name)
    globals()[name] = found
    return found

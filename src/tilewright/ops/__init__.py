"""Operators of PyTorch, shipped compiled: ``from tilewright import ops; y = ops.rms_norm(x, weight)``.

They run under autograd, autocast and ``torch.compile``; tensors of the CPU, and of dtypes that no kernel has, are
computed by PyTorch. Their kernels are in ``ops.kernels``, which needs no PyTorch; ``ops.listing`` says what is shipped
of them, ``tilewright build ops`` makes the folder.
"""

from __future__ import annotations

from importlib import import_module  # noqa: TID251 - modules of this room, named below
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.ops.execution import simulated
    from tilewright.ops.functional.appending import paged_append
    from tilewright.ops.functional.attentions import attention, attention_with_lse
    from tilewright.ops.functional.eight_bits import quantize
    from tilewright.ops.functional.experts import experts, moe
    from tilewright.ops.functional.gated import geglu, swiglu
    from tilewright.ops.functional.grouped import grouped_matmul
    from tilewright.ops.functional.indexed import cumsum, embedding, index_add
    from tilewright.ops.functional.linears import linear, matmul
    from tilewright.ops.functional.losses import cross_entropy, linear_cross_entropy
    from tilewright.ops.functional.norms import add_layer_norm, add_rms_norm, layer_norm, rms_norm
    from tilewright.ops.functional.paged import decode_parts, paged_decode, paged_decode_with_lse
    from tilewright.ops.functional.permutations import permute, unpermute
    from tilewright.ops.functional.rotaries import rotary
    from tilewright.ops.functional.rotary_norms import rms_norm_rotary
    from tilewright.ops.functional.softmaxes import log_softmax, softmax
    from tilewright.ops.functional.states import merge_states
    from tilewright.ops.functional.varlen import varlen_attention, varlen_attention_with_lse

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
    "rms_norm_rotary",
    "rotary",
    "simulated",
    "softmax",
    "swiglu",
    "unpermute",
    "varlen_attention",
    "varlen_attention_with_lse",
]


_MODULES = {
    "execution": ("simulated",),
    "functional.appending": ("paged_append",),
    "functional.attentions": (
        "attention",
        "attention_with_lse",
    ),
    "functional.eight_bits": ("quantize",),
    "functional.experts": (
        "experts",
        "moe",
    ),
    "functional.gated": (
        "geglu",
        "swiglu",
    ),
    "functional.grouped": ("grouped_matmul",),
    "functional.indexed": (
        "cumsum",
        "embedding",
        "index_add",
    ),
    "functional.linears": (
        "linear",
        "matmul",
    ),
    "functional.losses": (
        "cross_entropy",
        "linear_cross_entropy",
    ),
    "functional.norms": (
        "add_layer_norm",
        "add_rms_norm",
        "layer_norm",
        "rms_norm",
    ),
    "functional.paged": (
        "decode_parts",
        "paged_decode",
        "paged_decode_with_lse",
    ),
    "functional.permutations": (
        "permute",
        "unpermute",
    ),
    "functional.rotaries": ("rotary",),
    "functional.rotary_norms": ("rms_norm_rotary",),
    "functional.softmaxes": (
        "log_softmax",
        "softmax",
    ),
    "functional.states": ("merge_states",),
    "functional.varlen": (
        "varlen_attention",
        "varlen_attention_with_lse",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A module is imported, and its operators registered, when the first of its functions is asked for; PyTorch with
    the first of all, JIT005 where it is not installed."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tilewright.ops' has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found

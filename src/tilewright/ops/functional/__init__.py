"""Operators for PyTorch's tensors. They take and return what the functions of PyTorch of the same names do."""

from __future__ import annotations

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
    "rotary",
    "softmax",
    "swiglu",
    "unpermute",
    "varlen_attention",
    "varlen_attention_with_lse",
]

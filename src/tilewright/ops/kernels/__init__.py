"""Kernels of usual form. Called directly they are kernels like a user's: results are arguments, or are allocated.

``from tilewright.ops.kernels import rms_norm; rms_norm(x, w, y)`` launches without a compiler where the artifact was
shipped. ``ops.listing`` says for which dtypes, rows and targets that is; ``tilewright build ops`` makes the folder.
"""

from __future__ import annotations

from tilewright.ops.kernels.attention import (
    attention,
    attention_delta,
    attention_key_gradients,
    attention_query_gradient,
    scored_attention,
    scored_key_gradients,
    scored_query_gradient,
)
from tilewright.ops.kernels.eight_bits import (
    pack_in_eight_bits,
    quantize_blocks,
    quantize_long_rows,
    quantize_rows,
    scaled_linear,
)
from tilewright.ops.kernels.elementwise import add, geglu, geglu_backward, scaled, swiglu, swiglu_backward
from tilewright.ops.kernels.experts import (
    choose,
    down_experts,
    expert_weight_gradient,
    gated_experts,
    gated_experts_backward,
    scales_of_rows,
)
from tilewright.ops.kernels.grouped import (
    grouped_matmul,
    grouped_scaled_blocks,
    grouped_scaled_rows,
    grouped_weight_gradient,
)
from tilewright.ops.kernels.indexed import (
    ENTRIES,
    count_earlier,
    count_entries,
    cumsum,
    embedding,
    index_add,
    lay_out_rows,
    place_entries,
    sum_entries,
)
from tilewright.ops.kernels.losses import cross_entropy, cross_entropy_backward, cross_entropy_with_gradient
from tilewright.ops.kernels.norms import (
    add_layer_norm,
    add_rms_norm,
    layer_norm,
    layer_norm_backward,
    layer_norm_gradients,
    norm_weight_backward,
    norm_weight_sums,
    rms_norm,
    rms_norm_backward,
    rms_norm_gradients,
)
from tilewright.ops.kernels.paged import (
    decode_parts,
    merge_parts,
    merge_states,
    paged_append,
    paged_decode,
    paged_decode_parts,
    token_rows,
)
from tilewright.ops.kernels.products import linear, matmul
from tilewright.ops.kernels.rotaries import rotary
from tilewright.ops.kernels.softmaxes import (
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
    softmax_long,
)
from tilewright.ops.kernels.varlen import packed_attention, sequence_places, varlen_attention
from tilewright.ops.kernels.varlen_gradients import varlen_key_gradients, varlen_query_gradient

__all__ = [
    "ENTRIES",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "attention",
    "attention_delta",
    "attention_key_gradients",
    "attention_query_gradient",
    "choose",
    "count_earlier",
    "count_entries",
    "cross_entropy",
    "cross_entropy_backward",
    "cross_entropy_with_gradient",
    "cumsum",
    "decode_parts",
    "down_experts",
    "embedding",
    "expert_weight_gradient",
    "gated_experts",
    "gated_experts_backward",
    "geglu",
    "geglu_backward",
    "grouped_matmul",
    "grouped_scaled_blocks",
    "grouped_scaled_rows",
    "grouped_weight_gradient",
    "index_add",
    "lay_out_rows",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_gradients",
    "linear",
    "log_softmax",
    "log_softmax_backward",
    "matmul",
    "merge_parts",
    "merge_states",
    "norm_weight_backward",
    "norm_weight_sums",
    "pack_in_eight_bits",
    "packed_attention",
    "paged_append",
    "paged_decode",
    "paged_decode_parts",
    "place_entries",
    "quantize_blocks",
    "quantize_long_rows",
    "quantize_rows",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_gradients",
    "rotary",
    "scaled",
    "scaled_linear",
    "scales_of_rows",
    "scored_attention",
    "scored_key_gradients",
    "scored_query_gradient",
    "sequence_places",
    "softmax",
    "softmax_backward",
    "softmax_long",
    "sum_entries",
    "swiglu",
    "swiglu_backward",
    "token_rows",
    "varlen_attention",
    "varlen_key_gradients",
    "varlen_query_gradient",
]

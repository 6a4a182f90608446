"""Operators for PyTorch's tensors. They take and return what the functions of PyTorch of the same names do."""

from __future__ import annotations

from tilewright.ops.functional.appending import paged_append as paged_append
from tilewright.ops.functional.attentions import attention as attention
from tilewright.ops.functional.attentions import attention_with_lse as attention_with_lse
from tilewright.ops.functional.eight_bits import quantize as quantize
from tilewright.ops.functional.experts import experts as experts
from tilewright.ops.functional.experts import moe as moe
from tilewright.ops.functional.gated import geglu as geglu
from tilewright.ops.functional.gated import swiglu as swiglu
from tilewright.ops.functional.grouped import grouped_matmul as grouped_matmul
from tilewright.ops.functional.indexed import cumsum as cumsum
from tilewright.ops.functional.indexed import embedding as embedding
from tilewright.ops.functional.indexed import index_add as index_add
from tilewright.ops.functional.linears import linear as linear
from tilewright.ops.functional.linears import matmul as matmul
from tilewright.ops.functional.losses import cross_entropy as cross_entropy
from tilewright.ops.functional.losses import linear_cross_entropy as linear_cross_entropy
from tilewright.ops.functional.norms import add_layer_norm as add_layer_norm
from tilewright.ops.functional.norms import add_rms_norm as add_rms_norm
from tilewright.ops.functional.norms import layer_norm as layer_norm
from tilewright.ops.functional.norms import rms_norm as rms_norm
from tilewright.ops.functional.paged import decode_parts as decode_parts
from tilewright.ops.functional.paged import paged_decode as paged_decode
from tilewright.ops.functional.paged import paged_decode_with_lse as paged_decode_with_lse
from tilewright.ops.functional.permutations import permute as permute
from tilewright.ops.functional.permutations import unpermute as unpermute
from tilewright.ops.functional.rotaries import rotary as rotary
from tilewright.ops.functional.softmaxes import log_softmax as log_softmax
from tilewright.ops.functional.softmaxes import softmax as softmax
from tilewright.ops.functional.states import merge_states as merge_states
from tilewright.ops.functional.varlen import varlen_attention as varlen_attention
from tilewright.ops.functional.varlen import varlen_attention_with_lse as varlen_attention_with_lse

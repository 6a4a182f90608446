"""The attention of Qwen3 and Qwen3-MoE in transformers, which normalises queries and keys and turns them then."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import Any, cast

from tilewright import ops
from tilewright.ops.proposals import NOTES, Forward, Proposal, has_hooks, is_own, own
from tilewright.ops.pytorch import Tensor, torch

_KINDS = ("Qwen3Attention", "Qwen3MoeAttention")
_PARTS = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
_NORMS = ("q_norm", "k_norm")
_CACHES = ("cache", "past_key_values")
"""What its forward calls the cache, by the release."""
_WINS = {"inference": True, "training": False}
"""In graphs of ``torch.compile``. Without gradients a layer of 128 experts, 4,096 tokens, takes 1183 us (H200), with
its norms alone as operators 1204 to 1285; training has not been timed: there its norms alone are operators."""


def propose(module: Any) -> Proposal | None:
    """To compute such an attention with one operator in place of a norm and the rotary embedding; None of others."""
    if type(module).__name__ not in _KINDS or not all(hasattr(module, part) for part in _PARTS):
        return None
    takes = tuple(inspect.signature(cast("Any", type(module)).forward).parameters)[1:]
    if takes[:3] != ("hidden_states", "position_embeddings", "attention_mask") or takes[3] not in _CACHES:
        return Proposal(reason=f"its forward takes {', '.join(takes)}")
    norms = [getattr(module, name) for name in _NORMS]
    if not all(isinstance(getattr(norm, "variance_epsilon", None), float) for norm in norms):
        return Proposal(reason="its norms have no variance_epsilon")
    forward = partial(_forward, name=takes[3])
    cast("Any", forward).note = NOTES[_WINS["inference"], _WINS["training"]]
    return Proposal(
        "ops.rms_norm_rotary",
        forward,
        module.q_proj.in_features,
        takes=takes[1:],
        passes_by=_NORMS,
        probe=partial(_probe, name=takes[3]),
    )


def _forward(
    self: Any,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    attention_mask: Tensor | None = None,
    cache: Any = None,
    *,
    name: str,
    **given: Any,
) -> tuple[Tensor, Any]:
    """The module's own, but for the operator; all of it where something hooks the norms."""
    cache = given.pop(name, cache)
    if is_own(hidden_states, self.parameters(), **_WINS) or has_hooks(self.q_norm) or has_hooks(self.k_norm):
        return own(self, hidden_states, position_embeddings, attention_mask, cache, **given)
    parts = self.q_proj, self.k_proj, self.v_proj
    q, k, v = (part(hidden_states).unflatten(-1, (-1, self.head_dim)) for part in parts)
    q, k = (_turned(x, norm, *position_embeddings) for x, norm in ((q, self.q_norm), (k, self.k_norm)))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if cache is not None:
        more = {"kwargs": given} if name == _CACHES[0] else {}
        k, v = cache.update(k, v, self.layer_idx, **more)
    functions = sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS
    attend = (
        functions.get(self.config._attn_implementation) or sys.modules[type(self).__module__].eager_attention_forward
    )
    dropout = self.attention_dropout if self.training else 0.0
    options = {"dropout": dropout, "scaling": self.scaling, "sliding_window": self.sliding_window}
    y, weights = attend(self, q, k, v, attention_mask, **options, **given)
    return self.o_proj(y.flatten(2)), weights


def _turned(x: Tensor, norm: Any, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, norm.weight.dtype))
    return ops.rms_norm_rotary(wide, norm.weight, cos, sin, eps=norm.variance_epsilon)


class _Recorded:
    """As much of a cache as such a module asks."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def update(self, keys: Tensor, values: Tensor, layer: int, **named: Any) -> tuple[Tensor, Tensor]:
        told = torch.tensor([layer, *" ".join(sorted(named)).encode()])
        self.seen += [keys, values, told.to(keys)]
        return keys, values


def _probe(way: Forward, module: Any, x: Tensor, *, name: str) -> Tensor:
    """The result, and what goes into the cache."""
    turns = torch.arange(x.shape[1])[:, None] * torch.linspace(1, 0.1, module.head_dim // 2)
    turns = torch.cat((turns, turns), -1)[None].to(x.device)
    angles, recorded = (turns.cos().to(x.dtype), turns.sin().to(x.dtype)), _Recorded()
    y, _ = way(module, hidden_states=x, position_embeddings=angles, attention_mask=None, **{name: recorded})
    return torch.cat([t.flatten() for t in (y, *recorded.seen)])

"""The registry of attention functions that transformers has: a name of ours beside its own, chosen by one model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilewright.ops.functional.attentions import WIDTHS, attention, is_of_kernels
from tilewright.ops.pytorch import Tensor

NAME = "tilewright"
_REPLACES = "sdpa"


def choose_attention(model: Any) -> tuple[str, Callable[[], None] | None] | None:
    """Make a model of transformers take our attention, by its own setting. Returns why not, or where not, and what
    undoes it; None for a model that is not one of transformers."""
    config = getattr(model, "config", None)
    if not hasattr(model, "set_attn_implementation") or "transformers" not in sys.modules:
        return None
    before = getattr(config, "_attn_implementation", None)
    if before != _REPLACES:
        return f"its attention is {before}, and only {_REPLACES} is replaced", None
    heads, width = (getattr(config, name, None) for name in ("num_attention_heads", "hidden_size"))
    width = getattr(config, "head_dim", None) or (width // heads if heads and width else WIDTHS[0])
    if width not in WIDTHS:
        return f"heads of {width} elements: kernels have {', '.join(map(str, WIDTHS))}", None
    try:
        _register()
        model.set_attn_implementation(NAME)
    except Exception as error:  # of a release whose registry is another
        return f"choosing it failed: {error!r:.120}", None

    def undo() -> None:
        model.set_attn_implementation(before)

    window = _window(config)
    return "" if window is None else f"of more than the {window} tokens of a window by {_REPLACES}", undo


def _window(config: Any) -> int | None:
    """Of a model in which a token does not see all before it."""
    if not getattr(config, "use_sliding_window", True) or {*(getattr(config, "layer_types", None) or ())} == {_FULL}:
        return None
    return getattr(config, "sliding_window", None)


_FULL = "full_attention"


def _register() -> None:
    """Add the name to the registries of functions and of masks, of which those for ``sdpa`` serve."""
    functions = sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS
    masks = sys.modules["transformers.masking_utils"].ALL_MASK_ATTENTION_FUNCTIONS
    functions.register(NAME, _attend)
    masks.register(NAME, masks[_REPLACES])


_PLAIN = frozenset(("position_ids", "use_cache", "cache_position", "sliding_window", "output_attentions"))


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
) -> tuple[Tensor, None]:
    """(batch, tokens, heads, width), as models want it: by our kernel where there is no mask, nothing is dropped, no
    window hides a key, and queries are as many as keys; else by the function that we stand beside."""
    causal = given.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    scale = given.get("scaling")
    known = _PLAIN | {"is_causal", "scaling", "dropout"}
    others = any(value is not None for name, value in given.items() if name not in known)
    window = given.get("sliding_window")
    hides = window is not None and window < key.shape[2]
    asks = given.get("dropout") or hides or given.get("output_attentions")
    fits = query.shape[2] == key.shape[2] or not causal
    if attention_mask is not None or others or asks or not fits or not is_of_kernels(query, key, value):
        functions = sys.modules["transformers.modeling_utils"].ALL_ATTENTION_FUNCTIONS
        return functions[_REPLACES](module, query, key, value, attention_mask, **given)
    return attention(query, key, value, causal=causal, scale=scale).transpose(1, 2).contiguous(), None

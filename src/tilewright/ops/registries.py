"""The registries from which a transformers model takes its attention and its loss, and the choice of both for one
model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

from tilewright.ops.functional.attentions import WIDTHS, attention, is_of_kernels
from tilewright.ops.functional.losses import cross_entropy
from tilewright.ops.pytorch import Tensor, torch

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


def choose_loss(model: Any) -> tuple[str, Callable[[], None] | None] | None:
    """The same for the loss of its tokens: the name of its function, and what undoes it, None where it is another than
    that of causal models; None for a model without one."""
    losses = sys.modules.get("transformers.loss.loss_utils")
    if (
        losses is None
        or not hasattr(cast("Any", type(model)), "loss_function")
        or not hasattr(model, "get_output_embeddings")
    ):
        return None
    if model.get_output_embeddings() is None:  # a body without a head
        return None
    own, given = model.loss_function, getattr(model, "_loss_function", None)
    if own is not losses.ForCausalLMLoss:
        return getattr(own, "__name__", repr(own)), None
    model.loss_function = _causal_loss

    def undo() -> None:
        if model.loss_function is _causal_loss:
            del model._loss_function
            if given is not None:
                model.loss_function = given

    return own.__name__, undo


def _causal_loss(
    logits: Tensor,
    labels: Tensor | None,
    vocab_size: int,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """transformers' ``ForCausalLMLoss``, float32 as that is, without a float32 copy of the logits: each row's target is
    the label behind it; the mean, or the sum over ``num_items_in_batch``."""
    behind = (
        torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:] if shift_labels is None else shift_labels
    )
    target = behind.reshape(-1).to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    flat = logits.reshape(-1, vocab_size)
    loss = cross_entropy(flat, target, ignore_index=ignore_index, reduction=reduction, dtype=torch.float32)
    if num_items_in_batch is None:
        return loss
    count = num_items_in_batch
    return loss / (count.to(loss.device) if isinstance(count, torch.Tensor) else count)

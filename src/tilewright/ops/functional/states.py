"""States of attention over parts of the keys, joined: a prefix that sequences share, parts of a cache."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import is_served, misfit, require_tensors
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op

_WIDEST = 512
"""Elements of a row that a program holds."""


def _joined(o: Any, lse: Any, bm: Any = None, bc: Any = None) -> Any:
    whole = torch.logsumexp(lse, 0)
    weights = torch.where(whole == -torch.inf, 0.0, torch.exp(lse - whole))
    wide = o if o.dtype == torch.float64 else o.float()
    return (wide * weights[..., None]).sum(0).to(o.dtype), whole


_merge_states = op(name="tilewright::merge_states", outputs=("y", "whole"), dtypes={"whole": "lse"}, fallback=_joined)(
    kernels.merge_states
)


def merge_states(y: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """What attention over all keys gives, and its lse, of what it gives over parts of them.

    ``y`` of (parts, ..., width) and ``lse`` of (parts, ...) in float32, as ``attention_with_lse`` and
    ``paged_decode_with_lse`` return them: natural logarithms, -inf of a part without keys. A row without keys in all
    parts is zeros. There is no gradient (JIT011 on a GPU). JIT010 for other shapes.
    """
    require_tensors("merge_states", (y, lse))
    if (
        y.dim() < 2
        or lse.shape != y.shape[:-1]
        or lse.dtype not in (torch.float32, torch.float64)
        or not y.is_floating_point()
    ):
        found = f"y of {tuple(y.shape)}, {y.dtype}, lse of {tuple(lse.shape)}, {lse.dtype}"
        misfit("merge_states", found, "floats of (parts, ..., width), and float32 of (parts, ...)")
    if not is_served(y, lse) or not y.numel() or y.shape[-1] > _WIDEST:
        return _joined(y, lse)
    parts, width = y.shape[0], y.shape[-1]
    whole, sums = _merge_states(y.reshape(parts, -1, width), lse.reshape(parts, -1))
    return whole.view(y.shape[1:]), sums.view(y.shape[1:-1])

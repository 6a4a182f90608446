"""Rows and blocks of 8-bit floats with their scales, as ``linear`` and ``experts`` take them."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.functional.arguments import ONE_TILE, is_served, misfit, require_options, require_tensors, rows
from tilewright.ops.kernels.eight_bits import BLOCK, GREATEST
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op

_F = torch.nn.functional


def _of_rows(x: Any, bp: Any = None, bd: Any = None) -> Any:
    top = x.abs().amax(1).float()
    top = torch.where(top == 0, 1.0, top)
    return (x.float() * (GREATEST / top)[:, None]).to(torch.float8_e4m3fn), top * (1 / GREATEST)


def _of_blocks(x: Any, bm: Any = None) -> Any:
    m, k = x.shape
    whole = _F.pad(x, (0, -k % BLOCK))
    y, scale = _of_rows(whole.reshape(-1, BLOCK))
    return y.view(whole.shape)[:, :k].contiguous(), scale.view(m, -1)


_TYPES = {"y": "e4m3", "scale": "f32"}
_rows = op(name="tilewright::quantize_rows", outputs=("y", "scale"), dtypes=_TYPES, fallback=_of_rows)(
    kernels.quantize_rows
)
_long_rows = op(name="tilewright::quantize_long_rows", outputs=("y", "scale"), dtypes=_TYPES, fallback=_of_rows)(
    kernels.quantize_long_rows
)
_blocks = op(name="tilewright::quantize_blocks", outputs=("y", "scale"), dtypes=_TYPES, fallback=_of_blocks)(
    kernels.quantize_blocks
)


def quantize(x: Tensor, *, block: int | None = None) -> tuple[Tensor, Tensor]:
    """(y of float8_e4m3fn and x's shape, scales in float32), so that x is about y * scale.

    x is of (..., width). A scale for each row, of (...,), or, with ``block=128``, for each 128 elements of a row, of
    (..., ceil(width / 128)): the greatest number there is 448 in y; of zeros the scale is 1 / 448. What ``linear``
    takes as ``x_scale``. There is no gradient (JIT011). JIT010 for other blocks, and for integers.
    """
    require_tensors("quantize", (x,))
    require_options("quantize", block=block)
    if block not in (None, BLOCK) or x.dim() == 0 or not x.dtype.is_floating_point:
        found = f"x of {tuple(x.shape)}, {x.dtype}, block={block}"
        misfit("quantize", found, f"floats of (..., width), block=None or {BLOCK}")
    flat = rows(x)
    if not is_served(x):
        flat = flat.float()
    if flat.numel():
        run = _blocks if block else _rows if flat.shape[1] <= ONE_TILE else _long_rows
        y, scale = run(flat)
    else:
        shape = (flat.shape[0], -(-flat.shape[1] // BLOCK)) if block else flat.shape[:1]
        y, scale = flat.to(torch.float8_e4m3fn), flat.new_full(shape, 1 / GREATEST)
    return y.view(x.shape), scale.float().view((*x.shape[:-1], *scale.shape[1:]))

"""Products of groups of rows, as in a mixture of experts whose rows are packed already."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tilewright.diag import shown
from tilewright.ops import kernels
from tilewright.ops.functional.arguments import (
    INDICES,
    LOW,
    is_pair,
    misfit,
    require_options,
    require_tensors,
    stored,
    to_low_precision,
)
from tilewright.ops.functional.dispatched import Composition
from tilewright.ops.kernels.eight_bits import BLOCK
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op


def _by_group(offsets: Any, a: Any, b: Any, bm: Any = None, bn: Any = None, bk: Any = None) -> Any:
    """A product a group, of offsets that the host reads."""
    ends = _ends(offsets, a)
    parts = [a[i:j] @ b[g].t() for g, (i, j) in enumerate(pairwise(ends))]
    return torch.cat([*parts, a.new_zeros(a.shape[0] - ends[-1], b.shape[1])])


def _ends(offsets: Any, x: Any) -> list[int]:
    """JIT010 for offsets that do not ascend within the rows."""
    ends: list[int] = offsets.tolist()
    if ends[0] != 0 or any(j < i for i, j in pairwise(ends)) or ends[-1] > x.shape[0]:
        required = f"ascending integers from 0 to at most {x.shape[0]}, the rows"
        misfit("grouped_matmul", f"offsets={shown(ends)}", required)
    return ends


def _weights_by_group(offsets: Any, y: Any, x: Any, bm: Any = None, bn: Any = None, bk: Any = None) -> Any:
    ends = _ends(offsets, x)
    return torch.stack([y[i:j].t() @ x[i:j] for i, j in pairwise(ends)])


def _gradients(offsets: Tensor, a: Tensor, b: Tensor, bm: int | None, dc: Tensor) -> Any:
    da = _grouped(offsets, dc, b.transpose(1, 2), **({} if bm is None else _tiles(b.shape[2])))
    return None, da, _weight_gradient(offsets, dc, a)


def _tiles(columns: int) -> dict[str, int]:
    """One tile for any number of rows; a wide one where there are columns for several."""
    return {"bm": 128, "bn": 256 if columns >= 1024 else 128}


_weight_gradient = op(name="tilewright::grouped_weight_gradient", dtypes={"dw": "x"}, fallback=_weights_by_group)(
    kernels.grouped_weight_gradient
)
_grouped = op(name="tilewright::grouped_matmul", backward=_gradients, fallback=_by_group)(kernels.grouped_matmul)


# -- 8-bit floats with scales -----------------------------------------------------------------------------------------
def _scaled_by_group(
    offsets: Any, a: Any, a_scale: Any, b: Any, b_scale: Any, bm: Any = None, bn: Any = None, bk: Any = None
) -> Any:
    return _by_group(offsets, _scaled_floats(a, a_scale), _scaled_floats(b, b_scale)).to(torch.bfloat16)


def _scaled_floats(x: Any, scale: Any) -> Any:
    """8-bit floats times the scales of their rows or blocks, in float32."""
    if scale.dim() < x.dim():
        return x.float() * scale[..., None]
    each = scale.repeat_interleave(BLOCK, -1)[..., : x.shape[-1]]
    if x.dim() == 3:
        each = each.repeat_interleave(BLOCK, 1)[:, : x.shape[1]]
    return x.float() * each


_EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
_scaled_rows, _scaled_blocks = (
    op(name=f"tilewright::{name}", dtypes={"c": "bf16"}, fallback=_scaled_by_group)(getattr(kernels, name))
    for name in ("grouped_scaled_rows", "grouped_scaled_blocks")
)


def _scaled(x: Tensor, weight: Tensor, offsets: Tensor, scales: tuple[Tensor, Tensor]) -> tuple[Any, tuple[Any, ...]]:
    """The operator for these scales, and its arguments; JIT010 where there is none."""
    of_x, of_weight = scales
    rows, inner = x.shape
    groups, columns = weight.shape[:2]
    blocks = -(-inner // BLOCK)
    found = tuple(of_x.shape), tuple(of_weight.shape)
    by_row = found == ((rows,), (groups, columns))
    by_block = found == ((rows, blocks), (groups, -(-columns // BLOCK), blocks))
    floats = of_x.dtype == of_weight.dtype == torch.float32
    if not (floats and (by_row or by_block)) or x.dtype != weight.dtype or x.dtype not in _EIGHT_BITS:
        described = f"x of {x.dtype}, scales of {found[0]} {of_x.dtype} and {found[1]} {of_weight.dtype}"
        required = (
            f"8-bit floats with float32 scales of rows, ({rows},) and ({groups}, {columns}), or of blocks of {BLOCK}, "
            f"({rows}, {blocks}) and ({groups}, {-(-columns // BLOCK)}, {blocks})"
        )
        misfit("grouped_matmul", described, required)
    return _scaled_rows if by_row else _scaled_blocks, (offsets, x, of_x, weight, of_weight)


# -- dtypes that no kernel has: one operator, as graphs do not know the offsets ---------------------------------------
def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _gradients_by_group(ctx: Any, dc: Any) -> Any:
    offsets, a, b = ctx.saved_tensors
    return None, _products_by_group(offsets, dc, b.transpose(1, 2)), _weight_gradients_by_group(offsets, dc, a)


_products_by_group = Composition(
    "products_by_group(Tensor offsets, Tensor a, Tensor b) -> Tensor",
    _by_group,
    lambda offsets, a, b: a.new_empty(a.shape[0], b.shape[1]),
    _gradients_by_group,
    _save,
)
_weight_gradients_by_group = Composition(
    "weight_gradients_by_group(Tensor offsets, Tensor y, Tensor x) -> Tensor",
    _weights_by_group,
    lambda offsets, y, x: x.new_empty(offsets.shape[0] - 1, y.shape[1], x.shape[1]),
)


def grouped_matmul(
    x: Tensor,
    weight: Tensor,
    offsets: Tensor,
    *,
    scales: tuple[Tensor, Tensor] | None = None,
    batch_invariant: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """x[t] @ weight[g].T of each row's group g, for x of (rows, in) and weight of (groups, out, in).

    ``offsets``, of int32 or int64 and on x's device, are where groups begin and where the last one ends,
    (groups + 1,) from 0 on, or the ends alone, (groups,), as ``torch._grouped_mm`` has them. Groups may be empty; rows
    behind the last one are 0, and have no gradient. bfloat16 and float16 run on tensor cores, accumulated in float32,
    and nobody waits for the offsets; other dtypes are a product a group, of offsets that the host reads.
    ``batch_invariant``: on a GPU a row's result, and its gradient, has the same bits whatever other rows there are, and
    however many: one tile for all, where else the rows choose among several (few rows take longer so).
    ``scales``, float32, of x and weight of 8-bit floats: of rows, (rows,) and (groups, out), or of blocks of 128
    elements, (rows, in / 128) and (groups, out / 128, in / 128), rounded up; the result is bfloat16, without gradient.
    Under autocast in its dtype. JIT010 for other shapes; on a GPU, offsets that do not ascend are reported as those of
    ``tw.Offsets`` are (RUN023).
    """
    if scales is not None and not is_pair(scales, torch.Tensor):
        misfit("grouped_matmul", f"scales={type(scales).__name__}", "two tensors, or None")
    require_tensors("grouped_matmul", (x, weight, offsets), scales or ())
    require_options("grouped_matmul", batch_invariant=batch_invariant)
    x, weight = to_low_precision(x, weight)
    _check(x, weight, offsets)
    if offsets.shape[0] == weight.shape[0]:
        offsets = torch.nn.functional.pad(offsets, (1, 0))
    if scales is not None:
        run, given = _scaled(x, weight, offsets, scales)
        pinned = _tiles(weight.shape[1]) if batch_invariant and run is _scaled_rows else {}
        return run(*given, **pinned, **({} if out is None else {"out": out}))
    if x.dtype not in LOW or not x.numel() or not weight.numel():
        return stored(_products_by_group(offsets, x, weight), out)
    tiles = _tiles(weight.shape[1]) if batch_invariant else {}
    return _grouped(offsets, x, weight, **tiles, **({} if out is None else {"out": out}))


def _check(x: Tensor, weight: Tensor, offsets: Tensor) -> None:
    fits = x.dim() == 2 and weight.dim() == 3 and offsets.dim() == 1 and x.dtype == weight.dtype
    fits = fits and x.shape[1] == weight.shape[2] and 0 <= offsets.shape[0] - weight.shape[0] <= 1
    if not fits or offsets.dtype not in INDICES:
        described = ", ".join(f"{tuple(t.shape)} {t.dtype}" for t in (x, weight, offsets))
        required = "(rows, in), (groups, out, in) of one dtype, and int32 or int64 of (groups + 1,) or (groups,)"
        misfit("grouped_matmul", f"x, weight, offsets of {described}", required)

"""Rows of a table by index, sums by index, running sums."""

# PyTorch ships no types that our checker reads, and a lambda names none.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import (
    INDICES,
    described,
    is_served,
    misfit,
    on_rows,
    require_axis,
    require_floats,
    require_options,
    require_tensors,
    stored,
    to_float,
)
from tilewright.ops.functional.dispatched import Composition
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registration import op


# -- rows of a table --------------------------------------------------------------------------------------------------
def _table_sums(dy: Any, index: Any, rows: int) -> Any:
    """Entries are sorted by the rows that they name; then each row adds its own, with the same bits in every run. An
    index that is no row adds nothing."""
    known = torch.where((index < 0) | (index >= rows), rows, index)
    if not (dy.is_cuda or is_simulated()) or not is_served(dy) or not dy.numel() or max(rows, len(index)) >= 1 << 31:
        return torch.ops.aten.embedding_dense_backward(dy, known, rows, rows, False)
    known, dy = known.to(torch.int32), dy.contiguous()
    named, order = torch.sort(known, stable=True)
    every = torch.arange(rows + 1, dtype=torch.int32, device=dy.device)
    offsets, chunks = torch.searchsorted(named, every, out_int32=True), len(index) // kernels.CHUNK
    sums, y = dy.new_empty((max(chunks, 1), dy.shape[1]), dtype=torch.float32), dy.new_empty((rows, dy.shape[1]))
    if chunks:
        kernels.sum_chunks(known, order, dy, sums, bd=1024 if dy.shape[1] > 256 else 256)
    kernels.sum_rows(offsets, order, dy, sums, y, bd=2048 if dy.shape[1] > 1024 else 1024 if dy.shape[1] > 256 else 256)
    return y


def _table_save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1])


def _sums_gradient(ctx: Any, dtable: Any) -> Any:
    (index,) = ctx.saved_tensors
    return embedding(index, dtable), None, None


_sums_of_table = Composition(
    "embedding_backward(Tensor dy, Tensor index, SymInt rows) -> Tensor",
    _table_sums,
    lambda dy, index, rows: dy.new_empty((rows, dy.shape[1])),
    _sums_gradient,
    _table_save,
)


def _table_gradient(index: Tensor, table: Tensor, dy: Tensor) -> Any:
    return None, _sums_of_table(dy, index, table.shape[0])


_embedding = op(
    name="tilewright::embedding",
    dtypes={"y": "table"},
    backward=_table_gradient,
    fallback=lambda index, table, bt, bd: torch.nn.functional.embedding(index, table),
)(kernels.embedding)


def embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """``weight[index]``, as ``torch.nn.functional.embedding``: index of any shape, i32 or i64, weight of (rows, width).

    On a GPU an index that is no row gives zeros and has no gradient. The row ``padding_idx`` gets no gradient.
    """
    require_tensors("embedding", (index, weight))
    require_options("embedding", padding_idx=padding_idx)
    if index.dtype not in INDICES or weight.dim() != 2 or not (len(weight) or not index.numel()):
        found = f"index of {index.dtype}, weight of {tuple(weight.shape)}"
        misfit("embedding", found, "an index of int32 or int64, weight of (rows, width)")
    if padding_idx is not None and not -len(weight) <= padding_idx < len(weight):
        misfit("embedding", f"padding_idx={padding_idx}", f"None, or a row of {len(weight)}")
    if not is_served(weight) or not index.numel() or not weight.numel():
        return torch.nn.functional.embedding(index, weight, padding_idx)
    if padding_idx is not None and weight.requires_grad:
        row = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
        weight = _without_gradient_of(weight, row)
    return _embedding(index.reshape(-1), weight).view(*index.shape, weight.shape[1])


def _without_gradient_of(weight: Tensor, row: int) -> Tensor:
    def masked(gradient: Tensor) -> Tensor:
        return gradient.index_fill(0, torch.tensor(row, device=gradient.device), 0)

    held = weight.view_as(weight)
    held.register_hook(masked)
    return held


# -- sums by index ----------------------------------------------------------------------------------------------------
MANY_SUMS = 1 << 23
"""Elements of f32 from which on sums in the order of their rows are done before reductions in memory are."""
MOST_COUNTS, MOST_ROWS = 1 << 22, 8192
"""Limits of these kernels' counters: in all, and per block of entries, whose counters lie in shared memory."""


def _counts(x: Any, source: Any) -> int:
    return -(-source.shape[0] // kernels.ENTRIES) * int(x.shape[0])


def _added_in_order(x: Any, index: Any, source: Any) -> Any:
    """Entries are sorted by the rows that they name; then each row adds its own, with the same bits in every run."""
    rows, entries = x.shape[0], source.shape[0]

    def integers(*shape: int) -> Any:
        return x.new_empty(shape, dtype=torch.int32)

    blocks = -(-entries // kernels.ENTRIES)
    counts, earlier, totals = integers(blocks, rows), integers(blocks, rows), integers(rows)
    offsets, order, y = integers(rows + 1), integers(entries), x.new_empty(x.shape)
    kernels.count_entries(index, counts, order, most=max(16, 1 << (rows - 1).bit_length()))
    kernels.count_earlier(counts, earlier, totals)
    kernels.lay_out_rows(totals, offsets)
    kernels.place_entries(index, earlier, offsets, order)
    kernels.sum_entries(offsets, order, source, x, y, bd=2048 if x.shape[1] >= 2048 else 1024)
    return y


def _added(x: Any, index: Any, source: Any) -> Any:
    by_kernel = (x.is_cuda or is_simulated()) and is_served(x) and source.numel() and x.numel()
    in_order = torch.are_deterministic_algorithms_enabled()
    large = source.dtype == torch.float32 and source.numel() >= MANY_SUMS
    if by_kernel and (in_order or large) and _counts(x, source) <= MOST_COUNTS and x.shape[0] <= MOST_ROWS:
        return _added_in_order(x, index, source)
    if not by_kernel or in_order:
        return x.index_add(0, index, source)
    y = x.clone(memory_format=torch.contiguous_format)
    kernels.index_add(index, source, y)
    return y


def _added_save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1])


def _added_gradient(ctx: Any, dy: Any) -> Any:
    (index,) = ctx.saved_tensors
    return dy, None, embedding(index, dy)


_index_add = Composition(
    "index_add(Tensor x, Tensor index, Tensor source) -> Tensor",
    _added,
    lambda x, index, source: x.new_empty(x.shape),
    _added_gradient,
    _added_save,
)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """x with the rows of source * alpha added at their indices, as ``torch.index_add``; indices may repeat.

    Rows along the first axis are added by kernels: by reductions in memory, or, many rows of float32 and under
    ``use_deterministic_algorithms``, in the order of the index into at most 8192 rows. Along other axes, and of dtypes
    that no kernel has, by PyTorch. On a GPU an index that is no row adds nothing.
    """
    require_tensors("index_add", (x, index, source))
    require_options("index_add", dim=dim, alpha=alpha)
    require_axis("index_add", x, dim)
    axis = dim % max(x.dim(), 1)
    added = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    fits = index.dtype in INDICES and index.dim() == 1 and source.dtype == x.dtype
    if x.dim() == 0 or not fits or tuple(source.shape) != added:
        found = f"x, index, source of {described(x, index, source)}"
        misfit("index_add", found, f"int32 or int64 of (n,), and a source of n for axis {axis} of x, in x's dtype")
    if alpha != 1:
        source = source * alpha
    if axis or x.dim() == 1 or not is_served(x):
        return torch.index_add(x, dim, index, source)
    return _index_add(x.flatten(1), index, source.flatten(1)).view(x.shape)


# -- running sums -----------------------------------------------------------------------------------------------------
def _sums_from_end(dy: Tensor) -> Any:
    """Longer tiles where few rows wait for memory together: of 132 x 131072 of f32 49 us, with tiles of 2048 88."""
    rows, length = dy.shape
    few = rows <= 528 and length >= 16384
    return _cumsum_reverse(dy, None, 512 if length <= 1024 else 16384 if few else 2048)


_cumsum = op(name="tilewright::cumsum", backward=_sums_from_end, fallback=lambda x, bm, bn: x.cumsum(1))(kernels.cumsum)
_cumsum_reverse = op(
    name="tilewright::cumsum_reverse",
    backward=lambda dy: _cumsum(dy),
    fallback=lambda x, bm, bn: x.flip(1).cumsum(1).flip(1),
)(kernels.cumsum_reverse)


def cumsum(x: Tensor, dim: int = -1, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """Running sums along ``dim``, as ``torch.cumsum``; added in float32, and of float32 under autocast."""
    if dtype is None and type(dim) is int and dim == -1:
        known = _cumsum.known(x, out=out)
        if known is not None:
            return known
    require_tensors("cumsum", (x,))
    require_options("cumsum", dim=dim, dtype=dtype)
    require_axis("cumsum", x, dim)
    if x.dtype.is_floating_point and dtype is None:
        require_floats("cumsum", x)
    given, x = x, to_float(x)[0] if dtype is None else x.to(dtype)
    if not is_served(x) or x.dim() == 0 or not x.numel():
        return stored(torch.cumsum(given, dim, dtype=dtype), out)
    if dim not in (-1, x.dim() - 1):
        return stored(on_rows(_cumsum, (x.movedim(dim, -1),), out=None).movedim(-1, dim), out)
    return on_rows(_cumsum, (x,), out=out)

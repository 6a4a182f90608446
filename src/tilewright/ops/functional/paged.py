"""Decode over a paged cache of keys and values, by one launch, or split along the sequences and merged."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from tilewright.diag import shown
from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import (
    LOW,
    ending,
    misfit,
    require_options,
    require_tensors,
    to_low_precision,
)
from tilewright.ops.functional.dispatched import AttentionPair, Composition
from tilewright.ops.kernels.paged import ROWS, STEP
from tilewright.ops.pytorch import Tensor, is_plain, torch, wants_gradient
from tilewright.ops.routes import Routes, Steps, binding, made_as, picker, row_major
from tilewright.ops.splitting import MAX_PARTS, steps_of_a_part

MAX_TOKENS = 8
"""New tokens of a sequence: one, and those that were guessed."""
WIDTHS = (64, 128, 256)
PAGES = tuple(2**i for i in range(9))
"""Widths of a head and tokens of a page that kernels are made for; others go to PyTorch."""
_LATENT = (576, 512, 256)
"""Widths of keys and values of one head that all queries share, and of the blocks of such values: multi-head latent
attention, whose values are the head of each key."""
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Dtypes of caches with scales."""
INDICES = (torch.int32, torch.int64)
_MERGED_STATES = (4, 32)
"""How many states one step of the merge reads, at least and at most: all at once are the fastest."""


Scale: TypeAlias = float | Tensor


# -- by kernels -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Launches:
    """A decode by kernels: one launch of whole sequences (``count`` 1), or of parts, whose states another merges.
    Where they are ``listed``, these are the parts that have keys."""

    kernel: Any
    chunk: int
    count: int
    window: int | None
    listed: Any = None

    @property
    def keywords(self) -> dict[str, Any]:
        return {} if self.window is None else {"window": self.window}


def _launches(
    q: Any,
    k: Any,
    v: Any,
    table: Any,
    lengths: Any,
    parts: Any,
    window: int | None,
    split: int | None,
    balanced: bool | None,
) -> _Launches:
    window = ending(window)
    cached, shape = table.shape[1] * k.shape[1], (q.shape[-1], q.shape[1], k.shape[1])
    chunk, count = _parts(q, v, -(-cached // STEP), window, split)
    if _is_latent(k, v):
        return _Launches(kernels.paged_decode(*shape, values=_LATENT[2]), chunk, count, window)
    if parts is None and (room := _room(q, k, v, table, split, balanced)):
        parts = _list_parts(lengths, room, -(-cached // STEP), q.shape[1], window)
    kernel = kernels.paged_decode(*shape) if parts is None else kernels.paged_decode_parts(*shape)
    return _Launches(kernel, chunk, count, window, parts)


def _by_kernels(
    q: Any,
    k: Any,
    v: Any,
    table: Any,
    lengths: Any,
    scales: dict[str, Any],
    scale: float,
    launches: _Launches,
    y: Any,
    lse: Any,
) -> tuple[Any, ...]:
    """Into ``y`` and ``lse``; the workspaces: parts of sequences leave their states in f32."""
    (batch, tokens, heads, width), groups, count = q.shape, k.shape[2], launches.count
    by_group = (batch, tokens, groups, heads // groups)
    given = (lengths, table, q.view(*by_group, width), k, v)
    if _is_latent(k, v):
        return _by_blocks_of_values(given, scale, launches, y, lse)
    if launches.listed is not None:
        return _by_listed_parts(given, scales, scale, launches, y, lse)
    kernel, options = launches.kernel, launches.keywords | scales | {"scale": scale, "chunk": launches.chunk}
    if count == 1:
        kernel(*given, y.view(1, *by_group, width), lse.view(1, *by_group), **options)
        return ()
    parts = q.new_empty((count, *by_group, width), dtype=torch.float32)
    states = q.new_empty((count, *by_group), dtype=torch.float32)
    kernel(*given, parts, states, **options)
    rows = batch * tokens * heads
    merged = (parts.view(count, rows, width), states.view(count, rows), y.view(rows, width), lse.view(rows))
    kernels.merge_states(*merged, **_merging(count))
    return parts, states


def _by_blocks_of_values(
    given: tuple[Any, ...], scale: float, launches: _Launches, y: Any, lse: Any
) -> tuple[Any, ...]:
    """Each block of a value's elements as a head of its own, beside the same keys."""
    (*others, v), count, width = given, launches.count, _LATENT[2]
    given = (*others, v[:, :, 0].unflatten(2, (-1, width)))
    found = y.unflatten(3, (-1, width))
    sums = lse.new_empty(found.shape[:-1])
    parts, states = found[None], sums[None]
    if count > 1:
        parts, states = (x.new_empty((count, *x.shape), dtype=torch.float32) for x in (found, sums))
    options = launches.keywords | {"scale": scale, "chunk": launches.chunk}
    launches.kernel(*given, parts.transpose(3, 4), states.transpose(3, 4), **options)
    if count > 1:
        rows = sums.numel()
        merged = (parts.view(count, rows, width), states.view(count, rows), y.view(rows, width), sums.view(rows))
        kernels.merge_states(*merged, **_merging(count))
    lse.copy_(sums[..., 0])
    return parts, states


def _by_listed_parts(
    given: tuple[Any, ...], scales: dict[str, Any], scale: float, launches: _Launches, y: Any, lse: Any
) -> tuple[Any, ...]:
    """The parts that have keys, and what they join to."""
    q = given[2]
    batch, rows, width = q.shape[0], q.shape[1] * q.shape[2] * q.shape[3], q.shape[-1]
    owner, begin, until, *of_sequences = launches.listed
    parts = q.new_empty((len(owner), *q.shape[1:]), dtype=torch.float32)
    states = q.new_empty(parts.shape[:-1], dtype=torch.float32)
    launches.kernel(owner, begin, until, *given, parts, states, **launches.keywords, **scales, scale=scale)
    merged = (parts.view(-1, rows, width), states.view(-1, rows), y.view(batch, rows, width), lse.view(batch, rows))
    kernels.merge_parts(width)(*of_sequences, *merged)
    return parts, states


def _list_parts(lengths: Any, room: int, columns: int, tokens: int, window: int | None) -> Any:
    """At most ``room`` parts that have keys, of sequences of up to so many steps, listed on the device: integers of (6,
    room), as ``kernels.decode_parts`` has them."""
    parts = torch.empty((6, room), dtype=torch.int32, device=lengths.device)
    window = ending(window)
    options = {} if window is None else {"window": window, "tokens": tokens}
    make_list = kernels.decode_parts(next(n for n in SEQUENCES if len(lengths) <= n))
    make_list(lengths, *parts, columns=columns, least=1, **options)
    return parts


def _empty_list(lengths: Any, room: int, *_: Any) -> Any:
    return lengths.new_empty((6, room), dtype=torch.int32)


_listed_parts = Composition(
    "decode_parts(Tensor seq_lens, int room, int columns, int tokens, int? window) -> Tensor",
    _list_parts,
    _empty_list,
)


def _merging(count: int) -> dict[str, Any]:
    """How the states of so many parts are merged."""
    least, most = _MERGED_STATES
    return {"bm": 1, "bc": min(most, max(least, 1 << (count - 1).bit_length()))}


def _parts(q: Any, v: Any, steps: int, window: int | None, split: int | None) -> tuple[int, int]:
    """(steps of a part, parts of a sequence of so many ``steps``). Steps of 8-bit floats take their time, not the
    memory's, so that both CTAs of an SM should have some (16 sequences of 2048 keys, H200: 36 us, by whole sequences
    42; in bf16 49 and 45)."""
    if split is not None:
        chunk = split // STEP
    else:
        busy = steps if window is None else min(steps, -(-(window + q.shape[1]) // STEP) + 1)
        at_once = _processors(q) * (2 if v.dtype in EIGHT_BITS else 1)
        chunk = max(steps_of_a_part(q.shape[0] * _programs(q, v), busy, at_once), -(-steps // MAX_PARTS))
    return chunk, max(1, -(-steps // chunk))


SEQUENCES = (64, 128)
"""The number of sequences for which kernels list parts."""
_PARTS_A_PROCESSOR = 8
"""How many parts of a list are there for each SM, besides one for each sequence."""
_WORTH_A_LIST = 4096
"""Keys of an SM, at the greatest length, from which on a list costs less than lengths that differ."""


def _room(q: Any, k: Any, v: Any, table: Any, split: int | None = None, balanced: bool | None = None) -> int:
    """For how many parts a list has room; 0 where none is made: it is not wanted, can't be, or would not pay."""
    batch, keys = q.shape[0], table.shape[1] * k.shape[1]
    if split is not None or balanced is False or _is_latent(k, v) or not 1 < batch <= SEQUENCES[-1] or keys <= STEP:
        return 0
    if balanced is None and not _is_worth_a_list(q, v, keys):
        return 0
    return -(-(batch - (-_PARTS_A_PROCESSOR * _processors(q) // _programs(q, v))) // 4) * 4


def _is_worth_a_list(q: Any, v: Any, keys: int) -> bool:
    """Sequences are few for the SMs, and long: lengths that differ would leave many of these idle."""
    programs, processors = q.shape[0] * _programs(q, v), _processors(q)
    return programs < _PARTS_A_PROCESSOR * processors and programs * keys >= _WORTH_A_LIST * processors


def _programs(q: Any, v: Any) -> int:
    """Programs of a part."""
    (_, tokens, heads, width), groups = q.shape, v.shape[2]
    blocks = 1 if width == v.shape[3] else v.shape[3] // _LATENT[2]
    return groups * blocks * -(-(heads // groups) * tokens // ROWS)


def _processors(q: Any) -> int:
    if not q.is_cuda:
        return 1
    return torch.cuda.get_device_properties(q.device).multi_processor_count


# -- small pages ------------------------------------------------------------------------------------------------------
_SMALL_PAGES = 8
"""Tokens of a page up to which rows are copied one by one, from a table of tokens that a kernel writes: a tensor copy
of so few rows takes as long as one of many. Half of it in 8 bits (64 x 4096, pages of 8, H200: 222 us so, 237 with a
list; by tensor copies 218 with a list)."""


def _has_small_pages(k: Any, v: Any) -> bool:
    """Pages of few tokens, side by side in memory as those of one token would be."""
    most = _SMALL_PAGES // 2 if k.dtype in EIGHT_BITS else _SMALL_PAGES
    few = 1 < k.shape[1] <= most and k.shape[0] * k.shape[1] < 2**31 and k.dtype in (*LOW, *EIGHT_BITS)
    return few and not _is_latent(k, v) and all(x.stride(0) == x.shape[1] * x.stride(1) for x in (k, v))


def _in_pages_of_one(k: Any, v: Any, table: Any) -> tuple[Any, Any, Any]:
    """The caches as pages of one token, and their table."""
    page = k.shape[1]
    rows = table.new_empty(table.shape[0], table.shape[1] * page, dtype=torch.int32)
    kernels.token_rows(page)(table, rows, count=k.shape[0])
    return *(x.flatten(0, 1).unsqueeze(1) for x in (k, v)), rows


# -- by PyTorch -------------------------------------------------------------------------------------------------------
def _by_pytorch(
    q: Any,
    k: Any,
    v: Any,
    table: Any,
    lengths: Any,
    scales: tuple[Any, Any],
    scale: float,
    window: int | None,
    y: Any,
    lse: Any,
) -> None:
    """A sequence at a time. As in the kernels, entries that lead outside are pages of zeros."""
    (batch, tokens, heads, _), (count, page, groups, _) = q.shape, k.shape
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    place = torch.arange(table.shape[1] * page, device=q.device)
    for b in range(batch):
        last = lengths[b].long() - tokens + torch.arange(tokens, device=q.device)
        entries = table[b].long()
        held = ((entries >= 0) & (entries < count)).repeat_interleave(page) & (place < lengths[b])
        keys, values = (_rows(x, entries, held, s, exact) for x, s in zip((k, v), scales, strict=True))
        seen = (place <= last[:, None]) & (place < lengths[b])
        if window is not None:
            seen &= place > last[:, None] - window
        x = torch.einsum("sgrd,tgd->sgrt", q[b].unflatten(1, (groups, heads // groups)).to(exact), keys) * scale
        x = x.masked_fill(~seen[:, None, None], -torch.inf)
        denominator = torch.logsumexp(x, -1) if len(place) else x.new_full(x.shape[:-1], -torch.inf)
        p = torch.exp(x - denominator.nan_to_num(neginf=0.0)[..., None])
        y[b] = torch.einsum("sgrt,tgd->sgrd", p, values).reshape(y.shape[1:])
        lse[b] = denominator.reshape(tokens, heads)


def _rows(cache: Any, entries: Any, held: Any, scale: Any, dtype: Any) -> Any:
    """Keys or values of one sequence, (tokens, groups, width), zeros where it holds none."""
    if not len(cache):
        return cache.new_zeros((len(held), *cache.shape[2:]), dtype=dtype)
    stored = cache.view(torch.uint8) if cache.dtype in EIGHT_BITS else cache
    rows = stored[entries.clamp(0, len(cache) - 1)].view(cache.dtype).to(dtype).flatten(0, 1)
    rows = rows if scale is None else rows * scale.to(dtype)[:, None]
    return rows.masked_fill(~held[:, None, None], 0)


# -- the operator -----------------------------------------------------------------------------------------------------
def _run_into(
    q: Any,
    k: Any,
    v: Any,
    table: Any,
    lengths: Any,
    k_scale: Any,
    v_scale: Any,
    parts: Any,
    scale: float,
    window: int | None,
    split: int | None,
    balanced: bool | None,
    y: Any,
    lse: Any,
) -> None:
    if _is_served(q, k, v, scale):
        scales = {n: s for n, s in (("k_scale", k_scale), ("v_scale", v_scale)) if s is not None}
        if _has_small_pages(k, v):
            k, v, table = _in_pages_of_one(k, v, table)
        launches = _launches(q, k, v, table, lengths, parts, window, split, balanced)
        _by_kernels(q, k, v, table, lengths, scales, scale, launches, y, lse)
    else:
        _by_pytorch(q, k, v, table, lengths, (k_scale, v_scale), scale, window, y, lse)


def _empty(q: Any, _: Any, v: Any, *__: Any) -> tuple[Any, Any]:
    sums = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(q.shape[:-1], dtype=sums)


def _is_served(q: Any, k: Any, v: Any, scale: float) -> bool:
    """By kernels, which take the greatest score before they scale."""
    where = q.is_cuda or is_simulated()
    fits = _is_latent(k, v) or (q.shape[-1] in WIDTHS and k.shape == v.shape)
    return where and q.dtype in LOW and fits and k.shape[1] in PAGES and scale > 0 and q.numel() > 0


def _is_latent(k: Any, v: Any) -> bool:
    return (k.shape[2], k.shape[3], v.shape[3]) == (1, *_LATENT[:2]) and k.dtype in LOW


_FORMALS = (
    "Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor seq_lens, Tensor? k_scale, Tensor? v_scale, "
    "Tensor? parts, float scale, int? window, int? split, bool? balanced"
)
_decode = AttentionPair("paged_decode", _FORMALS, _run_into, _empty, "decode reads a cache that others wrote")


# -- what users call --------------------------------------------------------------------------------------------------
def paged_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    scale: float | None = None,
    layout: str = "NHD",
    window: int | None = None,
    split: int | None = None,
    k_scale: Scale | None = None,
    v_scale: Scale | None = None,
    balanced: bool | None = None,
    parts: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attention of the last tokens of each sequence over its keys and values in pages, as vLLM and FlashInfer lay them.

    ``q`` of (batch, heads, width), or (batch, tokens, heads, width) with 1 to 8 tokens, of which each sees what is
    before it; ``k_cache``, ``v_cache`` of (pages, page_tokens, groups, width), with ``layout="HND"`` (pages, groups,
    page_tokens, width), of any strides; groups divide heads. ``block_table`` of (batch, columns) and ``seq_lens`` of
    (batch), which count the new tokens too, are int32 or int64 on the device. ``window``: a token sees itself and the
    window - 1 before it. ``scale`` is 1 / sqrt(width) if not given.

    Caches of float8_e4m3fn or float8_e5m2 hold keys and values divided by ``k_scale`` and ``v_scale``: numbers above 0,
    or float32 tensors of one element or of (groups); 1 if not given. ``q`` is bfloat16 or float16 then, its elements
    within float16's range.

    Nobody waits for the lengths. No key behind one is read, nor a table entry behind its last page; an entry that is no
    page counts as zeros, a sequence of length 0 gives zeros. How sequences are split is chosen from the shapes, so let
    the table have the columns in use: ``block_table[:, :columns]``. Where sequences are few for the SMs, and long, the
    parts that have keys are listed on the device first, so that lengths may differ: two short launches more, which
    ``balanced=False`` saves where lengths are alike, and ``parts`` of ``decode_parts`` for all layers but the first.
    ``split``, a multiple of 64 keys, fixes the parts: a sequence has
    the same bits then whatever its batch. Kernels for bfloat16 and float16, widths 64, 128, 256 and one head of 576
    with values of 512, pages of 1 to 256 tokens (powers of two); others, and the CPU, by PyTorch. No gradient (JIT011);
    JIT010 for arguments that do not fit.
    """
    tensors, scales = (q, k_cache, v_cache, block_table, seq_lens), (k_scale, v_scale)
    if out is not None:
        return _decoded(tensors, scales, scale, layout, window, split, balanced, parts, out)[0]
    known = None if parts is not None else _known(tensors, scales, scale, layout, window, split, balanced)
    return (known or _decoded(tensors, scales, scale, layout, window, split, balanced, parts, None))[0]


def paged_decode_with_lse(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    scale: float | None = None,
    layout: str = "NHD",
    window: int | None = None,
    split: int | None = None,
    k_scale: Scale | None = None,
    v_scale: Scale | None = None,
    balanced: bool | None = None,
    parts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(paged_decode, the natural logarithm of each row's sum of exponentials in float32, of the shape of ``q`` without
    its last axis; -inf where no key is seen)."""
    tensors, scales = (q, k_cache, v_cache, block_table, seq_lens), (k_scale, v_scale)
    known = None if parts is not None else _known(tensors, scales, scale, layout, window, split, balanced)
    return known or _decoded(tensors, scales, scale, layout, window, split, balanced, parts, None)


def decode_parts(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    layout: str = "NHD",
    window: int | None = None,
) -> Tensor | None:
    """The parts of sequences that ``paged_decode`` of such tensors lists on the device, listed once for all layers of a
    step: give them to each as ``parts``. None where it lists none, which ``parts`` takes, too.

    Of the tensors only their shapes count, and the integers of ``seq_lens``. Where these change, or the window, the
    parts are to be listed again; with other integers a decode leaves out keys, but touches nothing outside.
    """
    require_tensors("decode_parts", (q, k_cache, v_cache, block_table, seq_lens))
    q, k_cache, v_cache = to_low_precision(q, k_cache, v_cache)
    k, v = in_layout("decode_parts", layout, k_cache, v_cache)
    q = q[:, None] if q.dim() == 3 else q
    _check(q, k, v, block_table, seq_lens)
    _check_options(window, None, None)
    room = _room(q, k, v, block_table) if _is_served(q, k, v, 1.0) else 0
    columns = -(-block_table.shape[1] * k.shape[1] // STEP)
    return _listed_parts(seq_lens, room, columns, q.shape[1], window) if room else None


# -- calls such as were served before ---------------------------------------------------------------------------------
_SCALE = 5
"""Where the scale is among the values of a call: the tensors, the scale, layout, window, split and balanced."""
_routes = Routes(_SCALE, picker((6, 7, 8, 9)))
_SCALES = frozenset(("k_scale", "v_scale"))
"""Tensors that calls with routes have not."""


_SCALARS = (type(None), float, int)


def _known(
    tensors: tuple[Tensor, ...],
    scales: tuple[Scale | None, Scale | None],
    scale: float | None,
    layout: str,
    window: int | None,
    split: int | None,
    balanced: bool | None,
) -> tuple[Tensor, ...] | None:
    """Both results, if PyTorch's guards tell that such a call was served by kernels before."""
    if scales != (None, None) or not isinstance(tensors[0], torch.Tensor) or type(scale) not in _SCALARS:
        return None
    values = (*tensors, _scale(tensors[0], scale), layout, window, split, balanced)
    route = _routes.find(values)
    if route is None or (route.with_gradient and torch.is_grad_enabled()):
        return None
    return route.launch(values)


def _scale(q: Tensor, scale: float | None) -> float:
    return max((1, *q.shape[-1:])) ** -0.5 if scale is None else float(scale)


def _note(values: tuple[Any, ...], given: tuple[Any, ...], launches: _Launches) -> Any:
    """Results of a plain call by kernels, whose ``values`` are as users give them, ``given`` as kernels take them."""
    q, k, v, table, lengths = given
    y, lse = _empty(q, k, v)
    spaces = _by_kernels(q, k, v, table, lengths, {}, values[_SCALE], launches, y, lse)
    count = len(values)
    outs = (count, count + 1) if not spaces else (count + 2, count + 3)
    places = (4, 3, 0, 1, 2, *outs, _SCALE, count + 2 + len(spaces))
    by_group = (*q.shape[:2], k.shape[2], q.shape[2] // k.shape[2])
    views = (lengths, table, q.view(*by_group, q.shape[3]), k, v)
    states: tuple[Any, ...] = spaces or (y.view(1, *by_group, q.shape[3]), lse.view(1, *by_group))
    launched: list[Any] = [
        (launches.kernel, (*views, *states, values[_SCALE], launches.chunk), launches.keywords, places, 7)
    ]
    if spaces:
        rows = (q.shape[0] * q.shape[1] * q.shape[2],)
        merged: tuple[Any, ...] = (
            *(s.view(launches.count, *rows, *s.shape[5:]) for s in spaces),
            y.view(*rows, -1),
            lse.view(rows),
        )
        of_merge = (count + 2, count + 3, count, count + 1)
        launched.append((kernels.merge_states, merged, _merging(launches.count), of_merge, 4))
    found = [
        kernel.compiled.without(_SCALES & set(kernel.optional)).match(values, keywords)
        for kernel, values, keywords, _, _ in launched
    ]
    if all(found):
        whole = (*values, y, lse, *spaces, launches.chunk)
        binds = tuple(
            binding(program, guarded, places, tensors, whole)
            for (program, (guarded, _)), (_, _, _, places, tensors) in zip(found, launched, strict=True)
        )
        shape = tuple(values[0].shape)
        made = (row_major(shape, y.dtype), row_major(shape[:-1], lse.dtype), *map(made_as, spaces))
        _routes.note(values, Steps(q.get_device(), made, 2, binds, (launches.chunk,)))
    return y, lse


def _decoded(
    tensors: tuple[Tensor, ...],
    scales: tuple[Scale | None, Scale | None],
    scale: float | None,
    layout: str,
    window: int | None,
    split: int | None,
    balanced: bool | None,
    parts: Tensor | None,
    out: Any,
) -> tuple[Tensor, Tensor]:
    require_tensors("paged_decode", tensors, (parts,) if out is None else (parts, out))
    require_options("paged_decode", scale=scale, window=window, split=split, balanced=balanced)
    q, k, v = to_low_precision(*tensors[:3])
    k, v = in_layout("paged_decode", layout, k, v)
    single = q.dim() == 3
    given = (q[:, None] if single else q, k, v, *tensors[3:])
    _check(*given)
    _check_options(window, split, balanced)
    _check_parts(parts, seq_lens=given[4], split=split, balanced=balanced)
    if wants_gradient(given):
        _decode.refuse_gradient()
    shift = _scale(q, scale)
    options = (*head_scales("paged_decode", scales, k), parts, shift, window, split, balanced)
    if out is None and not is_plain(given):
        y, lse = _decode.operator(*given, *options)
    elif out is None and q.is_cuda and _is_served(given[0], k, v, shift) and (launches := _routed(given, options)):
        y, lse = _note((*tensors, shift, layout, window, split, balanced), given, launches)
    elif out is None:
        y, lse = _decode.compute(*given, *options)
    else:
        y, lse = _into(given, options, out[:, None] if single and out.dim() == 3 else out)
    return (y[:, 0] if out is None else out, lse[:, 0]) if single else (y, lse)


def _routed(given: tuple[Tensor, Tensor, Tensor, Tensor, Tensor], options: tuple[Any, ...]) -> _Launches | None:
    """The launches of a call that a route can repeat: without scales and a list."""
    k_scale, v_scale, parts, _, window, split, balanced = options
    q, k, v, table, lengths = given
    if not (k_scale is v_scale is parts is None) or _has_small_pages(k, v) or _is_latent(k, v):
        return None
    if _room(q, k, v, table, split, balanced):
        return None
    return _launches(q, k, v, table, lengths, None, window, split, balanced)


def in_layout(operator: str, layout: str, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Caches as (pages, page_tokens, groups, width); JIT010 for a layout that is none."""
    if layout not in _LAYOUTS:
        _misfit(f"layout={shown(layout)}", " or ".join(_LAYOUTS), operator)
    return (k.transpose(1, 2), v.transpose(1, 2)) if layout == "HND" and k.dim() == v.dim() == 4 else (k, v)


def head_scales(
    operator: str, scales: tuple[Scale | None, Scale | None], k: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """One factor per head of the cache, in float32; JIT010 for scales that ``operator`` does not support."""
    groups = k.shape[2]
    found: list[Tensor | None] = []
    for name, scale in zip(("k_scale", "v_scale"), scales, strict=True):
        if scale is not None and k.dtype not in EIGHT_BITS:
            _misfit(f"{name} with a cache of {k.dtype}", "a cache of float8_e4m3fn or float8_e5m2", operator)
        if isinstance(scale, int | float):
            scale = torch.full((groups,), scale, dtype=torch.float32, device=k.device)
        elif scale is not None:
            if scale.dtype != torch.float32 or scale.device != k.device or scale.numel() not in (1, groups):
                found_ = f"{name} of {tuple(scale.shape)}, {scale.dtype}, on {scale.device}"
                _misfit(found_, f"a number, or float32 of one element or ({groups},) on {k.device}", operator)
            scale = scale.reshape(-1).expand(groups)
        found.append(scale)
    return found[0], found[1]


_LAYOUTS = ("NHD", "HND")


def _into(given: tuple[Tensor, ...], options: tuple[Any, ...], out: Tensor) -> tuple[Tensor, Tensor]:
    q = given[0]
    shape = (*q.shape[:-1], given[2].shape[-1])
    if (tuple(out.shape), out.dtype, out.device) != (shape, q.dtype, q.device) or not out.is_contiguous():
        found = f"out of {tuple(out.shape)}, {out.dtype}, strides {out.stride()}"
        _misfit(found, f"{shape}, {q.dtype}, row-major, as the result")
    if wants_gradient((out,)):
        _decode.refuse_gradient()
    lse = _empty(*given[:3])[1]
    torch.ops.tilewright.paged_decode_out(*given, *options, out, lse)
    return out, lse


def _check(q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor) -> None:
    shapes = [tuple(t.shape) for t in (q, k, v, table, lengths)]
    if [len(s) for s in shapes] != [4, 4, 4, 2, 1] or shapes[1][:3] != shapes[2][:3]:
        found = f"q, k_cache, v_cache, block_table, seq_lens of {', '.join(map(str, shapes))}"
        _misfit(
            found,
            "q of (batch, heads, width) or (batch, tokens, heads, width), two caches of (pages, page_tokens, groups, "
            "width), a table of (batch, columns), lengths of (batch)",
        )
    (batch, tokens, heads, width), (_, page, groups, of_keys), (rows, _), (count,) = (
        q.shape,
        k.shape,
        table.shape,
        lengths.shape,
    )
    if not 1 <= tokens <= MAX_TOKENS:
        _misfit(f"{tokens} query tokens", f"1 to {MAX_TOKENS} new tokens of a sequence; prompts are not decode")
    if rows != batch or count != batch:
        _misfit(f"{batch} sequences of queries, {rows} rows of the table, {count} lengths", "as many of each")
    if width != of_keys:
        _misfit(f"heads of {width} elements in q, of {of_keys} in the cache", "one width")
    if page < 1 or groups < 1 or heads % groups:
        _misfit(
            f"{heads} heads of queries, {groups} of keys, pages of {page} tokens", "groups that divide heads, pages"
        )
    eight = k.dtype in EIGHT_BITS and q.dtype in (*LOW, torch.float32, torch.float64)
    if not (k.dtype == v.dtype and (eight or q.dtype == k.dtype) and q.dtype.is_floating_point):
        _misfit(f"q of {q.dtype}, caches of {k.dtype} and {v.dtype}", "one floating-point dtype, or caches of float8")
    for name, indices in (("block_table", table), ("seq_lens", lengths)):
        if indices.dtype not in INDICES:
            _misfit(f"{name} of {indices.dtype}", "int32 or int64")
    if any(t.device != q.device for t in (k, v, table, lengths)):
        _misfit(f"tensors on {', '.join(str(t.device) for t in (q, k, v, table, lengths))}", "one device")


def _check_options(window: int | None, split: int | None, balanced: bool | None) -> None:
    if balanced not in (None, False, True) or (balanced and split is not None):
        _misfit(f"balanced={shown(balanced)}, split={shown(split)}", "None or a bool; True without split")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        _misfit(f"window={shown(window)}", "None, or an integer of at least 1")
    if split is not None and (isinstance(split, bool) or not isinstance(split, int) or split < 1 or split % STEP):  # pyright: ignore[reportUnnecessaryIsInstance]
        _misfit(f"split={shown(split)}", f"None, or a multiple of {STEP} keys")


def _check_parts(parts: Tensor | None, seq_lens: Tensor, split: int | None, balanced: bool | None) -> None:
    if parts is None:
        return
    if split is not None or balanced is not None:
        _misfit(f"parts with split={shown(split)}, balanced={shown(balanced)}", "parts alone")
    fits = parts.dim() == 2 and parts.shape[0] == 6 and parts.is_contiguous() and parts.shape[1] > seq_lens.shape[0]
    if not fits or parts.dtype != torch.int32 or parts.device != seq_lens.device:
        _misfit(f"parts of {tuple(parts.shape)}, {parts.dtype}, on {parts.device}", "what decode_parts gave, or None")


def _misfit(found: str, required: str, operator: str = "paged_decode") -> NoReturn:
    misfit(operator, found, required)

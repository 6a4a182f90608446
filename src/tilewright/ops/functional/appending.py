"""New keys and values into a paged cache: rotated, and divided by scales where the cache has 8 bits."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.diag import fail
from tilewright.ops import kernels
from tilewright.ops.execution import is_simulated
from tilewright.ops.functional.arguments import COMPUTED, misfit, require_tensors
from tilewright.ops.functional.dispatched import define, nothing
from tilewright.ops.functional.paged import EIGHT_BITS, INDICES, Scale, head_scales, in_layout
from tilewright.ops.functional.rotaries import turned_halves
from tilewright.ops.pytorch import Tensor, torch, wants_gradient

_FORMALS = (
    "Tensor key, Tensor value, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slots, Tensor? cos, Tensor? sin, "
    "Tensor? k_scale, Tensor? v_scale, Tensor? query, Tensor(c!)? turned"
)


def paged_append(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    layout: str = "NHD",
    k_scale: Scale | None = None,
    v_scale: Scale | None = None,
    query: Tensor | None = None,
) -> Tensor | None:
    """Write ``key`` and ``value``, (tokens, groups, width), to the slots page * page_tokens + offset of two caches.

    The caches are as ``paged_decode`` takes them, ``slot_mapping`` of (tokens) is int32 or int64. A slot that is none,
    -1 say, is skipped. No slot may be named twice: on a GPU that is checked on the device, and nothing is written where
    one is. ``cos`` and ``sin``, of (tokens, width / 2), or of (tokens, width) where both halves are the same, turn keys
    first, as ``rotary`` does, and ``query``, (tokens, heads, width), whose turned copy is returned: None without.
    Caches of float8_e4m3fn or float8_e5m2 hold keys and values divided by ``k_scale`` and
    ``v_scale``, rounded to nearest even; what is beyond their greatest number becomes that.

    No gradient (JIT011); JIT010 for arguments that do not fit.
    """
    require_tensors("paged_append", (key, value, k_cache, v_cache, slot_mapping), (cos, sin, query))
    if wants_gradient((key, value, k_cache, v_cache, cos, sin, query)):
        required = "tensors that need no gradient, or torch.no_grad(): a cache is written in place"
        fail("JIT011", found="a gradient of paged_append", required=required)
    k, v = in_layout("paged_append", layout, k_cache, v_cache)
    _check(key, value, k, v, slot_mapping, cos, sin, query)
    half = key.shape[2] // 2
    turns = (None, None) if cos is None or sin is None else (cos[:, :half], sin[:, :half])
    scales = head_scales("paged_append", (k_scale, v_scale), k)
    turned = None if query is None else torch.empty_like(query, memory_format=torch.contiguous_format)
    torch.ops.tilewright.paged_append(key, value, k, v, slot_mapping, *turns, *scales, query, turned)
    return turned


def _write(
    key: Any, value: Any, k: Any, v: Any, slots: Any, cos: Any, sin: Any, k_scale: Any, v_scale: Any,
    query: Any, turned: Any,
) -> None:  # fmt: skip
    some, served = key.numel() and k.numel(), key.dtype in COMPUTED and k.dtype in (*COMPUTED, *EIGHT_BITS)
    if some and served and (key.is_cuda or is_simulated()):
        given = {"cos": cos, "sin": sin, "k_scale": k_scale, "v_scale": v_scale}
        shared = 1
        if query is not None:
            shared = query.shape[1] // key.shape[1]
            given |= {"queries": query.unflatten(1, (-1, shared)), "turned": turned.unflatten(1, (-1, shared))}
        options = {name: tensor for name, tensor in given.items() if tensor is not None}
        kernels.paged_append(key.shape[2], k.shape[1], shared)(slots, key, value, k, v, **options)
        return
    if query is not None:
        turned.copy_(_turned(query, cos, sin))
    if some:
        _by_pytorch(key, value, k, v, slots, cos, sin, k_scale, v_scale)


def _turned(rows: Any, cos: Any, sin: Any) -> Any:
    """Rows of (tokens, heads, width), in float32 or float64."""
    return turned_halves(rows.unflatten(2, (2, -1)), cos, sin).flatten(2)


def _by_pytorch(
    key: Any, value: Any, k: Any, v: Any, slots: Any, cos: Any, sin: Any, k_scale: Any, v_scale: Any
) -> None:  # fmt: skip
    page = k.shape[1]
    held = (slots >= 0) & (slots < len(k) * page)
    place = slots[held].long()
    wide = torch.float64 if key.dtype == torch.float64 else torch.float32
    rows, others = key.to(wide) if cos is None else _turned(key, cos, sin), value.to(wide)
    for cache, new, scale in ((k, rows, k_scale), (v, others, v_scale)):
        new = (new if scale is None else new / scale.to(wide)[:, None])[held]
        if cache.dtype in EIGHT_BITS:
            greatest = torch.finfo(cache.dtype).max
            cache, new = cache.view(torch.uint8), new.clamp(-greatest, greatest).to(cache.dtype).view(torch.uint8)
        cache[place // page, place % page] = new.to(cache.dtype)


define(f"paged_append({_FORMALS}) -> ()", _write, nothing)


def _check(key: Tensor, value: Tensor, k: Tensor, v: Tensor, slots: Tensor, cos: Any, sin: Any, query: Any) -> None:
    shapes = [tuple(t.shape) for t in (key, value, k, v, slots)]
    if [len(s) for s in shapes] != [3, 3, 4, 4, 1] or shapes[0] != shapes[1] or shapes[2] != shapes[3]:
        _misfit(
            f"key, value, k_cache, v_cache, slot_mapping of {', '.join(map(str, shapes))}",
            "two of (tokens, groups, width), two caches of (pages, page_tokens, groups, width), slots of (tokens)",
        )
    (tokens, groups, width), (_, page, of_cache, wide) = key.shape, k.shape
    if (groups, width) != (of_cache, wide) or slots.shape[0] != tokens or width % 2 or page < 1:
        _misfit(
            f"{tokens} tokens of {groups} heads of {width}, {slots.shape[0]} slots, a cache of {of_cache} heads of "
            f"{wide} in pages of {page}",
            "as many heads and slots, one even width",
        )
    turns = (
        cos is None
        or sin is None
        or (
            cos.shape == sin.shape
            and (cos.dim(), cos.shape[0]) == (2, tokens)
            and (cos.shape[1] == width // 2 or cos.shape[1] == width)
        )
    )
    if (cos is None) != (sin is None) or not turns:
        found = " and ".join("None" if t is None else str(tuple(t.shape)) for t in (cos, sin))
        _misfit(f"cos and sin of {found}", f"both of ({tokens}, {width // 2}), or neither")
    if query is not None and (
        cos is None or query.dtype != key.dtype or query.dim() != 3 or query.shape[::2] != (tokens, width)
        or not groups or query.shape[1] % groups
    ):  # fmt: skip
        found = f"query of {tuple(query.shape)}, {query.dtype}, cos {'not ' if cos is None else ''}given"
        _misfit(found, f"{key.dtype} of ({tokens}, a multiple of {groups}, {width}), with cos and sin, or no query")
    if k is v:
        _misfit("one tensor as k_cache and v_cache", "two, as both are written")
    eight = k.dtype in EIGHT_BITS
    if not (key.dtype == value.dtype and k.dtype == v.dtype and (eight or k.dtype == key.dtype)):
        found = f"key and value of {key.dtype} and {value.dtype}, caches of {k.dtype} and {v.dtype}"
        _misfit(found, "one floating-point dtype, or caches of float8")
    if not key.dtype.is_floating_point or slots.dtype not in INDICES:
        _misfit(f"key of {key.dtype}, slot_mapping of {slots.dtype}", "floating point, and int32 or int64")
    given = [t for t in (key, value, k, v, slots, cos, sin, query) if t is not None]
    if any(t.device != key.device for t in given):
        _misfit(f"tensors on {', '.join(str(t.device) for t in given)}", "one device")


def _misfit(found: str, required: str) -> NoReturn:
    misfit("paged_append", found, required)

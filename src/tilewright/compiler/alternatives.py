"""Schedules for ``kernel.tune`` to time: the next best by estimated time, or nearby tile sizes and warp counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.lang.schedule import RoleMode, Schedule
from tilewright.schedule.product_schedules import ProductVariant


def product_schedules(
    variants: Iterable[ProductVariant], dims: Mapping[str, int], pinned: Schedule
) -> Iterator[Schedule]:
    """The schedules of a product that apply to ``dims`` and that pins can express, in order of estimated time; those
    without an estimate come last, in the order in which the compiler tries them."""
    own = [v for v in variants if not v.swapped and v.narrow is None and v.applies.symbols <= dims.keys()]
    serving = [(v, _nanoseconds(v, dims)) for v in own if v.applies.evaluate(dims)]
    for variant, _ in sorted(serving, key=lambda each: (each[1] is None, each[1] or 0)):
        found = pinned.replace(extents=variant.choices[0])
        parts = 1 if variant.parts is None else int(variant.parts.evaluate(dims))
        if parts > 1:
            yield found.replace(split_k=parts)
            continue
        first = variant.candidates[0] if variant.candidates else None
        if first is not None and first.cluster != (1, 1):
            yield found.replace(cluster=first.cluster)
        elif first is not None and first.ping_pong > 1:
            yield found.replace(mode=RoleMode.PINGPONG)
        else:
            yield found
    for variant, _ in serving:
        for extents in variant.choices[1:]:
            yield pinned.replace(extents=extents)


def plain_schedules(
    extents: Mapping[str, int], threads: int, pinned: Schedule, most_threads: int
) -> Iterator[Schedule]:
    """The chosen schedule with half and twice the warps, half and twice each extent, and combinations of both."""
    warps = threads // 32
    resized = [extents]
    for name, extent in extents.items():
        resized += ({**extents, name: each} for each in (extent // 2, extent * 2) if each)
    for tiles in resized:
        for count in (warps, warps // 2, warps * 2):
            if count and count * 32 <= most_threads and (tiles, count) != (extents, warps):
                yield pinned.replace(extents=tiles, warps=count)


def _nanoseconds(variant: ProductVariant, dims: Mapping[str, int]) -> int | None:
    """The estimated time of a launch; None where it is not known for ``dims``."""
    time = variant.time
    return None if time is None or not time.symbols <= dims.keys() else int(time.evaluate(dims))

"""Scans are compared with Tile IR: what is equal, what stays undecided, and that mistakes planted in them are seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.indexed import SHORT
from support.lowered import lowered
from support.scans import CASES
from tilewright.base.dtypes import bf16, i32
from tilewright.base.expr import FALSE, TRUE, Expr, Sym
from tilewright.schedule.scan import ScanLowering, StateMap
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.compare import compare

pytestmark = pytest.mark.sample(3)

EQUAL = [
    *("sums of 7 x 1000 along 1", "sums of 37 x 50 along 0", "every of float32", "every of bfloat16", "every of int8"),
    *("every of bool", "long sums of 65", "down_columns", "one_row", "greatest_so_far", "least_before", "shifted"),
    *("rank_in_bin", "offsets", "compacted", "of product along 0"),
    *("linear of 1", "linear of 300", "linear of 512", "place_of_greatest"),
]
BOUNDED = [
    *("linear of 1 reverse", "linear of 300 reverse", "linear of 512 reverse", "long_recurrence", "segmented_sums"),
    *("decayed_after", "selective_scan", "until_loaded", "gathered_least"),
]
"""By functions of the user's: all of a domain that may end in the tile, in reverse, and states of bools."""


def kernels(name: str, **keywords: Any) -> list[tuple[tile.Kernel, t.Kernel]]:
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(0))
    dtypes = {n: SHORT[a.dtype.name] for n, a in arrays.items()}
    return list(lowered(case.kernel, dtypes, keywords={**case.keywords, **keywords}).values())


@pytest.mark.parametrize("name", EQUAL)
def test_running_sums_and_extrema_are_equal(name: str) -> None:
    for source, kernel in kernels(name):
        assert compare(source, kernel) == ()


@pytest.mark.parametrize("way", [{"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}])
@pytest.mark.parametrize("name", ["sums of 7 x 1000 along 1", "sums of 37 x 50 along 0"])
def test_every_way_is_equal(name: str, way: dict[str, bool]) -> None:
    for source, kernel in kernels(name, **way):
        assert compare(source, kernel) == ()


@pytest.mark.parametrize("name", BOUNDED)
def test_states_of_parts_by_functions_of_the_users_are_equal(name: str) -> None:
    for source, kernel in kernels(name):
        assert compare(source, kernel) == ()


def always_begun(patch: pytest.MonkeyPatch) -> None:
    """A prefix where there is none."""
    patch.setattr(ScanLowering, "begun", lambda *_: TRUE)


def never_begun(patch: pytest.MonkeyPatch) -> None:
    """No prefix where there is one."""
    patch.setattr(ScanLowering, "begun", lambda *_: FALSE)


def one_lane(patch: pytest.MonkeyPatch) -> None:
    """The total of another lane."""
    exchanged = ScanLowering.exchanged
    patch.setattr(ScanLowering, "exchanged", lambda self, buffer, bit: exchanged(self, buffer, bit ^ 1))


def forgotten_chain(patch: pytest.MonkeyPatch) -> None:
    """Blocks that do not count those before them."""
    patch.setattr(ScanLowering, "chain", lambda _self, _step, states, _exists: list(states))


def first_of_several(patch: pytest.MonkeyPatch) -> None:
    """The first element of each group for all of it."""
    patch.setattr(StateMap, "picked", lambda self, views: self.read(views[0][1]))


def unmasked(patch: pytest.MonkeyPatch) -> None:
    """Elements beyond the domain count; zeros, which sums do not notice, but products and carries do."""
    patch.setattr(
        ScanLowering,
        "masked",
        lambda self, value: setattr(self, "neutral", True) or self.lowering.materialise(value, self.op).buffer,
    )


def shifted_validity(patch: pytest.MonkeyPatch) -> None:
    """The last element of the domain is left out."""
    valid = ScanLowering.valid
    patch.setattr(ScanLowering, "valid", lambda self, place: valid(self, place + 1))


def takes_all(patch: pytest.MonkeyPatch) -> None:
    """Every block takes the prefix of the later one."""
    prefixed = ScanLowering.prefixed

    def all_of_them(self: ScanLowering, step: Any, before: Any, takes: Expr) -> None:
        prefixed(self, step, before, TRUE)

    patch.setattr(ScanLowering, "prefixed", all_of_them)


def itself_before(patch: pytest.MonkeyPatch) -> None:
    """Each element instead of the one before it."""
    patch.setattr(ScanLowering, "previous", lambda *_: Sym(t.REGISTER))


def none_follows(patch: pytest.MonkeyPatch) -> None:
    """Each element begins a group."""
    patch.setattr(ScanLowering, "follows", lambda *_: FALSE)


def later_first(patch: pytest.MonkeyPatch) -> None:
    """The user's function is called on the later state first."""
    combined = ScanLowering.combined
    patch.setattr(ScanLowering, "combined", lambda self, builder, a, b: combined(self, builder, b, a))


def values_exchanged(patch: pytest.MonkeyPatch) -> None:
    """The two values of a state change places on their way between lanes."""
    combine = StateMap.combine
    patch.setattr(StateMap, "combine", lambda self, a, b: combine(self, a[::-1], b))


def without_bounds(patch: pytest.MonkeyPatch) -> None:
    """Elements beyond the domain count."""
    patch.setattr(ScanLowering, "valid", lambda *_: TRUE)


def all_outside(patch: pytest.MonkeyPatch) -> None:
    """No block has an element but the first one."""
    patch.setattr(ScanLowering, "valid", lambda *_: FALSE)


def one_too_many(patch: pytest.MonkeyPatch) -> None:
    """The first element beyond the domain counts."""
    valid = ScanLowering.valid
    patch.setattr(ScanLowering, "valid", lambda self, place: valid(self, place - 1))


def other_block(patch: pytest.MonkeyPatch) -> None:
    """Whether there is a block is asked of the element behind its first one."""
    coordinate = ScanLowering.coordinate
    patch.setattr(ScanLowering, "coordinate", lambda self, *a: coordinate(self, *a) + 1)


def exchanged_sides(patch: pytest.MonkeyPatch) -> None:
    """A choice takes the other state."""
    choose = StateMap.choose
    patch.setattr(StateMap, "choose", lambda self, condition, a, b: choose(self, condition, b, a))


def one_value_alone(patch: pytest.MonkeyPatch) -> None:
    """A choice chooses the first value of a state only."""
    choose = StateMap.choose
    patch.setattr(StateMap, "choose", lambda self, condition, a, b: [choose(self, condition, a, b)[0], *a[1:]])


def no_beginning(patch: pytest.MonkeyPatch) -> None:
    """The state before the first element is forgotten."""
    patch.setattr(ScanLowering, "begun_with", lambda _self, _before, total: total)


def twice_begun(patch: pytest.MonkeyPatch) -> None:
    """It is combined twice."""
    begun_with = ScanLowering.begun_with
    patch.setattr(
        ScanLowering,
        "begun_with",
        lambda self, before, total: begun_with(self, before, begun_with(self, before, total)),
    )


def rounded_on_the_way(patch: pytest.MonkeyPatch) -> None:
    """Floats go between threads as bf16."""
    patch.setattr("tilewright.schedule.scan._wide", lambda dtype: i32 if dtype.is_bool else bf16)


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (always_begun, "sums of 7 x 1000 along 1"),
    (never_begun, "sums of 7 x 1000 along 1"),
    (one_lane, "sums of 7 x 1000 along 1"),
    (forgotten_chain, "sums of 7 x 1000 along 1"),
    (first_of_several, "sums of 7 x 1000 along 1"),
    (takes_all, "sums of 7 x 1000 along 1"),
    (itself_before, "sums of 37 x 50 along 0"),
    (itself_before, "sums of 7 x 1000 along 1"),
    (none_follows, "sums of 7 x 1000 along 1"),
    (unmasked, "every of float32 reverse"),
    (shifted_validity, "long sums of 65"),
    *((plant, "linear of 300") for plant in (later_first, values_exchanged, always_begun, never_begun, one_lane)),
    *(
        (plant, "linear of 300")
        for plant in (forgotten_chain, takes_all, itself_before, none_follows, shifted_validity)
    ),
    (later_first, "place_of_greatest"),
    *(
        (plant, name)
        for name in ("linear of 300 reverse", "long_recurrence", "decayed_after")
        for plant in (later_first, values_exchanged, one_lane, without_bounds, one_too_many, shifted_validity)
    ),
    *((plant, "linear of 300 reverse") for plant in (all_outside, other_block, exchanged_sides, one_value_alone)),
    *((plant, "linear of 300 reverse") for plant in (always_begun, never_begun, forgotten_chain, takes_all)),
    *((plant, "decayed_after") for plant in (other_block, no_beginning, twice_begun)),
    *((plant, "until_loaded") for plant in (without_bounds, one_too_many, no_beginning, twice_begun, one_lane)),
    *((plant, "segmented_sums") for plant in (without_bounds, one_value_alone, rounded_on_the_way)),
    *((plant, "gathered_least") for plant in (later_first, one_lane, rounded_on_the_way)),
]


@pytest.mark.parametrize(("plant", "name"), PLANTED, ids=[f"{p.__name__}, {n}" for p, n in PLANTED])
def test_planted_mistakes_are_seen(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(compare(source, kernel) for source, kernel in kernels(name))


@tw.kernel
def firmly(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):  # noqa: F821, UP037
    """The last number so far that is no 0: a state of one value."""
    m, n = tw.grid(x.shape[0], 2), tw.axis(x.shape[1], upto=256)
    y[m, n] = tw.scan(lambda before, here: tw.where(here == 0.0, before, here), x[m, n], 1)


@pytest.mark.parametrize("plant", [None, later_first, one_lane])
def test_states_of_one_value(
    plant: Callable[[pytest.MonkeyPatch], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plant is not None:
        plant(monkeypatch)
    for source, kernel in lowered(firmly, {"x": "f32", "y": "f32"}).values():
        assert (compare(source, kernel) == ()) == (plant is None)

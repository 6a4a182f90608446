"""Handles of a pack plan: launches leave out the check of tw.Unique, and nothing else than a plan makes one."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportPrivateUsage=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.indexed import facts_of
from support.ptx_driver import run_artifact
from tilewright.artifact.schema import CHECKED, CONSTRUCTED, Artifact, Launch
from tilewright.diag import TilewrightError
from tilewright.jit.index_handles import PlannedIndices
from tilewright.ops.packing.plan import PackPlan, plan_by_kernels, plan_on_host

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(11)
X = RNG.standard_normal((37, 20)).astype(np.float32)


@tw.kernel
def send(slots: tw.Unique["T", 2], x: tw.Tensor["T", "D"], y: tw.Tensor["P", "D"]):
    t = tw.grid(x.shape[0], 4)
    for d in tw.stream(x.shape[1], 32):
        y[slots[t], d] = x[t, d][:, None, :]


@tw.kernel
def send_to_pages(slots: tw.Unique["T", 2], x: tw.Tensor["T"], y: tw.Tensor["B", 16]):
    t = tw.grid(x.shape[0], 8)
    y[slots[t] // 16, slots[t] % 16] = x[t][:, None]


@tw.kernel
def send_to_columns(slots: tw.Unique["T", 2], x: tw.Tensor["T"], y: tw.Tensor["B", 16]):
    """Slots that differ may have one remainder."""
    t = tw.grid(x.shape[0], 8)
    y[0, slots[t] % 16] = x[t][:, None]


@tw.kernel
def read(slots: tw.Tensor["T", 2], y: tw.Tensor["T", 2]):
    t = tw.grid(slots.shape[0], 8)
    y[t, :] = slots[t, :]


def planned(ids: np.ndarray | None = None) -> PackPlan:
    """Ids that are no bucket, negative and too great, among them."""
    ids = RNG.integers(-2, 9, (37, 2)).astype(np.int32) if ids is None else ids
    return tw.build_pack_plan(ids, 7, tw.PackPolicy(align=4), unique=True)


def empty(plan: PackPlan) -> np.ndarray:
    return np.full((plan.capacity, X.shape[1]), -1, np.float32)


def launches(artifact: Artifact) -> list[list[str]]:
    return [[s.kernel for s in v.steps if isinstance(s, Launch)] for v in artifact.variants]


def unique(artifact: Artifact) -> set[str]:
    """By which methods stores are known to be unique."""
    held = [o for v in artifact.variants for o in v.certificate] + [o for k in artifact.kernels for o in k.certificate]
    return {o.method for o in held if o.name == "unique(slots)"}


def test_a_handle_is_what_the_plan_has() -> None:
    plan, y, wanted = planned(), None, None
    assert isinstance(plan.unique_slots, PlannedIndices)
    assert isinstance(plan.unique_pairs, PlannedIndices)
    np.testing.assert_array_equal(plan.unique_slots.copy(), plan.slots)
    np.testing.assert_array_equal(plan.unique_pairs.copy(), plan.pairs)
    y, wanted = empty(plan), empty(plan)
    send(plan.unique_slots, X, y)
    send(plan.slots, X, wanted)
    np.testing.assert_array_equal(y, wanted)
    assert tw.build_pack_plan(np.zeros((3, 2), np.int32), 7).unique_slots is None


def test_a_launch_with_a_handle_has_no_check_and_gives_the_reason() -> None:
    other = send.compiled.with_planned(frozenset({"slots"}))
    checked, constructed = (kernel.compile(dtypes={"slots": "i32"}) for kernel in (send.compiled, other))
    assert all(len(steps) > 1 for steps in launches(checked))
    assert all(len(steps) == 1 for steps in launches(constructed))
    assert (unique(checked), unique(constructed)) == ({CHECKED}, {CONSTRUCTED})
    assert {o.standing for k in constructed.kernels for o in k.certificate if o.name == "unique(slots)"} == {
        "constructed"
    }
    plan = planned()
    arrays = {"slots": plan.slots, "x": X, "y": empty(plan)}
    wanted = empty(plan)
    send(plan.unique_slots, X, wanted)
    direct = other.compile(dtypes={"slots": "i32"}, facts=facts_of(arrays))
    assert [f for _, report in run_artifact(direct, arrays, schedules=2).reports for f in report.faults] == []
    np.testing.assert_array_equal(arrays["y"], wanted)


@pytest.mark.parametrize(("kernel", "method"), [(send_to_pages, CONSTRUCTED), (send_to_columns, CHECKED)])
def test_different_slots_have_to_be_different_places(kernel: Any, method: str) -> None:
    """Quotient and remainder together say which; a remainder alone does not, and stays checked."""
    other = kernel.compiled.with_planned(frozenset({"slots"}))
    assert unique(other.compile(dtypes={"slots": "i32"})) == {method}


def test_remainders_of_a_handle_are_checked() -> None:
    plan = planned(np.zeros((37, 2), np.int32))
    with pytest.raises(TilewrightError, match="RUN023"):
        send_to_columns(plan.unique_slots, X[:, 0].copy(), np.zeros((8, 16), np.float32))


def test_writing_the_plans_arrays_changes_no_handle() -> None:
    plan = planned()
    wanted, y = empty(plan), empty(plan)
    send(plan.unique_slots, X, wanted)
    plan.slots[...] = 3
    send(plan.unique_slots, X, y)
    np.testing.assert_array_equal(y, wanted)
    with pytest.raises(TilewrightError, match="RUN023"):
        send(plan.slots, X, y)
    plan.unique_slots.copy()[...] = 3
    send(plan.unique_slots, X, y)
    np.testing.assert_array_equal(y, wanted)


def test_raw_arrays_stay_checked_after_a_call_with_a_handle() -> None:
    plan, y = planned(), np.zeros((160, 20), np.float32)
    for _ in range(2):
        send(plan.unique_slots, X, y)
        with pytest.raises(TilewrightError, match="RUN023"):
            send(np.zeros((37, 2), np.int32), X, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda handle: PlannedIndices(np.zeros(4, np.int32), "a plan's"),
        lambda handle: PlannedIndices(np.zeros(4, np.int32), "a plan's", by=object()),
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda handle: setattr(handle, "_PlannedIndices__tensor", np.zeros(4, np.int32)),
    ],
)
def test_nothing_else_makes_or_changes_a_handle(make: Callable[[Any], object]) -> None:
    with pytest.raises((TilewrightError, TypeError, AttributeError)):
        make(planned().unique_slots)


def test_a_handle_is_for_a_unique_parameter() -> None:
    plan = planned()
    with pytest.raises(TilewrightError, match="JIT001"):
        read(plan.unique_slots, np.empty((37, 2), np.int32))
    read(plan.unique_slots.copy(), np.empty((37, 2), np.int32))


def test_a_handles_array_is_read_only() -> None:
    plan = planned()
    with pytest.raises(ValueError, match="read-only"):
        plan.unique_slots._PlannedIndices__tensor[...] = 0  # type: ignore[union-attr]


@pytest.mark.parametrize("build", [plan_on_host, plan_by_kernels])
@pytest.mark.parametrize("case", ["hostile", "one bucket", "capacity", "wide"])
def test_what_is_taken_for_unique_is(build: Any, case: str) -> None:
    """Of both planners, by hostile ids and policies that drop pairs."""
    ids = RNG.integers(-3, 12, (50, 3)).astype(np.int64)
    policy = tw.PackPolicy(align=8, capacity=5) if case == "capacity" else tw.PackPolicy(align=8)
    if case == "hostile":
        ids[::3] = RNG.choice([2**40, -(2**62), 2**32 + 1], ids[::3].shape)
    elif case == "one bucket":
        ids[:] = 4
    plan = build(ids, 128 if case == "wide" else 7, policy)
    for entries, most in ((plan.slots, plan.capacity), (plan.pairs, ids.size)):
        inside = entries[entries != -1]
        assert len(np.unique(inside)) == len(inside)
        assert ((inside >= 0) & (inside < most)).all()

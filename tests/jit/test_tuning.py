"""``Kernel.tune``: which schedules are timed, what is measured, put back and remembered."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support import products
from support.fake_driver import FakeDriver, FakeTensor, Launched
from tilewright.compiler.program import Planner
from tilewright.jit.tuning import FLUSH_BYTES, ROUNDS, TimedSchedule, ranked
from tilewright.lang.schedule import RoleMode

ROWS, COLUMNS = 64, 1024


@tw.kernel
def softmax(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=4096)
    row = x[m, n]
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def softmax_of_some(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, columns: tw.i32, bm=tw.auto):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(tw.minimum(columns, x.shape[1]), upto=4096)
    row = x[m, n]
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@dataclass
class ClockedDriver(FakeDriver):
    """A launch overwrites what it is given to write, and takes as many microseconds as ``cost`` says of its threads."""

    cost: Callable[[int], float] = float
    written: Any = None
    blocks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.on_launch = self.spoil

    def spoil(self, launched: Launched) -> None:
        self.written[:] = -1.0

    def allocate(self, size_bytes: int, stream: int) -> int:
        super().allocate(size_bytes, stream)
        self.blocks.append(np.zeros(1 if size_bytes == FLUSH_BYTES else size_bytes, np.uint8))
        return self.blocks[-1].ctypes.data

    def copy(self, destination: int, source: int, size_bytes: int, stream: int) -> None:
        super().copy(destination, source, size_bytes, stream)
        ctypes.memmove(destination, source, size_bytes)

    def seconds(self, work: Callable[[], None]) -> float:
        work()
        return self.cost(self.launches[-1].shape.threads) / 1e6


@dataclass
class Case:
    """Tensors of memory of the host that pass for a device's."""

    driver: ClockedDriver
    x: Any
    y: Any

    def tensors(self, rows: int = ROWS) -> tuple[FakeTensor, FakeTensor]:
        both = (self.x, self.y)
        return tuple(FakeTensor(a.ctypes.data, (rows, COLUMNS), None, "torch.float32") for a in both)  # type: ignore[return-value]


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Case]:
    x, y = (np.frombuffer(_aligned(), np.float32).reshape(ROWS, COLUMNS) for _ in range(2))
    y[:] = 7.0
    driver = ClockedDriver(locations={a.ctypes.data: 0 for a in (x, y)}, written=y)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    import tilewright.jit.tuning  # noqa: PLC0415 - its name is replaced below

    assert tilewright.jit.tuning
    for module in ("runtime.check", "runtime.program", "jit.tuning"):
        monkeypatch.setattr(sys.modules[f"tilewright.{module}"], "process_driver", lambda: driver)
    yield Case(driver, x, y)
    softmax.__dict__.pop("compiled", None)
    softmax_of_some.__dict__.pop("compiled", None)


def _aligned() -> Any:
    size = ROWS * COLUMNS * 4
    block = np.zeros(size + 256, np.uint8)
    begin = -block.ctypes.data % 256
    return block[begin : begin + size].data


def threads(driver: FakeDriver) -> int:
    return driver.launches[-1].shape.threads


def test_the_quickest_is_taken_for_such_tensors_and_no_others(case: Case):
    softmax(*case.tensors())
    chosen = threads(case.driver)
    case.driver.cost = lambda n: abs(n - 2 * chosen) + 10.0
    tuning = softmax.tune(*case.tensors(), best=4)
    times = [row.microseconds for row in tuning.rows]
    assert len(times) == 4
    assert times == sorted(times)
    assert tuning.schedule.threads == 2 * chosen
    assert str(tuning).splitlines()[0] == f"    10.00 us  {tuning.schedule}"
    softmax(*case.tensors())
    assert threads(case.driver) == 2 * chosen
    softmax(*case.tensors(ROWS // 2))
    assert threads(case.driver) == chosen
    softmax(*case.tensors())
    assert threads(case.driver) == 2 * chosen


def test_another_scalar_that_decides_has_its_own(case: Case):
    softmax_of_some(*case.tensors(), columns=COLUMNS)
    chosen = threads(case.driver)
    case.driver.cost = lambda n: abs(n - 256) + 10.0
    softmax_of_some.tune(*case.tensors(), columns=64, schedules=tw.Schedule(warps=8))
    softmax_of_some(*case.tensors(), columns=64)
    assert threads(case.driver) == 256
    softmax_of_some(*case.tensors(), columns=COLUMNS)  # of another class than those of 64 columns
    assert threads(case.driver) == chosen != 256
    softmax_of_some.tune(*case.tensors(), columns=COLUMNS, schedules=tw.Schedule(warps=8))
    for columns in (64, COLUMNS):
        softmax_of_some(*case.tensors(), columns=columns)
        assert threads(case.driver) == 256


def test_what_tensors_hold_is_put_back(case: Case):
    softmax.tune(*case.tensors(), best=2)
    assert (case.y == 7.0).all()
    softmax(*case.tensors())
    assert (case.y == -1.0).all()


def test_every_launch_is_timed_behind_a_flush(case: Case):
    tuning = softmax.tune(*case.tensors(), best=3)
    kinds = case.driver.kinds()
    assert kinds.count("fill") == 3 * ROUNDS
    assert kinds.count("launch") == 3 * (ROUNDS + 1)
    assert all(kinds[i + 1] == "launch" for i, kind in enumerate(kinds) if kind == "fill")
    assert kinds.count("free") == kinds.count("allocate") == 2
    assert all(row.microseconds for row in tuning.rows)


def test_given_schedules_are_timed_beside_the_chosen_one(case: Case):
    own = tw.Schedule(warps=8), tw.Schedule(warps=8, extents={"bm": 1}), tw.Schedule(stages=3)
    tuning = softmax.tune(*case.tensors(), schedules=own)
    assert {str(row.schedule) for row in tuning.rows if row.microseconds} == {"", "warps=8"}  # bm is 1 by itself
    (refused,) = [row for row in tuning.rows if row.microseconds is None]
    assert refused.schedule == own[2]
    assert "SCH" in str(refused) or "stages" in str(refused)
    assert tuning.rows[-1] is refused


def test_a_launch_that_fails_leaves_the_tensors_as_they_were(case: Case):
    def failing(work: Callable[[], None]) -> float:
        work()
        raise RuntimeError("device lost")

    case.driver.seconds = failing  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="device lost"):
        softmax.tune(*case.tensors(), best=2)
    assert (case.y == 7.0).all()
    assert case.driver.kinds().count("free") == 2
    assert case.driver.contexts == [1000]


def test_the_chosen_one_stays_unless_another_is_clearly_quicker():
    chosen, other = tw.Schedule(), tw.Schedule(warps=8)
    refused = TimedSchedule(tw.Schedule(stages=9), None, "too many")
    assert ranked([TimedSchedule(chosen, 10.0), TimedSchedule(other, 9.95), refused]).schedule == chosen
    quicker = ranked([TimedSchedule(chosen, 10.0), refused, TimedSchedule(other, 9.8)])
    assert [row.microseconds for row in quicker.rows] == [9.8, 10.0, None]


@pytest.mark.parametrize("best", [1, 65, 2.0, True])
def test_other_counts_are_refused(best: Any):
    with pytest.raises(tw.TilewrightError) as refused:
        softmax.tune(np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32), best=best)
    assert refused.value.code == "JIT013"


def test_one_schedule_is_several_and_others_are_refused(case: Case):
    alone = softmax.tune(*case.tensors(), schedules=tw.Schedule(warps=8))
    assert {str(row.schedule) for row in alone.rows} == {"", "warps=8"}
    with pytest.raises(tw.TilewrightError) as refused:
        softmax.tune(*case.tensors(), schedules=[{"warps": 8}])
    assert refused.value.code == "JIT013"


def test_arrays_of_the_host_are_refused():
    with pytest.raises(tw.TilewrightError) as refused:
        softmax.tune(np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32))
    assert refused.value.code == "JIT013"
    assert "a GPU" in str(refused.value)


def test_alternatives_of_a_product_are_schedules_that_it_can_have():
    request = products.request(product)
    dims = {"M": 4096, "N": 4096, "K": 4096, **{f"{t}.stride{i}": (4096, 1)[i] for t in "abc" for i in (0, 1)}}
    dims |= {f"{t}.address": 0 for t in "abc"}
    planner = Planner(request)
    found = list(planner.alternatives(dims))
    assert len(found) == len(set(found)) >= 8
    assert {RoleMode.PINGPONG, None} <= {schedule.mode for schedule in found}
    assert len({schedule.extents for schedule in found}) >= 6


@pytest.mark.parametrize(("m", "n", "filling"), [(512, 4864, 152), (640, 2560, 104)])
def test_widths_that_fill_a_wave_are_among_the_first(m: int, n: int, filling: int):
    """38 tiles of 128 columns are 152 for 132 SMs, 32 of 152 columns 128; 100 tiles of 128 leave 32 SMs without."""
    k = 10240
    dims = {"M": m, "N": n, "K": k, **{f"{t}.stride1": 1 for t in "abc"}, **{f"{t}.address": 0 for t in "abc"}}
    dims |= {"a.stride0": k, "b.stride0": k, "c.stride0": n}
    first = list(islice(Planner(products.request(product)).alternatives(dims), 4))
    assert any(dict(schedule.extents) == {"bm": 128, "bn": filling} for schedule in first)

"""Random products (``tools/pinned_products.py``) on the PTX machine, that a wrong result is found, and the pool."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from support.slow import rest_slow

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from campaign.pool import in_processes  # noqa: E402
from random_products import launch  # noqa: E402
from random_products.draw import FORMS, KINDS, drawn  # noqa: E402

SEEDS = (100, 102, 107, 113, 116, 5000, 5001)


@pytest.mark.parametrize("seed", rest_slow(list(SEEDS), [100, 5001]))
def test_products_under_pinned_schedules(seed: int, tmp_path: Path) -> None:
    case = drawn(seed)
    found = launch.judged(case, tmp_path, None)
    assert (found.status, found.launches > 0) == ("agreed", True), f"{found.what}\n{case.source}"


@pytest.mark.slow
def test_everything_is_drawn() -> None:
    cases = [drawn(seed) for seed in range(600)]
    assert {c.form for c in cases} == set(FORMS)
    assert {c.kind for c in cases} == set(KINDS)
    assert cases[7].source == drawn(7).source
    for case in cases:
        compile(case.source, "<drawn>", "exec")
        given = launch.placed(case, case.shapes[0], np.random.default_rng(0))
        right = launch.expected(case, given)
        assert right.keys() == {x.name for x in case.tensors if x.output}
        for name, y in right.items():
            assert y.shape == given[name].shape
            assert np.isfinite(y.astype(np.float64)).all()


def test_a_wrong_element_and_a_store_outside_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = drawn(100)
    given = launch.placed(case, case.shapes[0], np.random.default_rng(0))
    right = launch.expected(case, given)

    def after(*, shift: int, outside: bool) -> str:
        made = {n: p.copy() for n, p in given.items()}
        for name, y in right.items():
            made[name].view[...] = y
        name = next(iter(right))
        made[name].view.flat[-1] += shift
        made[name].base.view(np.uint8)[0] ^= outside
        monkeypatch.setattr(launch, "_machine", lambda *_: made)
        return launch.launched(case, None, given, None)  # pyright: ignore[reportArgumentType]

    assert not after(shift=0, outside=False)
    assert "not" in after(shift=1, outside=False)
    assert "around" in after(shift=0, outside=True)


def begin(offset: int):
    def judge(number: int) -> int:
        if number == 2:
            os._exit(1)
        if number == 4:
            time.sleep(1000)
        return number + offset

    return judge


@pytest.mark.slow
def test_a_case_that_dies_or_hangs_ends_nothing_else() -> None:
    found = dict(in_processes(begin, (10,), range(7), 2, 3))
    assert found == {0: 10, 1: 11, 2: "died", 3: 13, 4: "hung", 5: 15, 6: 16}

"""The checker against executions of the same program: random programs, random choices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.page_oracle import all_runs, random_runs
from support.page_programs import random_program
from support.slow import rest_slow
from tilewright.pages.programs import transfer
from tilewright.pages.programs.checker import check
from tilewright.pages.programs.ops import CacheProgram

pytestmark = pytest.mark.sample(1)

SIZES = (8, 16, 30, 50)


def disagreement(program: CacheProgram, seed: int) -> str:
    """Empty where the executions bear the checker's answer out."""
    codes = {d.code for d in check(program).diagnostics}
    if codes == {"PAG010"}:
        return ""
    found = {wrong.code for wrong in random_runs(program, 120, seed)}
    if not codes:
        return f"legal, but an execution breaks {found}" if found else ""
    found |= set() if found else {wrong.code for wrong in all_runs(program, 20000) if wrong is not None}
    return "" if found else f"{codes} refused, but no execution is wrong"


@pytest.mark.parametrize("block", rest_slow(range(12), 2))
@pytest.mark.parametrize("size", SIZES)
def test_executions_bear_the_checker_out(size: int, block: int) -> None:
    seeds = range(block * 50, block * 50 + 50)
    found = {seed: said for seed in seeds if (said := disagreement(random_program(seed, size), seed))}
    assert found == {}


@settings(max_examples=60)
@given(st.integers(10**6, 10**9), st.sampled_from(SIZES), st.sampled_from((0.0, 0.02, 0.1)))
def test_any_program(seed: int, size: int, mistakes: float) -> None:
    assert disagreement(random_program(seed, size, mistakes), seed) == ""


def test_the_programs_are_of_both_kinds() -> None:
    """A campaign of programs that are all right, or all wrong, would show nothing."""
    legal = [check(random_program(seed, 30)).legal for seed in range(100)]
    assert 20 < sum(legal) < 90


@pytest.mark.parametrize("rule", ["_hazard", "_unshared", "_ended"])
def test_a_checker_without_a_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, rule, lambda *_, **__: None)
    assert any(disagreement(random_program(seed, 30, 0.06), seed) for seed in range(150))

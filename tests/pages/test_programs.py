"""Every rule of cache programs: wrong programs are refused at their line, right ones are not."""

from __future__ import annotations

import pytest

from support.page_cases import Case, cases
from support.page_oracle import all_runs, random_runs
from tilewright import pages
from tilewright.diag import TilewrightError, render

WRONG, RIGHT = list(cases("wrong")), list(cases("right"))


def ids(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", WRONG, ids=ids)
def test_a_wrong_program_is_refused_at_its_line(case: Case) -> None:
    with pytest.raises(TilewrightError) as caught:
        pages.program(case.function()).check()
    found = [d for d in caught.value.diagnostics if d.code == case.code]
    assert found, str(caught.value)
    where = found[0].where
    assert where is not None
    if case.line is not None:
        assert where.line == case.line, render(found[0])


@pytest.mark.parametrize("case", RIGHT, ids=ids)
def test_a_right_program_is_not_refused(case: Case) -> None:
    program = pages.program(case.function()).check()
    assert list(random_runs(program.traced, 40, 1)) == []


@pytest.mark.parametrize("case", [c for c in WRONG if c.code not in ("PAG007", "PAG009")], ids=ids)
def test_an_execution_of_a_wrong_program_does_wrong(case: Case) -> None:
    traced = pages.program(case.function()).traced
    found = {w.code for w in random_runs(traced, 60, 1)}
    assert case.code in found | {w.code for w in all_runs(traced, 3000) if w is not None}


def test_there_are_enough_of_both() -> None:
    alone = [c.name for c in (*WRONG, *RIGHT) if c.name.endswith(", alone")]
    assert len(alone) > 120
    assert (len(WRONG) > 300, len(RIGHT) > 250) == (True, True)
    assert {c.code for c in WRONG} == {f"PAG00{n}" for n in range(1, 10)}

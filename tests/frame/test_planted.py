"""Every bug that ``tools/compiler_mutants.py`` plants still has its place in the source."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from planted.mutants import MUTANTS


def test_the_text_that_is_replaced_occurs_once() -> None:
    counts = {mutant.name: mutant.path.read_text().count(mutant.old) for mutant in MUTANTS}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert [mutant.name for mutant in MUTANTS if mutant.old == mutant.new] == []


def test_names_are_unique() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)

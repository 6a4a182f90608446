"""Every bug that ``tools/compiler_mutants.py`` plants still has its place in the source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from planted.mutant import Mutant
from planted.mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_text_that_is_replaced_occurs_once(mutant: Mutant) -> None:
    assert mutant.path.read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_names_are_unique() -> None:
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)

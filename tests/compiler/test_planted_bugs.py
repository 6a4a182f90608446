"""The campaign that plants bugs in the compiler: what can be planted, and that what it calls refused is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.slow import rest_slow

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from planted.judge import verdict  # noqa: E402
from planted.mutant import REFUSABLE, Kind, MatchError, Mutant, check  # noqa: E402
from planted.mutants import MUTANTS  # noqa: E402

ONE = Mutant("one", Kind.SCHEDULE, "", "schedule/lower.py", "all_of(s.origin + s.size", "all_of(s.origin", ("add",))


def test_every_bug_can_be_planted() -> None:
    check(MUTANTS)
    assert all(sum(m.kind is kind for m in MUTANTS) >= 20 for kind in REFUSABLE if kind is not Kind.SHARED)
    assert sum(m.named for m in MUTANTS) >= 22


@pytest.mark.parametrize(("old", "times"), [("all_of(s.origin + s.sizes", "0"), ("self.", r"\d\d+")])
def test_a_text_that_does_not_stand_once_is_an_error(old: str, times: str) -> None:
    with pytest.raises(MatchError, match=f"stands {times} times"):
        check((replace(ONE, old=old),))


def test_a_bug_that_is_no_python_is_an_error() -> None:
    with pytest.raises(ValueError, match="no Python any more"):
        check((replace(ONE, new="all_of((s.origin"),))


def test_nothing_is_planted_twice_or_in_what_is_trusted() -> None:
    check((ONE,))
    with pytest.raises(ValueError, match="taken twice"):
        check((ONE, ONE))
    with pytest.raises(ValueError, match="is trusted"):
        check((replace(ONE, file="validate/transport_to_ptx.py", old="def compare(", new="def compared("),))


@pytest.mark.parametrize(
    ("statuses", "word"),
    [
        (["same", "same"], "not exercised"),
        (["refused", "same"], "refused"),
        (["refused", "escaped"], "escaped"),
        (["refused", "undecided"], "undecided"),
        (["equal"], "harmless"),
        (["equal", "escaped"], "escaped"),
    ],
)
def test_the_worst_of_all_kernels_counts(statuses: list[str], word: str) -> None:
    assert verdict(ONE, [{"status": status} for status in statuses]) == word


def test_an_argument_holds_only_where_no_harm_is_seen() -> None:
    argued = replace(ONE, harmless="for a reason")
    assert verdict(argued, [{"status": "escaped", "harm": ""}]) == "harmless"
    assert verdict(argued, [{"status": "escaped", "harm": "wrong in 1 of 2 elements"}]) == "escaped"


REFUSED = {
    "registers of one place": "diagnostic",
    "whole tile everywhere": "proof",
    "reduction's barrier": "proof",
    "lanes swapped": "validate: PTX",
    "a macro of intrinsics": "validate: PTX",
    "a CTA short": "validate: recipe",
    "the first coordinate twice": "proof",
}
"""A bug of each class, on small kernels, and what refuses it."""


def test_the_bugs_are_of_every_class() -> None:
    assert {m.kind for m in MUTANTS if m.name in REFUSED} == set(REFUSABLE)


@pytest.mark.slow
@pytest.mark.parametrize("names", rest_slow([("a CTA short",), tuple(REFUSED)[:5] + tuple(REFUSED)[6:]], 1))
def test_a_bug_of_each_class_is_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = [word for name in names for word in ("--name", name)]
    command = [sys.executable, str(ROOT / "tools" / "compiler_mutants.py"), *words, "--json", str(out)]
    subprocess.run([*command, "--probe", "add", "--probe", "row_sum"], check=True, capture_output=True, timeout=600)
    found = json.loads(out.read_text())
    assert {line["name"] for line in found["mutants"]} == set(names)
    assert found["share_refused"] == 1
    for line in found["mutants"]:
        assert line["verdict"] == "refused", line
        assert {row["by"] for row in line["rows"] if row["status"] == "refused"} == {REFUSED[line["name"]]}

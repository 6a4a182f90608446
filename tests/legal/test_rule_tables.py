"""Rules of the other topics: a legal example, its off-by-one twin that breaks the rule alone, an entry for a reader."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.rule_cases import CASES, case
from tilewright.diag.catalogue import CATALOGUE
from tilewright.hw.rules import bulk, limits, tcgen05, wgmma
from tilewright.hw.rules.row import HardwareRule
from tilewright.legal.explain import TOPICS, explain_rule, rules
from tilewright.legal.predicates import broken

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from site_pages.tensor_map_rules import rules_markdown

PAGE = Path(__file__).parents[2] / "docs" / "tma-rules.md"

TABLES: list[tuple[HardwareRule, tuple[HardwareRule, ...], Mapping[str, int]]] = [
    (rule, topic.RULES, topic.ENUMERATORS) for topic in (bulk, limits, tcgen05, wgmma) for rule in topic.RULES
]


def test_every_rule_has_its_cases() -> None:
    assert CASES.keys() == {rule.id for rule in rules()}


@pytest.mark.parametrize(("rule", "table", "names"), TABLES, ids=[t[0].id for t in TABLES])
def test_good_keeps_every_rule_and_bad_breaks_this_one_alone(
    rule: HardwareRule, table: tuple[HardwareRule, ...], names: Mapping[str, int]
) -> None:
    cc = rule.scope.cc_from if rule.scope.cc_from >= 90 else 90
    good, bad = (
        {name: value for name, value in case(rule.id, e).items() if not isinstance(value, tuple)}
        for e in CASES[rule.id]
    )
    assert not broken(table, good, cc, names)
    assert [v.rule for v in broken(table, bad, cc, names)] == [rule.id]


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.id)
def test_every_rule_has_an_entry_and_an_explanation(rule: HardwareRule) -> None:
    entry = CATALOGUE[rule.id]
    assert entry.why
    assert entry.bad
    assert entry.good
    text = explain_rule(rule.id)
    assert text is not None
    assert rule.predicate in text
    assert rule.source in text


def test_ids_are_unique_and_every_code_of_a_topic_is_a_rule() -> None:
    ids = [rule.id for rule in rules()]
    assert len(ids) == len(set(ids))
    beside = {
        "TMA060",
        "TMA061",
        "TMA062",
        "TMA064",
        "TMA070",
        "TMA071",
        "TMA072",
        "TMA073",
        "TMA074",
    }
    prefixes = {"TMA", "WGM", "UMM", "BLK", "LIM"}
    assert {code for code in CATALOGUE if code[:3] in prefixes} == set(ids) | beside


def test_rules_are_listed_by_architecture_and_topic() -> None:
    hopper, blackwell = ({rule.id for rule in rules(arch)} for arch in ("sm_90a", "sm_100a"))
    assert {"TMA002", "WGM004"} <= hopper
    assert {"TMA001", "UMM001"} <= blackwell
    assert not {"TMA002", "WGM004"} & blackwell
    assert rules(topic="bulk") == TOPICS["bulk"]
    assert rules(topic="nothing") == ()
    assert explain_rule("TMA999") is None


def test_the_printed_reference_is_current_and_holds_every_rule() -> None:
    text = rules_markdown()
    assert PAGE.read_text() == text, "run python tools/tma_rules.py"
    for rule in TOPICS["tensormap"]:
        assert f"### {rule.id}\n" in text
        assert rule.predicate in text

"""The steps of a bundle that check promises are executed: steps that check something else are refuted."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from support.indexed import CASES, SHORT
from tilewright.artifact.schema import Artifact
from tilewright.compiler.bundle_verdict import Answer, ReadBundle
from tilewright.compiler.index_promise_tests import PROMISES_TESTED
from tilewright.compiler.variants_agree import Agreement
from tilewright.diag import TilewrightError

pytestmark = pytest.mark.sample(1)


@functools.cache
def compiled(name: str) -> Artifact:
    case = CASES[name]
    given = {n: SHORT[a.dtype.name] for n, a in case.draw(np.random.default_rng(0)).items()}
    return case.kernel.compile(dtypes=given)


def edited(artifact: Artifact, step: str, old: str, new: str) -> Artifact:
    """The text of a step's kernel changed, in all places."""
    (number,) = (i for i, k in enumerate(artifact.kernels) if k.symbol.endswith(step))
    image = artifact.kernels[number]
    assert old in image.transport_ir
    changed = replace(image, transport_ir=image.transport_ir.replace(old, new))
    return replace(artifact, kernels=(*artifact.kernels[:number], changed, *artifact.kernels[number + 1 :]))


@pytest.mark.parametrize("name", ["scatter_rows", "scatter_pairs", "numbered_groups"])
def test_steps_as_compiled_check(name: str) -> None:
    found = ReadBundle.of(compiled(name)).promises()
    assert found.answer is Answer.DECIDED
    assert found.shown
    assert found.shown[0].standing == "tested"


@pytest.mark.parametrize(
    ("step", "old", "new"),
    [
        ("judge0", "compare <ne>", "compare <eq>"),
        ("judge0", "compare <ne>", "compare <lt>"),
        ("judge0", 'constant <"1">', 'constant <"0">'),
        ("claim0", "atomic_fn<set>", "atomic_fn<add>"),
        ("scatter_rows", "compare <ne>", "compare <eq>"),
        ("scatter_rows", "atomic_fn<add>", "atomic_fn<max>"),
    ],
)
def test_steps_that_check_something_else_are_refuted(step: str, old: str, new: str) -> None:
    found = ReadBundle.of(edited(compiled("scatter_rows"), step, old, new)).promises()
    assert found.answer is Answer.REFUTED, found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("compare <gt>", "compare <ne>"),
        ("compare <ne>", "compare <lt>"),
        ("tile.binary <or>", "tile.binary <and>"),
        ('"$k0*1024', '"1024'),
    ],
    ids=["equal offsets", "the first one", "both mistakes", "the second turn alone"],
)
def test_a_judge_of_other_offsets_is_refuted(old: str, new: str) -> None:
    found = ReadBundle.of(edited(compiled("numbered_groups"), "judge", old, new)).promises()
    assert found.answer is Answer.REFUTED, found


def test_what_is_compiled_ahead_of_time_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unseen(*_: object) -> Agreement:
        return Agreement(("a broken promise is not reported",))

    monkeypatch.setattr("tilewright.compiler.index_promise_tests.run_promise_tests", unseen)
    case = CASES["numbered_groups"]
    given = {n: SHORT[a.dtype.name] for n, a in case.draw(np.random.default_rng(0)).items()}
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "1")
    with pytest.raises(TilewrightError) as refused:
        case.kernel.compile(dtypes=given)
    assert refused.value.code == "CGN005"


def test_the_certificate_says_what_was_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VALIDATION", "1")
    case = CASES["scatter_rows"]
    given = {n: SHORT[a.dtype.name] for n, a in case.draw(np.random.default_rng(0)).items()}
    artifact = case.kernel.compile(dtypes=given)
    said = [o for k in artifact.kernels for o in k.certificate if o.name == PROMISES_TESTED and o.standing == "tested"]
    assert {o.detail for o in said} == {o.detail for o in ReadBundle.of(artifact).promises().shown}
    assert len(said) == len(artifact.variants)
    verdicts = list(ReadBundle.of(artifact).each())
    assert not any("promises" in why for v in verdicts for why in v.proofs.open)


def test_promises_that_nothing_reports_are_open() -> None:
    artifact = compiled("scatter_rows")
    silent = replace(artifact, variants=tuple(replace(v, reports=()) for v in artifact.variants))
    assert ReadBundle.of(silent).promises().answer is Answer.UNDECIDED


def test_a_program_without_promises_asks_nothing() -> None:
    found = ReadBundle.of(compiled("gathered_product")).promises()
    assert found.answer is Answer.DECIDED
    assert not found.shown

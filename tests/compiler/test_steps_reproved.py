"""Certificates of variants that somebody else may have written: what they say of steps is proved again, or open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.test_split_k import pinned
from support import products as p
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.schema import Artifact, Obligation, Variant
from tilewright.base.expr import TRUE, parse
from tilewright.compiler.build import build
from tilewright.compiler.bundle_verdict import Answer, PartVerdict, ReadBundle
from tilewright.compiler.program import plan

AGREED = PartVerdict(shown=(Obligation("variants", "execution", "on some arguments"),))


@pytest.fixture(scope="module")
def parts() -> Artifact:
    """Products in six parts, whose sums lie in a workspace."""
    return build(replace(plan(pinned(p.nt, 6)), left_out=()))


@pytest.fixture(scope="module")
def rows() -> Artifact:
    """Matrices that are taken for one row."""
    kernel = EXAMPLES_BY_NAME["swiglu"].kernel
    return kernel.compile(dtypes={t.name: "bf16" for t in kernel.tensors})


def verdict(artifact: Artifact, number: int = 0, variants: PartVerdict = AGREED, **changes: object) -> PartVerdict:
    """Of an artifact of which one variant is changed."""
    several = list(artifact.variants)
    several[number] = replace(several[number], **changes)  # pyright: ignore[reportArgumentType]
    return ReadBundle.of(replace(artifact, variants=tuple(several))).steps(variants)


def test_certificates_as_compiled_are_proved_again(parts: Artifact, rows: Artifact) -> None:
    for artifact in (parts, rows):
        found = verdict(artifact)
        assert found.answer is Answer.DECIDED, found.open
        said = {o for v in artifact.variants for o in v.certificate if o.name not in ("split", "swapped")}
        assert set(found.shown) == said
    assert {o.name for o in verdict(parts).shown} == {"order", "whole", "inside", "bound"}
    assert {o.name for o in verdict(rows).shown} == {"collapsed"}


def test_certificates_may_say_less(parts: Artifact) -> None:
    assert verdict(parts, certificate=()).answer is Answer.DECIDED


def split(variant: Variant) -> Obligation:
    (found,) = (o for o in variant.certificate if o.name == "split")
    return found


def test_another_program_is_what_only_launches_tell(parts: Artifact) -> None:
    """The program that was cut is in no bundle."""
    for variants in (PartVerdict(), replace(AGREED, open=("one was not executed",))):
        found = verdict(parts, variants=variants)
        assert found.answer is Answer.UNDECIDED
        assert "says split 6 parts" in found.open[0]


@pytest.mark.parametrize(
    "claim",
    [
        Obligation("split", "identity", "7 parts, each step in one of them"),
        Obligation("clustered", "identity", "4 parts, each step in one of them, each column in one share"),
        Obligation("order", "workspace 1: kernel_nt_parts runs first"),
        Obligation("whole", "linear", "every tensor"),
        Obligation("collapsed", "identity", "pointwise, M*N elements without a gap"),
        Obligation("unique(index)", "checked", "by step 1 of 2, before any store"),
        Obligation("results", "validation", "equal those of PyTorch"),
    ],
)
def test_what_nothing_shows_is_open(parts: Artifact, claim: Obligation) -> None:
    found = verdict(parts, certificate=(*parts.variants[0].certificate, claim))
    assert found.answer is Answer.UNDECIDED
    assert claim.detail in found.open[0]


def test_steps_that_hand_nothing_on_are_open(parts: Artifact) -> None:
    (variant,) = parts.variants
    found = verdict(parts, steps=variant.steps[::-1], certificate=())
    assert "before anything fills it" in found.open[0]


def test_gaps_between_rows_are_open(rows: Artifact) -> None:
    (number,) = (i for i, v in enumerate(rows.variants) if any(o.name == "collapsed" for o in v.certificate))
    found = verdict(rows, number, predicate=TRUE, certificate=())
    assert "gaps between its rows" in found.open[0]


def test_workspaces_of_another_layout_are_open(parts: Artifact) -> None:
    """Rows of the partial sums that lie on each other, in both kernels alike."""
    (sums,) = {w.tensor.data: w for k in ReadBundle.of(parts).kernels.values() for w in k.workspaces or ()}.values()
    outer = sums.strides.data[0].expr
    assert outer != parse("1")
    texts = [k.transport_ir.replace(f'<"{outer}">', '<"1">') for k in parts.kernels]
    kernels = tuple(replace(k, transport_ir=text) for k, text in zip(parts.kernels, texts, strict=True))
    found = ReadBundle.of(replace(parts, kernels=kernels)).steps(AGREED)
    assert "another layout" in found.open[0]

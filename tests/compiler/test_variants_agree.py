"""Variants of one bundle compute one program: executed beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.schema import Artifact
from tilewright.compiler.bundle_verdict import Answer, ReadBundle


def compiled(name: str) -> Artifact:
    example = EXAMPLES_BY_NAME[name]
    return example.kernel.compile(dtypes={t.name: "bf16" for t in example.kernel.tensors})


@pytest.fixture(scope="module")
def axpy() -> Artifact:
    return compiled("axpy")


@pytest.fixture(scope="module")
def attention() -> Artifact:
    return compiled("attention")


def edited(artifact: Artifact, number: int, old: str, new: str, text: str = "transport_ir") -> ReadBundle:
    """The artifact with another text of one kernel."""
    image = artifact.kernels[number]
    changed = getattr(image, text).replace(old, new)
    assert changed != getattr(image, text)
    kernels = list(artifact.kernels)
    kernels[number] = replace(image, **{text: changed})
    return ReadBundle.of(replace(artifact, kernels=tuple(kernels)))


@pytest.mark.slow
def test_variants_as_compiled_agree(axpy: Artifact, attention: Artifact) -> None:
    for artifact in (axpy, attention):
        assert len(artifact.variants) == 3
        found = ReadBundle.of(artifact).variants()
        assert found.answer is Answer.DECIDED
        named = {v.name for v in artifact.variants for o in found.shown if v.name in o.detail}
        assert named == {v.name for v in artifact.variants}


@pytest.mark.parametrize("number", range(3))
def test_another_program_in_one_variant_is_refuted(axpy: Artifact, number: int) -> None:
    """Its own Tile IR may say the same, and its PTX do it: only the other variants tell."""
    found = edited(axpy, number, "binary <add>", "binary <sub>").variants()
    assert found.answer is Answer.REFUTED
    assert "axpy_" in found.refuted[0]


@pytest.mark.slow
def test_a_variant_for_no_steps_is_another_one_without_its_streams(attention: Artifact) -> None:
    (number,) = (i for i, image in enumerate(attention.kernels) if image.symbol.endswith("no_steps"))
    found = edited(attention, number, "tile.binary <div>", "tile.binary <mul>", "tile_ir").variants()
    assert found.answer is Answer.UNDECIDED
    assert "attention_no_steps was executed on no arguments that the others take" in found.open


def test_a_single_variant_asks_nothing() -> None:
    found = ReadBundle.of(compiled("add")).variants()
    assert (found.answer, found.shown) == (Answer.DECIDED, ())


def test_a_text_that_can_not_be_executed_is_undecided(axpy: Artifact) -> None:
    other = edited(axpy, 0, "binary <add>", "binary <sub>").artifact
    found = next(edited(other, 0, 'live = #tile.expr<"1">', 'live = #tile.expr<"$tid < 5">').each())
    assert found.ptx.answer is Answer.UNDECIDED
    assert any("can't be compared" in reason for reason in found.ptx.open)

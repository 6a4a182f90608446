"""Certificates of variants that somebody else may have written: what they say of steps is proved again, or open."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from compiler.test_split_k import SIZES, pinned, sized
from support import products as p
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.bundle import from_bytes, to_bytes
from tilewright.artifact.schema import Artifact, Obligation
from tilewright.base.expr import TRUE, parse
from tilewright.compiler.build import build
from tilewright.compiler.bundle_verdict import Answer, PartVerdict, ReadBundle
from tilewright.compiler.program import plan


@pytest.fixture(scope="module")
def parts() -> Artifact:
    """Products in six parts, whose sums lie in a workspace."""
    return build(replace(plan(pinned(p.nt, 6)), left_out=()))


@pytest.fixture(scope="module")
def rows() -> Artifact:
    """Matrices that are taken for one row."""
    kernel = EXAMPLES_BY_NAME["swiglu"].kernel
    return kernel.compile(dtypes={t.name: "bf16" for t in kernel.tensors})


def verdict(artifact: Artifact, number: int = 0, **changes: object) -> PartVerdict:
    """Of an artifact of which one variant is changed."""
    several = list(artifact.variants)
    several[number] = replace(several[number], **changes)  # pyright: ignore[reportArgumentType]
    return ReadBundle.of(replace(artifact, variants=tuple(several))).steps()


def test_certificates_as_compiled_are_proved_again(parts: Artifact, rows: Artifact) -> None:
    for artifact in (parts, rows):
        found = verdict(artifact)
        assert found.answer is Answer.DECIDED, found.open
        said = {o for v in artifact.variants for o in v.certificate}
        assert set(found.shown) == said
    assert {o.name for o in verdict(parts).shown} == {"order", "whole", "inside", "bound", "split"}
    assert {o.name for o in verdict(rows).shown} == {"collapsed"}


def test_certificates_may_say_less(parts: Artifact) -> None:
    assert verdict(parts, certificate=()).answer is Answer.DECIDED


WAYS = {"swapped": (16, 8192, 8192), "clustered": (384, 384, 4096), "split": (128, 128, 65536)}


@pytest.fixture(scope="module", params=WAYS)
def rewritten(request: pytest.FixtureRequest) -> tuple[str, Artifact]:
    """One variant of products for such extents, and how its program was rewritten."""
    m, n, k = WAYS[request.param]
    symbols = {"M": m, "N": n, "K": k, "a.stride0": k, "b.stride0": k, "c.stride0": n, **SIZES}
    return request.param, from_bytes(to_bytes(build(replace(plan(p.request(sized), symbols), left_out=()))))


def test_how_a_program_was_rewritten_is_proved_again(rewritten: tuple[str, Artifact]) -> None:
    way, artifact = rewritten
    bundle = ReadBundle.of(artifact)
    found = bundle.steps()
    assert (found.answer, bundle.recipe().answer) == (Answer.DECIDED, Answer.DECIDED), found.open
    assert way in {o.name for o in found.shown}
    last = artifact.kernels[-1]
    assert artifact.tile_ir == artifact.programs_of(last)[0].tile_ir != last.tile_ir


def test_without_the_program_it_was_it_is_open(rewritten: tuple[str, Artifact]) -> None:
    way, artifact = rewritten
    kernels = tuple(replace(image, made_of=()) for image in artifact.kernels)
    bundle = ReadBundle.of(replace(artifact, kernels=kernels, programs=()))
    assert bundle.steps().answer is Answer.UNDECIDED
    assert f"says {way}" in bundle.steps().open[0]
    assert "the program of no kernel" in bundle.recipe().refuted[0]


EDITS = {
    "another sum": ("tile.binary <add>", "tile.binary <max>"),
    "another start": ('tile.constant <"0.0">', 'tile.constant <"1.0">'),
    "another numeric mode": ("numerics<accurate>", "numerics<fast>"),
    "other steps": ('"$k0*64', '"1 + $k0*64'),
}


def edited(artifact: Artifact, what: str, program: int | None, kernel: int | None) -> ReadBundle | None:
    """With one text of Tile IR edited, that of a program or of a kernel; None where there is nothing to edit."""
    old, new = EDITS[what]
    texts = [p.tile_ir for p in artifact.programs] if program is not None else [k.tile_ir for k in artifact.kernels]
    at = program if program is not None else kernel
    assert at is not None
    text = texts[at].replace(old, new)
    if text == texts[at]:
        return None
    programs, kernels = list(artifact.programs), list(artifact.kernels)
    if program is not None:
        programs[at] = replace(programs[at], tile_ir=text)
    else:
        kernels[at] = replace(kernels[at], tile_ir=text)
    return ReadBundle.of(replace(artifact, programs=tuple(programs), kernels=tuple(kernels)))


@pytest.mark.parametrize("what", EDITS)
def test_edited_programs_and_kernels_are_open(rewritten: tuple[str, Artifact], what: str) -> None:
    _, artifact = rewritten
    places = [(n, None) for n in range(len(artifact.programs))] + [(None, n) for n in range(len(artifact.kernels))]
    bundles = [edited(artifact, what, *place) for place in places]
    assert any(bundles)
    assert {bundle.steps().answer for bundle in bundles if bundle} == {Answer.UNDECIDED}


DOT = re.compile(r"(%\d+) = tile.dot (%\d+), (.*?) : (!tile.tile<.*?\]>), ")


def negated(text: str) -> str:
    """The program with the first operand of its product negated."""
    found, count = DOT.subn(r"%n = tile.unary <neg> \2 : \4\n\1 = tile.dot %n, \3 : \4, ", text)
    assert count == 1
    return found


def test_parts_of_another_program_are_open(rewritten: tuple[str, Artifact]) -> None:
    """Edited alike where sums are made, and not where the program at other sizes of tiles says what becomes of them."""
    way, artifact = rewritten
    if way == "swapped":
        pytest.skip("one program")
    programs, kernels = list(artifact.programs), list(artifact.kernels)
    programs[0] = replace(programs[0], tile_ir=negated(programs[0].tile_ir))
    kernels[0] = replace(kernels[0], tile_ir=negated(kernels[0].tile_ir))
    found = ReadBundle.of(replace(artifact, programs=tuple(programs), kernels=tuple(kernels))).steps()
    assert found.answer is Answer.UNDECIDED
    assert "made of programs that differ" in found.open[0]


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
    found = ReadBundle.of(replace(parts, kernels=kernels)).steps()
    assert "another layout" in found.open[0]

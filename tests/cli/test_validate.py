"""``tilewright validate``: bundles as they are compiled, with other PTX, and with another recipe."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from compiler.test_staging import odd
from support.example_cases import EXAMPLES_BY_NAME
from support.generality import in_place
from tilewright.artifact.bundle import to_bytes
from tilewright.artifact.schema import ASSUMED, AccessMode, Artifact, Launch, Obligation
from tilewright.cli.commands import app
from tilewright.compiler.build import build
from tilewright.compiler.bundle_verdict import Answer, ReadBundle
from tilewright.compiler.program import plan


def tilewright(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return EXAMPLES_BY_NAME["add"].kernel.compile(dtypes=dict.fromkeys("xyz", "bf16"))


def written(artifact: Artifact, tmp_path: Path) -> Path:
    file = tmp_path / "add.bundle"
    file.write_bytes(to_bytes(artifact))
    return file


def test_a_bundle_as_compiled(artifact: Artifact, tmp_path: Path) -> None:
    result = tilewright("validate", written(artifact, tmp_path))
    assert result.exit_code == 0, result.output
    assert "kernel_add: PTX against Transport IR: validated" in result.output
    assert "kernel_add: Transport IR against Tile IR: validated" in result.output


def document(result: Result) -> dict[str, Any]:
    """The one JSON document that a command has printed."""
    found = json.loads(result.stdout)
    assert found["exit_status"] == result.exit_code
    return found


def test_json_of_a_bundle_as_compiled(artifact: Artifact, tmp_path: Path) -> None:
    file = written(artifact, tmp_path)
    told = document(tilewright("validate", file, "--json"))
    assert (told["bundle"], told["verdict"], told["exit_status"]) == (str(file), "validated", 0)
    assert told["recipe"] == {"answer": "decided", "reasons": []}
    assert told["steps"] == {"answer": "decided", "reasons": [], "proved": []}
    assert told["variants"] == {"answer": "decided", "reasons": [], "tested": []}
    (kernel,) = told["kernels"]
    assert (kernel["kernel"], kernel["answer"]) == ("kernel_add", "decided")
    for part in ("ptx", "machine_code", "tile_ir", "proofs"):
        assert kernel[part] == {"answer": "decided", "reasons": []}
    assert {o["name"] for o in kernel["validated"]} == {"ptx", "lowering", "machine code"}
    (image,) = artifact.kernels
    proved = {(o.name, o.method, o.detail) for o in image.certificate if o.standing == "proved"}
    assert {(o["name"], o["method"], o["detail"]) for o in kernel["proved"]} == proved
    assert kernel["tested"] == []
    assert told["assumed"] == list(ASSUMED)
    assert told["not_compared"]


def test_json_of_ptx_that_is_not_validated(artifact: Artifact, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    changed = replace(image, ptx=image.ptx.replace("add.rn.f32", "sub.rn.f32", 1))
    told = document(tilewright("validate", written(replace(artifact, kernels=(changed,)), tmp_path), "--json"))
    assert told["verdict"] == told["kernels"][0]["answer"] == "undecided"
    assert told["kernels"][0]["ptx"]["answer"] == told["kernels"][0]["machine_code"]["answer"] == "undecided"
    assert told["kernels"][0]["tile_ir"]["answer"] == told["kernels"][0]["proofs"]["answer"] == "decided"
    assert "ptx" not in {o["name"] for o in told["kernels"][0]["validated"]}


def test_json_of_another_grid(artifact: Artifact, tmp_path: Path) -> None:
    (variant,) = artifact.variants
    launch = variant.steps[-1]
    assert isinstance(launch, Launch)
    short = replace(launch, grid=(launch.grid[0] - 1, *launch.grid[1:]))
    changed = replace(artifact, variants=(replace(variant, steps=(*variant.steps[:-1], short)),))
    told = document(tilewright("validate", written(changed, tmp_path), "--json"))
    assert (told["verdict"], told["recipe"]["answer"]) == ("refuted", "refuted")
    assert any("grid" in reason for reason in told["recipe"]["reasons"])


@pytest.mark.parametrize("content", [None, b"", b"\xff\x00 no bundle"])
def test_json_of_no_bundle(content: bytes | None, tmp_path: Path) -> None:
    """Also of a name that JSON must escape."""
    file = tmp_path / "\x7f\n.bundle"
    if content is not None:
        file.write_bytes(content)
    told = document(tilewright("validate", file, "--json"))
    assert (told["bundle"], told["verdict"], told["exit_status"]) == (str(file), "unreadable", 2)
    assert told["reasons"]


def test_other_ptx_is_not_validated(artifact: Artifact, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    changed = replace(image, ptx=image.ptx.replace("add.rn.f32", "sub.rn.f32", 1))
    result = tilewright("validate", written(replace(artifact, kernels=(changed,)), tmp_path))
    assert result.exit_code == 3
    assert "differences" in result.output


def test_another_program_is_not_what_the_ir_stores(artifact: Artifact, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    changed = replace(image, tile_ir=image.tile_ir.replace("tile.binary <add>", "tile.binary <sub>"))
    other = replace(artifact, kernels=(changed,), tile_ir=changed.tile_ir)
    result = tilewright("validate", written(other, tmp_path))
    assert result.exit_code == 3
    assert "kernel_add: Transport IR against Tile IR: undecided" in result.output
    assert "add.py:13: another value is stored to z" in result.output


def test_a_bundle_without_tile_ir_is_undecided(artifact: Artifact, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    other = replace(artifact, kernels=(replace(image, tile_ir=""),), tile_ir="")
    result = tilewright("validate", written(other, tmp_path))
    assert result.exit_code == 3
    assert "the bundle has none of it" in result.output


@pytest.mark.parametrize("text", ["transport", "", "(" * 5000, '"builtin.module"() ({}) : () -> ()'])
def test_ir_that_is_none(artifact: Artifact, text: str, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    result = tilewright("validate", written(replace(artifact, kernels=(replace(image, transport_ir=text),)), tmp_path))
    assert result.exit_code == 2
    assert "ART011" in result.output


def test_another_grid_is_refuted(artifact: Artifact, tmp_path: Path) -> None:
    (variant,) = artifact.variants
    launch = variant.steps[-1]
    assert isinstance(launch, Launch)
    short = replace(launch, grid=(launch.grid[0] - 1, *launch.grid[1:]))
    changed = replace(artifact, variants=(replace(variant, steps=(*variant.steps[:-1], short)),))
    result = tilewright("validate", written(changed, tmp_path))
    assert result.exit_code == 1
    assert "grid" in result.output


def test_one_byte_of_machine_code(artifact: Artifact, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    at = image.cubin.index(b".text") + 4096
    cubin = image.cubin[:at] + bytes([image.cubin[at] ^ 1]) + image.cubin[at + 1 :]
    result = tilewright("validate", written(replace(artifact, kernels=(replace(image, cubin=cubin),)), tmp_path))
    assert result.exit_code == 3
    assert "makes other machine code of its PTX" in result.output


def test_machine_code_of_another_kernel(artifact: Artifact, tmp_path: Path) -> None:
    other = EXAMPLES_BY_NAME["axpy"].kernel.compile(dtypes=dict.fromkeys("xyz", "bf16")).kernels[0]
    (image,) = artifact.kernels
    result = tilewright("validate", written(replace(artifact, kernels=(replace(image, cubin=other.cubin),)), tmp_path))
    assert result.exit_code == 3


def test_text_that_ends_the_string_around_it(artifact: Artifact, tmp_path: Path) -> None:
    """PTX goes through a compiler of C++: it must not become C++."""
    (image,) = artifact.kernels
    ptx = image.ptx.replace("ret;", '.pragma "\\"); } int other; void f() { asm(\\"";\n\tret;', 1)
    result = tilewright("validate", written(replace(artifact, kernels=(replace(image, ptx=ptx),)), tmp_path))
    assert result.exit_code in (2, 3)


def test_an_ir_that_is_not_proved(artifact: Artifact, tmp_path: Path) -> None:
    """Its loads have no guard."""
    (image,) = artifact.kernels
    text = re.sub(r'guard = #tile.expr<"[^"]*">', 'guard = #tile.expr<"1">', image.transport_ir)
    result = tilewright("validate", written(replace(artifact, kernels=(replace(image, transport_ir=text),)), tmp_path))
    assert result.exit_code == 3
    assert "not proved" in result.output


def test_a_claim_that_no_proof_makes(artifact: Artifact, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    claim = Obligation("once", "radix", "the moon")
    changed = replace(image, certificate=(*image.certificate, claim))
    result = tilewright("validate", written(replace(artifact, kernels=(changed,)), tmp_path))
    assert result.exit_code == 3
    assert "once the moon by radix, which is not shown" in result.output


@pytest.mark.parametrize("row", [0, -1])
def test_a_row_by_another_method(artifact: Artifact, row: int, tmp_path: Path) -> None:
    (image,) = artifact.kernels
    rows = list(image.certificate)
    rows[row] = replace(rows[row], method="induction")
    changed = replace(image, certificate=tuple(rows))
    result = tilewright("validate", written(replace(artifact, kernels=(changed,)), tmp_path))
    assert result.exit_code == 3
    assert "by induction, which is not shown" in result.output


def test_parameters_in_another_order(artifact: Artifact, tmp_path: Path) -> None:
    """A call by position would exchange its arguments."""
    x, y, z = artifact.parameters
    result = tilewright("validate", written(replace(artifact, parameters=(x, z, y)), tmp_path))
    assert result.exit_code == 1
    assert "parameters: x, z, y, not x, y, z" in result.output


def test_an_output_that_is_read(tmp_path: Path) -> None:
    """It may be left out of a call, and would hold anything."""
    artifact = in_place.compile(dtypes={"x": "f16", "scale": "f32"})
    (updated,) = [p for p in artifact.tensors if p.access is AccessMode.READ_WRITE]
    parameters = tuple(replace(p, access=AccessMode.WRITE) if p is updated else p for p in artifact.parameters)
    result = tilewright("validate", written(replace(artifact, parameters=parameters), tmp_path))
    assert result.exit_code == 1
    assert f"parameters.{updated.name}: read, not write" in result.output


def test_another_program_on_the_cover(artifact: Artifact, tmp_path: Path) -> None:
    shown = artifact.tile_ir.replace("tile.binary <add>", "tile.binary <sub>")
    result = tilewright("validate", written(replace(artifact, tile_ir=shown), tmp_path))
    assert result.exit_code == 1
    assert "tile_ir: the program of no kernel" in result.output


def test_the_program_of_a_copy_on_the_cover() -> None:
    """It is that of a kernel, but of none that ends a variant."""
    staged = build(replace(plan(odd()), left_out=()))
    copy = next(image for image in staged.kernels if "stage" in image.symbol)
    bundle = ReadBundle.of(staged)
    assert bundle.recipe().answer is Answer.DECIDED
    found = replace(bundle, artifact=replace(staged, tile_ir=copy.tile_ir)).recipe()
    assert found.refuted == ("tile_ir: the program of no kernel, not that of one, which ends a variant",)


def test_what_takes_too_long_is_undecided(artifact: Artifact, tmp_path: Path) -> None:
    """Each question ends, and the others are answered all the same."""
    told = document(tilewright("validate", written(artifact, tmp_path), "--json", "--seconds", "0.001"))
    assert told["verdict"] == "undecided"
    (kernel,) = told["kernels"]
    assert kernel["ptx"]["reasons"][0] == "takes more than 0.001 seconds of the processor"
    assert told["recipe"]["answer"] in ("decided", "undecided")


def test_endless_work_on_a_kernel_ends(artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr("tilewright.compiler.bundle_verdict.compare_lowering", endless)
    result = tilewright("validate", written(artifact, tmp_path), "--seconds", "1")
    assert result.exit_code == 3, result.output
    assert "takes more than 1 seconds of the processor" in result.output
    assert "kernel_add: PTX against Transport IR: validated" in result.output

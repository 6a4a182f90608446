"""Bundles: round trips, and refusal of anything that is not exactly what was written."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.artifacts import scale, staged
from tilewright.artifact import bundle
from tilewright.artifact.schema import (
    SCHEMA_VERSION,
    Artifact,
    Const,
    Copy,
    EncodeTensorMap,
    Fill,
    IntScalar,
    Launch,
    OriginalProgram,
    TensorMapArg,
    TensorPointer,
    WorkspacePointer,
)
from tilewright.base.expr import maximum, sym
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import DataType, Interleave, L2Promotion, OobFill, Swizzle

pytestmark = pytest.mark.sample(1)

PROGRAMS = [scale, staged]
RECIPE = next(s.recipe for s in staged().variants[0].steps if isinstance(s, EncodeTensorMap))
HEADER = struct.Struct("<8sQ32s")


def refused(code: str) -> Any:
    return pytest.raises(TilewrightError, match=rf"error\[{code}\]")


@pytest.mark.parametrize("program", PROGRAMS)
def test_round_trips(program: Callable[[], Artifact], tmp_path: Path) -> None:
    artifact = program()
    data = bundle.to_bytes(artifact)
    assert bundle.from_bytes(data) == artifact
    assert bundle.to_bytes(bundle.from_bytes(data)) == data
    bundle.write_folder(artifact, tmp_path / "out")
    assert bundle.read(tmp_path / "out") == artifact
    (tmp_path / "one.twb").write_bytes(data)
    assert bundle.read(tmp_path / "one.twb") == artifact


def test_long_predicates_name_what_they_share() -> None:
    price = maximum(*((sym("M") + i) // 128 * ((sym("N") + i) // 64) * (i + 3) for i in range(40)))
    first, *others = scale().variants
    made = replace(scale(), variants=(replace(first, predicate=price <= price // 2 + 900), *others))
    written = bundle.to_bytes(made)
    (length,) = struct.unpack("<Q", written[8:16])
    manifest = json.loads(written[48 : 48 + length])
    predicate = manifest["artifact"]["variants"][0]["predicate"]
    assert len(str(price)) > 500
    assert len(predicate) < 60
    assert manifest["expressions"] == [str(price)]
    assert bundle.from_bytes(written) == made


def test_folder_shows_the_source_to_a_person(tmp_path: Path) -> None:
    bundle.write_folder(scale(), tmp_path / "out")
    assert (tmp_path / "out" / "scale_wide.cu").read_text() == "// wide\n"
    assert (tmp_path / "out" / "tile.mlir").read_text() == "tile.func @scale"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_folder_replaces_an_older_bundle_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    bundle.write_folder(scale(), out)
    bundle.write_folder(staged(), out)
    assert bundle.read(out) == staged()
    other = tmp_path / "home"
    other.mkdir()
    (other / "thesis.tex").write_text("\\begin")
    with refused("ART007"):
        bundle.write_folder(scale(), other)
    assert (other / "thesis.tex").read_text() == "\\begin"


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(100), b"TWBUNDLF" + bytes(100), b"hello"])
def test_other_files_are_no_bundles(data: bytes) -> None:
    with refused("ART001" if data else "ART003"):
        bundle.from_bytes(data)


def test_missing_and_empty_paths(tmp_path: Path) -> None:
    with refused("ART001"):
        bundle.read(tmp_path / "nowhere")
    with refused("ART001"):
        bundle.read(tmp_path)


@given(st.data())
def test_every_truncation_is_named(data: st.DataObject) -> None:
    whole = bundle.to_bytes(scale())
    length = data.draw(st.integers(0, len(whole) - 1))
    with refused("ART003"):
        bundle.from_bytes(whole[:length])


@given(st.data())
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    whole = bytearray(bundle.to_bytes(staged()))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(TilewrightError) as caught:
        bundle.from_bytes(bytes(whole))
    assert caught.value.code in {"ART001", "ART002", "ART003", "ART004"}


def test_bytes_after_the_end() -> None:
    with refused("ART004"):
        bundle.from_bytes(bundle.to_bytes(scale()) + b"\0")


def test_folder_damage(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        bundle.write_folder(scale(), tmp_path / name)
        return tmp_path / name

    out = fresh("edited")
    (out / "scale_wide.cu").write_text("// WIDE\n")
    with refused("ART004"):
        bundle.read(out)
    out = fresh("resigned")
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["artifact"]["kernels"][0]["threads"] = 256
    (out / "manifest.json").write_text(json.dumps(manifest))
    with refused("ART004"):
        bundle.read(out)
    out = fresh("reformatted")
    (out / "manifest.json").write_text(json.dumps(json.loads((out / "manifest.json").read_text())))
    assert bundle.read(out) == scale()
    out = fresh("short")
    (out / "scale_wide.cubin").write_bytes(b"\x7fELF")
    with refused("ART003"):
        bundle.read(out)
    out = fresh("missing")
    (out / "scale_wide.cubin").unlink()
    with refused("ART003"):
        bundle.read(out)
    out = fresh("linked")
    (out / "scale_wide.cubin").unlink()
    (out / "scale_wide.cubin").symlink_to("/etc/hostname")
    with refused("ART004"):
        bundle.read(out)
    out = fresh("piped")
    (out / "scale_wide.cubin").unlink()
    os.mkfifo(out / "scale_wide.cubin")
    with refused("ART004"):
        bundle.read(out)


# -- a stranger's bundle, with hashes that match ----------------------------------------------------------------------


def forged(edit: Callable[[dict[str, Any]], None], program: Callable[[], Artifact] = scale) -> bytes:
    """A bundle whose manifest was edited and signed again."""
    data = bundle.to_bytes(program())
    _, length, _ = HEADER.unpack_from(data)
    manifest = json.loads(data[HEADER.size : HEADER.size + length])
    edit(manifest)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return HEADER.pack(b"TWBUNDLE", len(text), hashlib.sha256(text).digest()) + text + data[HEADER.size + length :]


def test_forging_without_an_edit_is_the_bundle_itself() -> None:
    assert bundle.from_bytes(forged(lambda m: None)) == scale()


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["artifact"].pop("plan"),
        lambda m: m["artifact"].update(extra=1),
        lambda m: m["artifact"].update(name=3),
        lambda m: m["artifact"].update(schema_version=True),
        lambda m: m["artifact"]["kernels"][0].update(threads="128"),
        lambda m: m["artifact"]["kernels"][0].update(cluster=[1, 1]),
        lambda m: m["artifact"]["kernels"][0].update(symbol="other"),
        lambda m: m["artifact"]["variants"][0].update(predicate="__import__('os').system('true')"),
        lambda m: m["artifact"]["variants"][0].update(predicate="M **"),
        lambda m: m["artifact"]["variants"][0].update(predicate="+".join("M" * 9000)),
        lambda m: m["artifact"]["variants"][0]["steps"][0].update({"is": "Run"}),
        lambda m: m["artifact"]["parameters"][0].update(access="append"),
        lambda m: m["artifact"].update(variants={}),
        lambda m: m.update(artifact=[]),
        lambda m: m["blobs"].update({"../x": {"bytes": 0, "sha256": ""}}),
        lambda m: m["blobs"].update({"/etc/passwd": {"bytes": 0, "sha256": ""}}),
        lambda m: m["blobs"].update({".x": {"bytes": 0, "sha256": ""}}),
        lambda m: m["blobs"].update({"x": {"bytes": -1, "sha256": ""}}),
        lambda m: m.update(blobs=[]),
        lambda m: m["artifact"].update(name="\ud800"),
        lambda m: m["artifact"]["kernels"][0].update(threads=10**4000),
        lambda m: m["artifact"]["variants"][0].update(predicate="9" * 4000 + " < M"),
        lambda m: m["artifact"]["variants"][0].update(predicate="(M + 9999999999999999999999999999)*" * 400 + "M"),
        lambda m: m["artifact"]["variants"][0].update(predicate="not " * 4000 + "M"),
        lambda m: m["blobs"].update({"big": {"bytes": 1 << 29, "sha256": ""}}),
        lambda m: m["blobs"].update({f"b{i}": {"bytes": 0, "sha256": ""} for i in range(5000)}),
        lambda m: m.update(filler="x" * (1 << 23)),
        lambda m: m.pop("expressions"),
        lambda m: m.update(expressions="M"),
        lambda m: m.update(expressions=["M +"]),
        lambda m: m.update(expressions=[7]),
        lambda m: m.update(expressions=["M" * 20_000]),
        lambda m: m.update(expressions=["max(M, N)", *(f"max($part{i} + 1, N)" for i in range(100))]),
        lambda m: m["artifact"]["variants"][0].update(predicate="$part0 <= 4"),
    ],
)
def test_schema_is_enforced(edit: Callable[[dict[str, Any]], None]) -> None:
    with refused("ART005"):
        bundle.from_bytes(forged(edit))


def test_blobs_that_nothing_refers_to_are_refused_unread(tmp_path: Path) -> None:
    """Ten holes of 20 MB in a folder: their bytes are never asked for."""
    bundle.write_folder(scale(), tmp_path / "x")
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    for i in range(10):
        with open(tmp_path / "x" / f"hole{i}", "wb") as file:
            file.truncate(20 << 20)
        manifest["blobs"][f"hole{i}"] = {"bytes": 20 << 20, "sha256": hashlib.sha256(b"").hexdigest()}
    del manifest["digest"]
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    manifest["digest"] = hashlib.sha256(text).hexdigest()
    (tmp_path / "x" / "manifest.json").write_text(json.dumps(manifest))
    with refused("ART005"):  # a read one would be ART004, for its digest is wrong
        bundle.read(tmp_path / "x")


def test_what_waits_or_never_ends_is_no_bundle(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), Path("a\0b"), Path("x" * 5000)):
        with refused("ART001"):
            bundle.read(path)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1, str(SCHEMA_VERSION), None])
def test_other_versions(version: object) -> None:
    with refused("ART002"):
        bundle.from_bytes(forged(lambda m: m.update(schema=version)))


def test_numbers_that_are_no_integers() -> None:
    with refused("ART004"):
        bundle.from_bytes(forged(lambda m: m["artifact"]["kernels"][0].update(threads=128.0)))


@pytest.mark.parametrize(
    "change",
    [
        lambda a: replace(a, target="sm_89"),
        lambda a: replace(a, variants=()),
        lambda a: replace(a, parameters=(*a.parameters, a.parameters[0])),
        lambda a: replace(a, parameters=(replace(a.parameters[0], dtype="f8"), *a.parameters[1:])),
        lambda a: replace(a, parameters=(replace(a.parameters[0], dims=(sym("Q") // 2, sym("N"))), *a.parameters[1:])),
        lambda a: replace(a, parameters=(replace(a.parameters[0], name="x y"), *a.parameters[1:])),
        lambda a: replace(a, kernels=(a.kernels[0], a.kernels[0])),
        lambda a: replace(a, kernels=a.kernels[:1]),
        lambda a: replace(a, kernels=(replace(a.kernels[0], threads=1025), a.kernels[1])),
        lambda a: replace(a, kernels=(replace(a.kernels[0], symbol="../k"), a.kernels[1])),
        lambda a: replace(a, kernels=(replace(a.kernels[0], made_of=("program0",)), a.kernels[1])),
        lambda a: replace(a, programs=(OriginalProgram("../p", ""),)),
        lambda a: replace(a, programs=(OriginalProgram("p", ""), OriginalProgram("p", ""))),
        lambda a: replace(a, kernels=(replace(a.kernels[0], shared_bytes=232_449), a.kernels[1])),
        lambda a: replace(a, facts=(sym("x.stride2").eq(1),)),
        lambda a: replace(a, bounds=(replace(a.bounds[0], symbol="x.address"),)),
        lambda a: replace(a, name="n" * 5000),
        lambda a: replace(a, parameters=(replace(a.parameters[0], dims=(sym("M"),) * 100), *a.parameters[1:])),
        lambda a: with_step(a, EncodeTensorMap(10**12, RECIPE)),
        lambda a: with_step(a, Copy(TensorPointer("y"), TensorPointer("x"), Const(4))),
        lambda a: with_step(a, Fill(TensorPointer("x"), 0, 4, Const(1))),
        lambda a: with_step(a, Fill(TensorPointer("y", 4096 - sym("y.address")), 0, 4, Const(1))),
        lambda a: replace(a, bounds=(replace(a.bounds[0], symbol="K"),)),
        lambda a: replace(a, variants=(replace(a.variants[0], predicate=sym("alpha") < 1), a.variants[1])),
        lambda a: with_step(a, Launch("scale_wide", (sym("K"), Const(1), Const(1)), ())),
        lambda a: with_step(a, Launch("scale_wide", (Const(1),) * 3, (TensorMapArg(0),))),
        lambda a: with_step(a, Launch("scale_wide", (Const(1),) * 3, (WorkspacePointer(0),))),
        lambda a: with_step(a, Launch("scale_wide", (Const(1),) * 3, (IntScalar(sym("M"), 16),))),
        lambda a: with_step(a, Fill(WorkspacePointer(0), 0, 4, Const(1))),
    ],
)
def test_inconsistent_artifacts_are_neither_written_nor_read(change: Callable[[Artifact], Artifact]) -> None:
    with refused("ART006"):
        bundle.to_bytes(change(scale()))


def test_the_limits_themselves_are_legal() -> None:
    a = scale()
    wide = replace(a.kernels[0], threads=1024, shared_bytes=232_448)
    assert bundle.from_bytes(bundle.to_bytes(replace(a, kernels=(wide, a.kernels[1])))).kernels[0] == wide


def with_step(artifact: Artifact, step: Any) -> Artifact:
    return replace(artifact, variants=(replace(artifact.variants[0], steps=(step,)), *artifact.variants[1:]))


def test_descriptor_enumerators_are_the_drivers() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")

    def numbers(theirs: Any) -> set[int]:
        return {int(e) for e in theirs}

    assert {int(e) for e in DataType} == numbers(driver.CUtensorMapDataType)
    assert int(driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) == DataType.BFLOAT16
    assert {int(e) for e in Interleave} == numbers(driver.CUtensorMapInterleave)
    assert {int(e) for e in Swizzle} == numbers(driver.CUtensorMapSwizzle)
    assert int(driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B) == Swizzle.B128_ATOM_64B
    assert {int(e) for e in L2Promotion} == numbers(driver.CUtensorMapL2promotion)
    assert {int(e) for e in OobFill} == numbers(driver.CUtensorMapFloatOOBfill)


AUDITED = """
import sys
from tilewright.artifact import bundle
from tilewright.diag import TilewrightError

def watch(event, args):
    if event in ("exec", "os.remove", "os.rename", "os.mkdir", "subprocess.Popen", "os.system", "socket.connect"):
        raise SystemExit(f"{event} {args}")
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        raise SystemExit(f"open {args}")

bundle.read(sys.argv[2])  # imports done before watching
sys.addaudithook(watch)
for path in sys.argv[1:]:
    try:
        print(bundle.read(path).name)
    except TilewrightError as error:
        print(error.code)
"""


def test_reading_a_strangers_bundle_executes_and_writes_nothing(tmp_path: Path) -> None:
    good, evil = tmp_path / "good", tmp_path / "evil.twb"
    bundle.write_folder(scale(), good)
    code = "__import__('os').system('touch owned')"
    evil.write_bytes(forged(lambda m: m["artifact"]["variants"][0].update(predicate=code)))
    command = [sys.executable, "-c", AUDITED, str(evil), str(good)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["ART005", "scale"], "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evil.twb", "good"]


def test_a_manifest_that_names_something_twice_is_refused(tmp_path: Path) -> None:
    """Readers of JSON differ in which of two values they take."""
    bundle.write_folder(scale(), tmp_path / "x")
    manifest = tmp_path / "x" / "manifest.json"
    text = manifest.read_text()
    bundle.read(tmp_path / "x")
    manifest.write_text(text.replace("{", '{"schema": 1,', 1))
    with pytest.raises(TilewrightError, match="names something twice"):
        bundle.read(tmp_path / "x")

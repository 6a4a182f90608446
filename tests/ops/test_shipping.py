"""The folder of shipped operators: built once, found by a call that has no compiler, and by no other version."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tilewright as tw
from support.fake_driver import FakeDriver, FakeTensor
from support.runtime_alone import run_alone
from tilewright.artifact.store import ArtifactStore, Shipped
from tilewright.cli.commands import app
from tilewright.compiler.specialisation import Request
from tilewright.jit import Kernel, fingerprint, lazy
from tilewright.ops import kernels, shipping
from tilewright.ops.listing import Ready, listing
from tilewright.ops.shipping import ShippingOutcome, build

ADD, ADD_F16 = (r for r in listing() if r.operator == "add" and r.dtype in (tw.bf16, tw.f16))

CALL = """
from tilewright.runtime import driver
from support.fake_driver import FakeDriver, FakeTensor

fake = FakeDriver(locations={address: 0 for address in (1 << 20, 1 << 24, 1 << 28)})
driver.Driver = lambda: fake
from tilewright.ops.kernels import add
for shape in (100,), (7,), (1 << 20,):
    add(*(FakeTensor(address, shape) for address in fake.locations))
print(len(fake.launches))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shipped")
    assert [o.made for o in build(folder, "sm_90a", [ADD])] == [True]
    return folder


def keys(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.rglob("*.twb"))


def test_a_second_build_does_what_is_missing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = keys(folder)
    monkeypatch.setattr(lazy.build, "build", lambda planned, **options: pytest.fail("compiled again"))
    outcomes = list(build(folder, "sm_90a", [ADD]))
    assert [(o.made, o.problem) for o in outcomes] == [(False, "")]
    assert json.loads((folder / "index.json").read_text())["artifacts"] == {key: f"{ADD} for sm_90a"}


def test_an_interrupted_build_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted while the second artifact is compiled: the first is there, and only the second is made again."""
    compiled = lazy.build.build
    calls: list[object] = []

    def interrupted(planned: object, **options: object) -> object:
        calls.append(planned)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compiled(planned, **options)  # pyright: ignore

    monkeypatch.setattr(lazy.build, "build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(build(tmp_path, "sm_90a", [ADD, ADD_F16]))
    assert [o.made for o in build(tmp_path, "sm_90a", [ADD, ADD_F16])] == [False, True]
    assert len(keys(tmp_path)) == len(calls) - 1 == 2


def test_a_call_without_the_compiler_finds_it(folder: Path, tmp_path: Path) -> None:
    done = run_alone(CALL, TILEWRIGHT_SHIPPED=str(folder), TILEWRIGHT_STORE=str(tmp_path / "store"))
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert not (tmp_path / "store").exists()


def test_a_call_that_nothing_shipped_serves_names_the_extra(tmp_path: Path) -> None:
    done = run_alone(CALL, TILEWRIGHT_SHIPPED=str(tmp_path / "none"), TILEWRIGHT_STORE=str(tmp_path / "store"))
    assert "error[JIT005]" in done.stderr


def test_an_artifact_of_another_compiler_is_not_served(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither found by a call nor kept by a build."""
    copied = tmp_path / "shipped"
    for path in folder.rglob("*.*"):
        target = copied / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (old,) = keys(copied)
    assert Shipped(copied).get(old) is not None
    monkeypatch.setattr("tilewright.jit.kernel.compiler_identity", lambda: "another")
    monkeypatch.setattr(shipping, "compiler_identity", lambda: "another")
    assert [o.made for o in build(copied, "sm_90a", [ADD])] == [True]
    (new,) = keys(copied)
    assert new != old


def test_the_settings_tell_what_is_shipped(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipping.state(folder) == "1 artifacts of this version"
    assert shipping.state(tmp_path) == "nothing is shipped there"
    monkeypatch.setenv("TILEWRIGHT_SHIPPED", str(folder))
    assert "1 artifacts of this version" in CliRunner().invoke(app, ["show-config"]).output
    monkeypatch.setattr(shipping, "compiler_identity", lambda: "another")
    assert "another version" in shipping.state(folder)
    (tmp_path / "index.json").write_text("[]")
    assert "can't be read" in shipping.state(tmp_path)


@pytest.mark.parametrize(
    "index", ["", "[]", "{}", '{"made_by": 3, "artifacts": {"x": 1, "../..": 2}}', "\xff", "[" * 9999]
)
def test_an_index_that_cannot_be_read_is_rewritten(index: str, folder: Path, tmp_path: Path) -> None:
    (key,) = keys(folder)
    path = ArtifactStore(tmp_path).path(key)
    path.parent.mkdir(parents=True)
    path.write_bytes(ArtifactStore(folder).path(key).read_bytes())
    (tmp_path / "index.json").write_text(index, "latin-1")
    assert [o.made for o in build(tmp_path, "sm_90a", [ADD])] == [False]
    assert set(json.loads((tmp_path / "index.json").read_text())["artifacts"]) == {key}


def test_what_is_shipped_is_only_read(folder: Path, tmp_path: Path) -> None:
    """A broken artifact counts as absent and is left as it is; a store would remove it."""
    (key,) = keys(folder)
    path = ArtifactStore(tmp_path).path(key)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"broken")
    assert Shipped(tmp_path).get(key) is None
    assert path.read_bytes() == b"broken"


def test_keys_do_not_depend_on_the_version_of_python() -> None:
    """No byte code is part of them: the compiler's identity covers the package's own kernels."""
    for ready in {r.operator: r for r in listing()}.values():
        told = fingerprint.fingerprint(ready.kernel.fn)
        assert told is not None
        assert ready.kernel.fn.__code__.co_code.hex() not in told
    widths = [fingerprint.fingerprint(kernels.attention(width).fn) for width in (64, 128)]
    assert widths[0] != widths[1]


def test_nothing_is_listed_twice() -> None:
    """Each artifact has its key: keywords, dtypes and rows tell them apart, and a call's keywords have no defaults."""
    listed = listing()
    assert len({str(ready) for ready in listed}) == len(listed) > 50
    for ready in listed:
        defaults = {p.name: p.default for p in ready.kernel.keywords}
        assert all(defaults[name] != value for name, value in ready.keywords)


class Asked(Exception):
    """Ends a call where it would look its artifact up."""


def test_the_order_of_keywords_is_no_part_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call sorts them, so what is shipped must."""
    told: list[str] = []

    def key(_: Kernel, request: Request, code: str) -> str:
        told.append(code)
        raise Asked

    monkeypatch.setattr(Kernel, "_key", key)
    dtypes = {"o": "f32", "lse": "f32", "y": "bf16", "whole": "f32"}
    with pytest.raises(Asked):
        Kernel(kernels.merge_states).ship(ArtifactStore(tmp_path), dtypes=dtypes, bm=1, bc=16)
    with pytest.raises(Asked):
        Kernel(kernels.merge_states).ship(ArtifactStore(tmp_path), dtypes=dtypes, bc=16, bm=1)
    assert told[0] == told[1]


@pytest.mark.parametrize("ready", {(r.operator, len(r.keywords)): r for r in listing()}.values(), ids=str)
def test_a_call_looks_up_what_is_shipped(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of a call with tensors of these extents, each allocated for itself, is the one that was built for."""
    extents = dict(ready.extents)
    shapes = [tuple(extents[d] if isinstance(d, str) else d for d in t.dims) for t in ready.tensors]
    fake = FakeDriver(locations={(n + 1) << 32: 0 for n in range(len(shapes))})
    dtypes = (TORCH[str(ready.dtypes[t.name])] for t in ready.tensors)
    tensors = [FakeTensor(*given, dtype=d) for *given, d in zip(fake.locations, shapes, dtypes, strict=True)]
    asked: list[Request] = []

    def ask(_: Kernel, request: Request, **options: object) -> None:
        asked.append(request)
        raise Asked

    monkeypatch.setattr(sys.modules["tilewright.runtime.check"], "process_driver", lambda: fake)
    monkeypatch.setattr(Kernel, "_artifact", ask)
    scalars = {s.name: 0.5 if s.dtype.is_float else 2 for s in ready.kernel.scalars if s.default is None}
    keywords: dict[str, Any] = dict(ready.keywords)
    if "attention" in ready.operator:
        keywords = {"causal": False, "group": 1} | keywords  # as a caller may write out
    kernel = Kernel(ready.kernel)
    rest = kernel.without(frozenset(ready.absent)) if ready.absent else kernel
    with pytest.raises(Asked):
        kernel(**dict(zip((t.name for t in ready.tensors), tensors, strict=True)), **scalars, **keywords)
    (request,) = asked
    assert request == rest._ahead("sm_90a", ready.dtypes, None, None, ready.facts, dict(ready.keywords))


TORCH = {"bf16": "torch.bfloat16", "f16": "torch.float16", "f32": "torch.float32", "i32": "torch.int32"}


def test_a_refused_operator_is_reported_and_the_others_are_built(tmp_path: Path) -> None:
    wrong = Ready("add", kernels.add, tw.bf16, (("N", 8),), (("block", -3),))
    outcomes: list[ShippingOutcome] = list(build(tmp_path, "sm_90a", [wrong, ADD]))
    assert [(o.made, "LNG" in o.problem) for o in outcomes] == [(False, True), (True, False)]


def test_a_folder_that_cannot_be_written_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tilewright.artifact.atomic_files.write_atomically", full)
    with pytest.raises(tw.TilewrightError, match="ART008"):
        list(build(tmp_path, "sm_90a", [ADD, ADD_F16]))


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--only", "sort"], "CMD002"), (["--dtype", "f64"], "CMD002"), (["--target", "sm_1"], "JIT004")],
)
def test_names_that_the_list_has_not(words: list[str], code: str) -> None:
    result = CliRunner().invoke(app, ["build", "ops", *words])
    assert isinstance(result.exception, tw.TilewrightError)
    assert result.exception.code == code


def test_the_command_sums_up(tmp_path: Path) -> None:
    words = ["build", "ops", "--only", "add", "--dtype", "bf16", "--out", str(tmp_path)]
    first, second = (CliRunner().invoke(app, words).output for _ in range(2))
    assert "[1/1] add bf16 like N=1048576" in first
    assert "1 made, 0 there before, 0 refused" in first
    assert "0 made, 1 there before, 0 refused" in second

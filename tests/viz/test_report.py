"""The report says what happened, needs nothing from elsewhere, and its pictures are true."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from support.example_cases import load
from support.fake_driver import FakeDriver
from tilewright.artifact.schema import Obligation
from tilewright.jit import inspection as inspection_module
from tilewright.jit.inspection import (
    Case,
    Inspection,
    Launched,
    NotLaunched,
    OutputError,
    RefusedKernel,
    inspect_case,
)
from tilewright.layout.library import fragments
from tilewright.layout.register import LANES, RegisterLayout
from tilewright.viz.report import report_html
from tilewright.viz.report_code import cuda_html, python_html
from tilewright.viz.report_map import corner_picture, warp_blocks, warp_picture

EXAMPLES = Path(__file__).parents[2] / "examples"
VOID = {"meta", "br", "hr", "rect", "path"}


class Balanced(HTMLParser):
    """Fails on tags that don't nest; keeps the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def inspection() -> Inspection:
    x = np.random.default_rng(0).standard_normal((5, 100), np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    tensors = {"x": x, "y": np.full_like(x, np.nan)}
    said: list[str] = []
    case = Case(load("softmax").softmax, tensors, {"y": e / e.sum(1, keepdims=True)}, 1e-6)
    found = inspect_case(case, said.append)
    assert said == [
        "tracing, scheduling and proving",
        "emitting CUDA C++ and assembling it",
        "simulating",
        "launching",
    ]
    assert np.isnan(tensors["y"]).all()  # the case's own arrays stay as they are
    return found


# -- what was collected ----------------------------------------------------------------------------------------------


def test_the_whole_way_is_kept(inspection: Inspection) -> None:
    assert inspection.holds
    assert inspection.source.startswith("@tw.kernel")
    assert str(inspection.predicate) == "N <= 128"
    proved = {o.name for o in inspection.artifact.certificate}
    assert {name for name in proved if not name.startswith("protocol ")} == {
        "guards",
        "once",
        "domain",
        "aligned",
        "offsets",
    }
    assert len(proved) > 3
    passes = {t.name: t.seconds for t in inspection.times}
    assert list(passes)[:1] == ["trace"]
    assert passes.keys() >= {"trace", "schedule", "prove", "emit", "assemble", "simulate"}
    assert all(s > 0 for s in passes.values())


def test_opcodes_are_counted(inspection: Inspection) -> None:
    ptx, sass = dict(inspection.instructions.ptx), dict(inspection.instructions.sass)
    (image,) = inspection.artifact.kernels
    assert sum(n for op, n in ptx.items() if op.startswith("ld.global")) == image.ptx.count("ld.global")
    assert ptx["ret"] == image.ptx.count("ret;")
    assert sass["EXIT"] >= 1
    assert "NOP" not in sass
    assert inspection.instructions.sass_count == sum(sass.values())


def test_ops_stand_beside_the_instructions_that_carry_them_out(inspection: Inspection) -> None:
    (image,) = inspection.artifact.kernels
    load, *_, store = inspection.carried_out
    assert load.op.startswith('"load"(%0, %1) {coords = [#tile.expr<"$p0*8')
    assert store.op.startswith('"store"(')
    ops, lines = ("ld.global", "st.global"), image.ptx.splitlines()
    for each, op in zip((load, store), ops, strict=True):
        assert all(text.startswith(op) and lines[n - 1].strip() == text for n, text in each.ptx)
    page = parsed(report_html([inspection]))
    assert any(text.endswith(load.ptx[0][1]) for text in page.texts)


def test_the_map_is_the_schedules(inspection: Inspection) -> None:
    (tile,) = inspection.maps
    assert tile.name == "x as loaded, y as stored"
    assert tile.extents == (8, 128)
    assert tile.layout.threads == 64


@pytest.mark.parametrize(("error", "holds"), [(1e-6, True), (1.1e-6, False), (float("nan"), False)])
def test_agreement_is_within_the_tolerance(error: float, holds: bool) -> None:
    assert OutputError("y", error, 1e-6, 1.0).holds is holds


def test_a_wrong_result_does_not_hold(inspection: Inspection) -> None:
    wrong = OutputError("y", 1.0, 1e-6, 1.0)
    right = OutputError("y", 0.0, 1e-6, 1.0)
    assert not replace(inspection, agreements=(wrong,)).holds
    assert not replace(inspection, launched=Launched((wrong,), 1e-6, 1)).holds
    assert replace(inspection, launched=Launched((right,), 1e-6, 1)).holds


@dataclass
class Device(FakeDriver):
    """A driver whose memory holds what was uploaded, and ``result`` once a kernel ran."""

    memory: dict[int, bytes] = field(default_factory=dict)
    result: bytes = b""

    def allocate(self, size_bytes: int, stream: int) -> int:
        address = 0x1000 * (len(self.memory) + 1)
        self.memory[address] = bytes(size_bytes)
        self.locations[address] = 0
        return address

    def upload(self, destination: int, data: bytes) -> None:
        self.memory[destination] = data

    def download(self, source: int, size_bytes: int) -> bytes:
        return self.result if self.launches else self.memory[source]

    def seconds(self, work: Callable[[], None]) -> float:
        work()
        return 2e-6


@pytest.mark.parametrize(("error", "holds"), [(0.0, True), (1e-3, False)])
def test_where_a_gpu_is_the_kernel_is_launched(error: float, holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((5, 100), np.float32)
    expected = np.full((5, 100), 0.01)
    device = Device(result=(expected + error).astype(np.float32).tobytes())
    monkeypatch.setattr(inspection_module, "Driver", lambda: device)
    case = Case(load("softmax").softmax, {"x": x, "y": np.zeros_like(x)}, {"y": expected}, 1e-6)
    found = inspect_case(case, lambda _: None)
    assert isinstance(found.launched, Launched)
    assert (found.launched.seconds, found.launched.bytes_moved) == (2e-6, 4000)
    assert len(device.launches) == 1 + inspection_module.LAUNCHES
    assert device.memory[0x1000] == x.tobytes()
    assert device.kinds().count("free") == 2
    assert found.holds is holds
    assert "load and launch" in [t.name for t in found.times]


def test_another_architecture_is_not_launched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(arch=(8, 0))
    monkeypatch.setattr(inspection_module, "Driver", lambda: device)
    x = np.ones((5, 100), np.float32)
    case = Case(load("softmax").softmax, {"x": x, "y": np.zeros_like(x)}, {"y": x / 100}, 1e-6)
    found = inspect_case(case, lambda _: None)
    assert isinstance(found.launched, NotLaunched)
    assert found.launched.reason
    assert (device.launches, device.kinds().count("free")) == ([], 2)


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_alone(inspection: Inspection) -> None:
    page = report_html([inspection])
    found = parsed(page)
    text = " ".join("".join(found.texts).split())
    for part in (inspection.source, *inspection.notes, "N <= 128", "5 x 100", "nvidia-cuda-nvrtc"):
        assert " ".join(part.split()) in text
    assert found.tags["svg"] == 2
    assert not found.tags.keys() & {"script", "link", "img", "iframe", "object"}
    outside = [url for url in re.findall(r"(?:https?:)?//[\w.]+/[^\s<\"]*", page) if "www.w3.org/2000/svg" not in url]
    assert [url for url in outside if f'"{url}' in page] == []
    assert "@import" not in page
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page


def test_every_obligation_and_pass_is_there(inspection: Inspection) -> None:
    text = "".join(parsed(report_html([inspection])).texts)
    for o in inspection.artifact.certificate:
        assert o.name.removeprefix("protocol ") in text
        assert o.detail in text
        assert o.method in text
    for t in inspection.times:
        assert t.name in text


def test_code_is_there_in_full(inspection: Inspection) -> None:
    (image,) = inspection.artifact.kernels
    text = "".join(parsed(report_html([inspection])).texts)
    for code in (image.source, image.ptx, image.transport_ir, inspection.artifact.tile_ir):
        assert code.strip() in text


def test_both_ends_of_a_launch(inspection: Inspection) -> None:
    none = "".join(parsed(report_html([replace(inspection, launched=NotLaunched("no <GPU>"))])).texts)
    assert "Not launched: no <GPU>." in none
    agreement = OutputError("y", 2e-9, 1e-6, 1.0)
    some = "".join(parsed(report_html([replace(inspection, launched=Launched((agreement,), 4e-6, 8000))])).texts)
    assert "4.0 us a launch (median), 2 GB/s" in some
    assert "2e-09" in some


def test_what_differs_is_said(inspection: Inspection) -> None:
    assert "differs" not in "".join(parsed(report_html([inspection])).texts)
    wrong = replace(inspection, agreements=(OutputError("y", float("nan"), 1e-6, 1.0),))
    assert "differs" in "".join(parsed(report_html([wrong])).texts)


def test_methods_of_any_form(inspection: Inspection) -> None:
    (image,) = inspection.artifact.kernels
    rules = (Obligation(f"protocol <{rule}>", "states & endings") for rule in ("x", "y"))
    certificate = (*rules, Obligation("once", "isl", "in <detail>"))
    artifact = replace(inspection.artifact, kernels=(replace(image, certificate=certificate),))
    text = "|".join(parsed(report_html([replace(inspection, artifact=artifact)])).texts)
    assert "protocol|: <x>, <y>" in text
    assert text.count("states & endings") == 1
    assert "in <detail>" in text


def test_a_refusal_has_its_section() -> None:
    text = "".join(parsed(report_html([RefusedKernel("k", "def k(): a < b", "error[TMA012]: a < b")])).texts)
    assert "Not compiled." in text
    assert "error[TMA012]: a < b" in text


# -- code ------------------------------------------------------------------------------------------------------------


def tokens_of(source: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def plain(html: str) -> str:
    return unescape(re.sub(r"</?span[^>]*>", "", html))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_marking_python_keeps_its_text(path: Path) -> None:
    source = path.read_text()
    marked = python_html(source)
    assert plain(marked) == source
    assert '<span class="k">def</span>' in marked
    assert ('<span class="c">#' in marked) == any(t.type == tokenize.COMMENT for t in tokens_of(source))


@pytest.mark.parametrize("source", ["", "x = '''a\nb'''  # <c>", "def f(:\n  '", "f'{a<b}'\n", "a\n\n\n"])
def test_marking_odd_python_keeps_its_text(source: str) -> None:
    assert plain(python_html(source)) == source


def test_marking_cuda_keeps_its_text(inspection: Inspection) -> None:
    source = inspection.artifact.source + '\nasm("// no comment" /* a\n< b */);'
    marked = cuda_html(source)
    assert plain(marked) == source
    assert '<span class="s">&quot;// no comment&quot;</span>' in marked
    assert '<span class="c">/* a\n&lt; b */</span>' in marked


# -- pictures --------------------------------------------------------------------------------------------------------

LAYOUTS = [
    fragments.wgmma_accumulator(64, 24),
    fragments.wgmma_accumulator(64, 8).slice(1),
    RegisterLayout.blocked((64, 96), vector=(1, 8), lanes=(8, 4), warps=(4, 1), order=(1, 0)),
    RegisterLayout.blocked((2, 1024), vector=(1, 4), lanes=(1, 32), warps=(2, 2), order=(1, 0)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_warp_blocks_are_the_layout(layout: RegisterLayout) -> None:
    held: dict[tuple[int, ...], int] = {}
    for block in warp_blocks(layout):
        for i in range(block.top, block.bottom):
            for j in range(block.left, block.right):
                assert held.setdefault((i, j), block.warp) == block.warp
    assert len(held) == sum((b.bottom - b.top) * (b.right - b.left) for b in warp_blocks(layout))
    seen: dict[tuple[int, ...], int] = {}
    for thread in range(layout.threads):
        for register in range(layout.registers):
            where = layout.coordinate(thread, register)
            seen.setdefault(where if layout.rank == 2 else (0, *where), thread // LANES)
    assert held == seen


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pictures_stay_inside_their_frames(layout: RegisterLayout) -> None:
    for picture in (warp_picture(layout), corner_picture(layout)):
        parsed(picture)
        size = re.search(r'viewBox="0 0 (\d+) (\d+)"', picture)
        assert size is not None
        wide, high = map(int, size.groups())
        for x, y, w, h in re.findall(r'<rect x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', picture):
            assert float(x) + float(w) <= wide
            assert float(y) + float(h) <= high
        for x, y, text in re.findall(r'<text x="(\S+)" y="(\S+)"[^>]*>([^<]*)<', picture):
            assert 0 <= float(x) - 0 <= wide - 3.3 * len(text)
            assert 8 <= float(y) <= high

"""The gallery: layouts, banks, timelines, the roofline of what was measured, and the report of two kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from site_pages.roofline import RooflinePoint, Roofs, roofline_picture
from tilewright.cli import demo
from tilewright.jit.inspection import Inspection, inspect_case
from tilewright.viz.grid import read_layout
from tilewright.viz.layout_picture import layout_svg
from tilewright.viz.report import report_html
from tilewright.viz.report_pipeline import shared_picture, timeline_picture

LAYOUTS = {
    "column-major": ("(8,8):(1,8)", None, "`(8,8):(1,8)`: an 8 x 8 tile, columns contiguous"),
    "row-major-swizzled": (
        "(8,8):(8,1)",
        "3,0,3",
        "`(8,8):(8,1)` under the swizzle `3,0,3`",
    ),
    "nested": ("((2,4),(4,2)):((1,8),(2,32))", None, "nested modes: `((2,4),(4,2)):((1,8),(2,32))`"),
}
"""By name: the layout, its swizzle, and what to say of it."""

MEMORY_TB_PER_S, TENSOR_CORE_TFLOPS = 4.8, 989.0
"""An H200's, from its data sheet."""


def files(root: Path) -> dict[str, str | bytes]:
    """The page and the pictures that it shows, by path."""
    pictures: dict[str, str | bytes] = {
        f"pictures/{name}.svg": layout_svg(read_layout(text, swizzle)) for name, (text, swizzle, _) in LAYOUTS.items()
    }
    results = [inspect_case(make(root / "examples"), _quiet) for make in demo.CASES]
    matmul = next(r for r in results if isinstance(r, Inspection) and r.pipeline is not None)
    assert matmul.pipeline is not None
    pictures["pictures/timeline.svg"] = timeline_picture(matmul.pipeline.run)
    pictures["pictures/shared-memory.svg"] = shared_picture(matmul.pipeline.blocks, matmul.pipeline.shared_bytes)
    pictures["pictures/roofline.svg"] = roofline_picture(list(points(root)), Roofs(MEMORY_TB_PER_S, TENSOR_CORE_TFLOPS))
    sizes = ", ".join(f"{name} = {value}" for name, value in matmul.pipeline.sizes)
    return pictures | {"report.html": report_html(results), "gallery.md": "\n".join(_lines(sizes))}


def _quiet(_: str) -> None:
    """Tells nobody how far it is."""


def points(root: Path) -> Iterator[RooflinePoint]:
    """The products of ``benchmarks/results/products.json``: operands read once and the result written once, 16 bits."""
    document: dict[str, Any] = json.loads((root / "benchmarks" / "results" / "products.json").read_text())
    for row in document["rows"]:
        found = re.fullmatch(r"matmul (\d+)x(\d+)x(\d+)", row["case"])
        if found is None:
            continue
        m, n, k = map(int, found.groups())
        intensity = 2 * m * n * k / (2 * (m * k + n * k + m * n))
        for by, tflops in row["tflops"].items():
            yield RooflinePoint(f"{row['case']}, {by}", intensity, tflops, peer=by != "ours")


def _lines(sizes: str) -> Iterator[str]:
    yield "# Gallery\n\nEvery picture is drawn by `tilewright.viz` when this page is built.\n\n## Layouts\n"
    yield "`tilewright show layout '(8,8):(8,1)' --swizzle 3,0,3 --out x.svg` draws one; a cell says at which offset a"
    yield "coordinate lies, its colour which bank or vector it belongs to. [Layouts](ideas/layouts.md) explains them.\n"
    for name, (_, _, words) in LAYOUTS.items():
        yield f"![{name}](pictures/{name}.svg)\n\n{words}.\n"
    yield "## A pipeline over time\n\n![timeline](pictures/timeline.svg)\n"
    yield f"`examples/matmul.py` for {sizes}: a run of its proved protocol, each op at its predicted price (prices are"
    yield "not measured). Colour and number are the stage of the ring; grey bars wait, red lines end a wait.\n"
    yield "![shared memory](pictures/shared-memory.svg)\n\nShared memory of one of its CTAs, from first byte to last.\n"
    yield "## Roofline\n\n![roofline](pictures/roofline.svg)\n"
    yield "Products of bf16 on one H200, from `benchmarks/results/products.json`: full circles are Tilewright's, empty"
    yield f"ones cuBLAS's. The lines are {MEMORY_TB_PER_S:g} TB/s and {TENSOR_CORE_TFLOPS:g} TFLOP/s, the data sheet's."
    yield "[Measured](measured.md) has the tables and what missed its goal.\n"
    yield "## The report\n\n`make demo` writes [this page](report.html): every step of two kernels, from Python to"
    yield "SASS. Here it is as on the machine that built the site: without a GPU nothing is launched.\n"

"""What benchmarks share, without a GPU: each says how it is run, times rotate, documents keep their form."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import harness  # noqa: E402
import layers  # noqa: E402
import product_choices  # noqa: E402

pytestmark = pytest.mark.sample(4)

COMMANDS = sorted(p.name for p in FOLDER.glob("*.py") if p.stem not in ("harness", "gpu", "moe_layer", "cublaslt"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_documents_how_it_is_run(name: str) -> None:
    doc = (FOLDER / name).read_text().split('"""')[1]
    assert re.search(rf"(python|torchrun --nproc-per-node \d+) benchmarks/{re.escape(name)}", doc)
    done = subprocess.run([sys.executable, FOLDER / name, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--json" in done.stdout


def test_results_name_no_folder_of_a_machine() -> None:
    """Commands are those of the project's root."""
    folder = re.compile(r"""["' (=]/(work|root|home|tmp|Users|opt)/""")
    assert [p.name for p in (FOLDER / "results").glob("*.json") if folder.search(p.read_text())] == []


def test_every_variant_is_first_in_turn() -> None:
    launched: list[str] = []

    def seconds_of(launch: Callable[[], object]) -> float:
        launch()
        return float(len(launched))

    variants = {name: lambda n=name: launched.append(n) for name in "abc"}
    times = harness.rotated(variants, seconds_of, 4)
    assert "".join(launched) == "abcbcacababc"
    assert times == {"a": [1, 6, 8, 10], "b": [2, 4, 9, 11], "c": [3, 5, 7, 12]}


def test_documents_are_json_however_rows_are_written(tmp_path: Path) -> None:
    found = {"device": "none", "rows": [{"case": 1, "us": 2.5}, {"case": 2, "us": 3.5}]}
    for row_lines in (False, True):
        harness.write(found, str(tmp_path / "x.json"), row_lines=row_lines)
        assert json.loads((tmp_path / "x.json").read_text()) == found
    assert len((tmp_path / "x.json").read_text().splitlines()) == 7
    harness.write(found, "")
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


class Streams:
    """Of ``torch.cuda``, streams that write down what they wait for, and on which one calls are made."""

    def __init__(self) -> None:
        self.current, self.waits = "main", set[tuple[str, str]]()

    def Stream(self) -> Any:
        return SimpleNamespace(name="side", wait_stream=lambda other: self.waits.add(("side", other)))

    def current_stream(self) -> str:
        return self.current

    @contextmanager
    def stream(self, entered: Any) -> Generator[None]:
        self.current = entered.name
        yield
        self.current = "main"

    def synchronize(self) -> None:
        pass

    CUDAGraph = SimpleNamespace

    @contextmanager
    def graph(self, _: Any) -> Generator[None]:
        yield


def test_a_warm_up_waits_for_the_stream_that_made_its_arguments() -> None:
    # It did not: slots of a cache were read before they were written, and the promise that they are unique was reported
    # as broken, by the first way that was captured.
    cuda = Streams()
    ran: list[bool] = []

    def run() -> None:
        ran.append(cuda.current == "main" or (cuda.current, "main") in cuda.waits)

    layers.captured(SimpleNamespace(cuda=cuda), run)
    assert ran == [True] * 4


@pytest.mark.sample(1)
def test_ways_of_products_take_the_place_of_the_family() -> None:
    way, kind = product_choices.Way(128, 96), product_choices.KINDS["e4m3"]
    asked: list[Any] = []

    def alone(_: Any, trace: Any, target: Any, __: Any) -> list[Any]:
        asked.append(way.variant(trace, target))
        return asked[-1:]

    with product_choices.offered(alone):
        plan = kind.plan()
    assert len(asked) >= 1
    assert asked[0].choices == ({"bm": 128, "bn": 96},)
    assert not any("256" in str(variant.tile.grid) for variant in plan.variants)

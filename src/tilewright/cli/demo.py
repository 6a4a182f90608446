"""``tilewright demo``: examples from Python to proved machine code, and a page that shows every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.compile_ import find_kernel
from tilewright.cli.terminal import echo
from tilewright.diag import TilewrightError

if TYPE_CHECKING:
    from tilewright.jit.inspection import Case, Inspection, RefusedKernel

EXAMPLES = Path("examples")


def register(app: typer.Typer) -> None:
    app.command("demo", help="Compile, prove, simulate and launch example kernels, and write a report.")(demo)


def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="where to write the page")] = Path("report/index.html"),
    examples: Annotated[Path, typer.Option(metavar="DIR", help="the folder of the example kernels")] = EXAMPLES,
) -> None:
    begin = time.perf_counter()
    with _step("loading the compiler"):
        from tilewright.viz.report import report_html
    results = [_inspect(make(examples)) for make in CASES]
    with _step(f"writing {out}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(report_html(results), encoding="utf-8")
    echo(f"{out.resolve().as_uri()}, after {time.perf_counter() - begin:.1f} s")
    if not all(_is_right(r) for r in results):
        raise typer.Exit(1)


def softmax(examples: Path) -> Case:
    """Rows of 1000: a whole row in one tile, with an edge."""
    import numpy as np

    from tilewright.jit.inspection import Case

    x = np.random.default_rng(0).standard_normal((64, 1000), np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    kernel = find_kernel(f"{examples}/softmax.py:softmax")
    return Case(kernel, {"x": x, "y": np.full_like(x, np.nan)}, {"y": e / e.sum(1, keepdims=True)}, 1e-7)


def matmul(examples: Path) -> Case:
    """Extents that fill no tile: edges along every axis."""
    import ml_dtypes
    import numpy as np

    from tilewright.jit.inspection import Case

    random = np.random.default_rng(0)
    a, b = (random.standard_normal((n, 136), np.float32).astype(ml_dtypes.bfloat16) for n in (200, 120))
    c = np.full((200, 120), np.nan, np.float32)
    kernel = find_kernel(f"{examples}/matmul.py:matmul")
    return Case(kernel, {"a": a, "b": b, "c": c}, {"c": a.astype(np.float64) @ b.astype(np.float64).T}, 1e-4)


CASES = (softmax, matmul)


def _inspect(case: Case) -> Inspection | RefusedKernel:
    """Compile the kernel step by step, or return the diagnostic that ended it; progress is printed."""
    from tilewright.jit.inspection import Inspection, Launched, RefusedKernel, inspect_case, source_of

    name = case.kernel.name
    with _steps(name) as announce:
        try:
            found = inspect_case(case, announce)
        except TilewrightError as error:
            found = RefusedKernel(name, source_of(case.kernel), str(error))
    if not isinstance(found, Inspection):
        echo(f"  not compiled: {found.text}")
        return found
    (image,) = found.artifact.kernels
    proved, registers = len(image.certificate), image.registers
    echo(f"  {proved} obligations proved; {registers} registers a thread, {image.spill_bytes} bytes spilled")
    for a in found.agreements:
        echo(f"  {a.tensor} in the simulator: greatest error {a.error:.3g}, {a.tolerance:.3g} allowed")
    launched = found.launched
    if isinstance(launched, Launched):
        for a in launched.agreements:
            echo(f"  {a.tensor} on the GPU: greatest error {a.error:.3g}, {a.tolerance:.3g} allowed")
        echo(f"  {launched.seconds * 1e6:.1f} us a launch (median)")
    else:
        echo(f"  not launched: {launched.reason}")
    return found


def _is_right(result: Inspection | RefusedKernel) -> bool:
    from tilewright.jit.inspection import Inspection

    return isinstance(result, Inspection) and result.holds


@contextmanager
def _step(what: str) -> Generator[None]:
    """Print the name of a running step, and its duration when it is done."""
    echo(f"{what} ... ", nl=False)
    begin = time.perf_counter()
    yield
    echo(f"{time.perf_counter() - begin:.2f} s")


@contextmanager
def _steps(subject: str) -> Generator[Callable[[str], None]]:
    """As ``_step``, one line after another: each announcement ends the line before."""
    begin = 0.0

    def end() -> None:
        if begin:
            echo(f"{time.perf_counter() - begin:.2f} s")

    def announce(what: str) -> None:
        nonlocal begin
        end()
        echo(f"{subject}: {what} ... ", nl=False)
        begin = time.perf_counter()

    try:
        yield announce
    finally:
        end()

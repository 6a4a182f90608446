"""What the width of a row costs: memory-bound kernels over every N in [4000, 4200], beside a copy of as many bytes.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/padding.py build
    python benchmarks/padding.py run --json benchmarks/results/padding.json --svg docs/padding.svg [--step 1]

Rows are packed: of bf16 they start at multiples of 16, 8, 4 or 2 bytes, each a class of arguments with an artifact of
its own. A time's ``of_next`` is that of the next N % 128 == 0 of the same run, in time for each byte: 1 is no price for
an odd width. Every shape is checked first: outputs poisoned with NaN, rows at both ends against float64, and what
follows the output in memory. Artifacts ``NAME@LABEL.twb`` beside those that were built are timed too: those of another
version of the compiler, say.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

from harness import ARTIFACTS, Timer, document, load, parser, relative_error, store, write

ROWS = 16384
FIRST, LAST, EVERY = 4000, 4200, 128
CHECKED_ROWS = 64
GUARD = 64
WORST_ERROR = 6e-3
"""Of bf16 outputs: their own rounding is 2e-3."""


@dataclass(frozen=True)
class Case:
    """A kernel; ``tensors`` by name with their axes and dtype, the output last."""

    name: str
    kernel: str
    tensors: tuple[tuple[str, str, str], ...]
    scalars: tuple[tuple[str, float], ...] = ()


CASES = (
    Case("add", "", (("x", "MN", "bf16"), ("y", "MN", "bf16"), ("z", "MN", "bf16"))),
    Case("swiglu", "swiglu.swiglu", (("gate", "MN", "bf16"), ("up", "MN", "bf16"), ("y", "MN", "bf16"))),
    Case(
        "rms_norm", "norms.rms_norm", (("x", "MN", "bf16"), ("w", "N", "bf16"), ("y", "MN", "bf16")), (("eps", 1e-6),)
    ),
    Case("softmax", "softmax.softmax", (("x", "MN", "bf16"), ("y", "MN", "bf16"))),
    Case("transpose", "transpose.transpose", (("x", "MN", "bf16"), ("y", "NM", "bf16"))),
    Case("column_sum", "reductions.column_sum", (("x", "MN", "bf16"), ("y", "N", "f32"))),
)

ALIGNMENTS = (16, 8, 4, 2)


def shape_of(axes: str, n: int) -> tuple[int, ...]:
    """The extents of a tensor."""
    return tuple({"M": ROWS, "N": n}[axis] for axis in axes)


# -- build ------------------------------------------------------------------------------------------------------------
def compilation(case: Case, align: int) -> tuple[Any, dict[str, Any]]:
    """A case's kernel, and what it is compiled with for packed rows at multiples of ``align`` bytes."""
    from importlib import import_module

    import tilewright as tw
    from tilewright.base.dtypes import DTYPES
    from tilewright.compiler.requests import Observed, observe_facts

    @tw.kernel
    def add(x: tw.Tensor[M, N], y: tw.Tensor[M, N], z: tw.Tensor[M, N], *, bm=tw.auto, bn=tw.auto):  # type: ignore # noqa: F821
        m, n = tw.grid(z, (bm, bn))
        z[m, n] = x[m, n] + y[m, n]

    module, _, name = case.kernel.partition(".")
    kernel: Any = getattr(import_module(module), name) if name else add
    n = 4096 + align // 2 % 8
    seen = {
        t: Observed(DTYPES[dtype], 0, shape_of(axes, n), (n if axes == "MN" else ROWS, 1)[-len(axes) :])
        for t, axes, dtype in case.tensors
    }
    return kernel, {"dtypes": {t: dtype for t, _, dtype in case.tensors}, "facts": observe_facts(seen)}


def build(only: str) -> None:
    """One artifact for each kernel and alignment of its rows."""
    for case in CASES:
        for align in ALIGNMENTS:
            label = f"padding_{case.name}_{align}"
            if only in label:
                kernel, options = compilation(case, align)
                artifact, seconds = store(label, kernel.compile, **options)
                print(f"{label}: {seconds:.2f} s, {len(artifact.kernels)} kernels")


# -- run --------------------------------------------------------------------------------------------------------------
def references() -> dict[str, Callable[..., Any]]:
    """Each kernel on inputs of float64; of the transposition and the sums on whole columns."""
    return {
        "add": lambda x, y: x + y,
        "swiglu": lambda g, u: g * g.sigmoid() * u,
        "rms_norm": lambda x, w: x * (x.pow(2).mean(1, keepdim=True) + 1e-6).rsqrt() * w,
        "softmax": lambda x: x.softmax(1),
        "transpose": lambda x: x.t(),
        "column_sum": lambda x: x.sum(0),
    }


class Operands:
    """The tensors of a case at one width, in buffers that all widths share."""

    def __init__(self, torch: Any, case: Case) -> None:
        self.case = case
        torch.manual_seed(0)
        dtypes = {"bf16": torch.bfloat16, "f32": torch.float32}
        widest = -(-LAST // EVERY) * EVERY
        self.buffers: dict[str, Any] = {}
        for name, axes, dtype in case.tensors:
            size = widest * (ROWS if "M" in axes else 1) + GUARD
            self.buffers[name] = torch.randn(size, device="cuda", dtype=torch.float32).to(dtypes[dtype])
        self.copied: Any = torch.empty(
            sum(b.numel() * b.element_size() for b in self.buffers.values()) // 2 + 16, dtype=torch.int8, device="cuda"
        )
        self.source: Any = torch.randint_like(self.copied, 0, 127)

    def at(self, n: int) -> dict[str, Any]:
        """The tensors at width ``n``."""
        found: dict[str, Any] = {}
        for name, axes, _ in self.case.tensors:
            shape = shape_of(axes, n)
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            found[name] = self.buffers[name][:size].view(shape)
        return found

    def check(self, torch: Any, n: int, launch: Callable[[], object]) -> float:
        """The worst relative error over rows at both ends; infinite where something else was written or left out."""
        tensors = self.at(n)
        *inputs, (out, axes, _) = self.case.tensors
        self.buffers[out].fill_(float("nan"))
        launch()
        result = tensors[out]
        if bool(result.isnan().any()) or not bool(self.buffers[out][result.numel() :].isnan().all()):
            return float("inf")
        reference, worst = references()[self.case.name], 0.0
        whole = self.case.name == "column_sum"
        for part in (slice(None, CHECKED_ROWS), slice(-CHECKED_ROWS, None)):
            if whole:
                given, got = [tensors["x"][:, part].double()], result[part]
            else:
                given = [tensors[t].double() if a == "N" else tensors[t][part].double() for t, a, _ in inputs]
                got = result[:, part] if axes == "NM" else result[part]
            worst = max(worst, relative_error(got, reference(*given)))
        return worst


def run(args: argparse.Namespace) -> None:
    """Check and time every width; write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    widths = [*range(FIRST, LAST + 1, args.step), *range(-(-FIRST // EVERY) * EVERY, LAST + EVERY, EVERY)]
    for case in CASES:
        if args.only not in case.name:
            continue
        x = Operands(torch, case)
        for n in sorted(set(widths)):
            rows.append(measured(torch, timer, case, x, n))
        relate([r for r in rows if r["kernel"] == case.name])
        summary(case.name, [r for r in rows if r["kernel"] == case.name])
        del x
        torch.cuda.empty_cache()
    write(document(torch, **timer.conditions(), matrix_rows=ROWS, rows=rows), args.json, row_lines=True)
    if args.svg:
        Path(args.svg).write_text(picture(rows))


def measured(torch: Any, timer: Timer, case: Case, x: Operands, n: int) -> dict[str, Any]:
    """One kernel at one width: its times and the copy's, and errors."""
    align = gcd(16, 2 * n)
    label = f"padding_{case.name}_{align}"
    programs = {"ours": load(label)}
    programs |= {f.stem.split("@")[1]: load(f.stem) for f in sorted(ARTIFACTS.glob(f"{label}@*.twb"))}
    tensors = x.at(n)
    call = {**tensors, **dict(case.scalars)}
    variants: dict[str, Callable[[], object]] = {}
    errors: dict[str, float] = {}
    for name, program in programs.items():
        values = tuple(call[p.name] for p in program.artifact.parameters)
        variants[name] = lambda p=program, v=values: p.launch(v)
        errors[name] = x.check(torch, n, variants[name])
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    a, b = x.source[: size // 2], x.copied[: size // 2]
    variants["copy"] = lambda: b.copy_(a)
    seconds = timer.medians(variants)
    wrong = [name for name, error in errors.items() if not error <= WORST_ERROR]
    return {
        "kernel": case.name,
        "n": n,
        "align_bytes": align,
        "bytes": size,
        "microseconds": {k: round(s * 1e6, 2) for k, s in seconds.items()},
        "of_copy": {k: round(seconds["copy"] / s, 3) for k, s in seconds.items()},
        "error": errors["ours"],
        **({"wrong": wrong} if wrong else {}),
    }


def relate(rows: list[dict[str, Any]]) -> None:
    """Adds to each row its time for a byte beside that of the next width in whole lines."""
    rate = {r["n"]: r["microseconds"]["ours"] / r["bytes"] for r in rows}
    for row in rows:
        row["of_next"] = round(rate[row["n"]] / rate[-(-row["n"] // EVERY) * EVERY], 3)


def summary(name: str, rows: list[dict[str, Any]]) -> None:
    """Prints the worst and the median of each alignment."""
    print(name, "wrong: " + str([(r["n"], r["wrong"]) for r in rows if "wrong" in r]), flush=True)
    for align in ALIGNMENTS:
        of = sorted((r for r in rows if r["align_bytes"] == align), key=lambda r: r["of_next"])
        if of:
            within = sum(r["of_next"] <= 1.05 for r in of)
            keys = of[0]["microseconds"]
            middle = {k: sorted(r["microseconds"][k] for r in of)[len(of) // 2] for k in keys}
            ends = f"of_next {of[0]['of_next']} to {of[-1]['of_next']} (N = {of[-1]['n']})"
            print(f"  {align} bytes: {len(of)} widths, {within} within 5 %, {ends}; us {middle}", flush=True)


# -- picture ----------------------------------------------------------------------------------------------------------
WIDTH, HEIGHT, LEFT, GAP = 760, 110, 90, 26
COLOURS = {16: "#1a7f37", 8: "#0969da", 4: "#9a6700", 2: "#cf222e"}
"""Of widths by what their rows are aligned to, in bytes."""


def picture(rows: list[dict[str, Any]]) -> str:
    """Of each kernel the bandwidth beside the copy's, by width: dots by alignment, 1.0 and 0.5 as lines; in grey what
    was timed as ``before``."""
    names = list(dict.fromkeys(r["kernel"] for r in rows))
    low, high = min(r["n"] for r in rows), max(r["n"] for r in rows)

    def dot(row: dict[str, Any], place: int, label: str, colour: str) -> str:
        x = LEFT + (WIDTH - LEFT - 10) * (row["n"] - low) / (high - low)
        y = place * (HEIGHT + GAP) + GAP + HEIGHT * (1 - min(row["of_copy"][label], 1.1) / 1.1)
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>'

    def text(x: float, y: float, words: str, colour: str = "#666", anchor: str = "end") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'

    lines: list[str] = []
    for place, name in enumerate(names):
        top = place * (HEIGHT + GAP) + GAP
        lines.append(text(LEFT - 34, top + HEIGHT / 2, name, "#333"))
        for level in (0.5, 1.0):
            y = top + HEIGHT * (1 - level / 1.1)
            lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>')
            lines.append(text(LEFT - 6, y + 4, f"{level:g}"))
        own = [r for r in rows if r["kernel"] == name]
        lines += [dot(r, place, "before", "#bbb") for r in own if "before" in r["of_copy"]]
        lines += [dot(r, place, "ours", COLOURS[r["align_bytes"]]) for r in own]
    bottom = len(names) * (HEIGHT + GAP) + GAP
    for n in range(-(-low // EVERY) * EVERY, high + 1, EVERY):
        lines.append(text(LEFT + (WIDTH - LEFT - 10) * (n - low) / (high - low), bottom, f"N = {n}", anchor="middle"))
    legend = [*((f"rows at multiples of {a} bytes", c) for a, c in COLOURS.items()), ("before", "#bbb")]
    lines += [text(LEFT + 150 * i, 14, words, colour, "start") for i, (words, colour) in enumerate(legend)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 8}" font-size="10" role="img">'
    title = f"<title>Bandwidth beside a copy, N from {low} to {high}</title>"
    return "\n".join([head, title, *lines, "</svg>"]) + "\n"


def main() -> None:
    arguments = parser(__doc__, "cases whose name contains this", rounds=9)
    arguments.add_argument("--step", type=int, default=1, help="distance of neighbouring widths")
    arguments.add_argument("--svg", default="", help="where a picture of the run goes")
    args = arguments.parse_args()
    build(args.only) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()

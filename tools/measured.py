"""Write the tables of ``README.md`` and of the measured pages from ``benchmarks/results``, and how they were measured.

python tools/measured.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README, GOALS, MEASURED = ROOT / "README.md", ROOT / "docs" / "measured.md", ROOT / "docs" / "measured"
RUNS = {
    README: ("memory_bound", "torch_ops", "indexed", "scan", "moe", "paged", "products", "gpu_correctness"),
    MEASURED / "memory.md": ("memory_bound", "padding"),
    MEASURED / "pytorch.md": ("torch_ops",),
    MEASURED / "attention.md": ("attention_backward", "paged", "varlen"),
    MEASURED / "indices.md": ("indexed", "scan", "histograms"),
    MEASURED / "groups.md": ("grouped", "moe"),
    MEASURED / "products.md": ("products",),
}
"""The runs that a page shows, in the order in which it tells their rounds."""

OPERATORS = (
    "add_rms_norm 8192x8192 forward",
    "rms_norm 8192x8192 forward+backward",
    "cross_entropy 8192x32000 forward",
)
INDEXED = ("embedding 16384 of 32000x4096 bf16", "cumsum 8192x4096 bf16")
EXPERTS = ("8192 tokens, 2 of 8, 4096x14336, s = 1", "8192 tokens, 8 of 128, 2048x768, s = 0")
CACHES = (("64x4096 32/8", "NHD", 64),)
HIGHLIGHTS = ("softmax 16384x4096", "rms_norm 8192x8192")
PRODUCTS = ("8192x8192x8192", "4096x4096x4096", "4100x4100x4100")
ATTENTIONS = ("full {}4x16x4096x128", "causal {}4x16x4096x128")
PRODUCT_GOALS = {
    **dict.fromkeys(("1x8192x8192", "16x8192x8192", "64x8192x8192", "256x4096x11008", "512x4096x4096"), "1.05"),
    **dict.fromkeys(("128x128x65536", "128x8192x8192"), "1.1"),
    "1024x1024x1024": "1.0",
    **dict.fromkeys(("3000x7000x2504", "4864x896x896", "5000x5000x5000"), "1.02"),
}
ROW_GOALS = {
    "rms_norm": "1.8",
    "layer_norm": "1.8",
    "cross_entropy 4096x128256 forward and": "1.6",
    "cross_entropy": ".9 of read bandwidth",
    "256 backward": "",
}
PEERS = ("varlen_attn", "dense")
COMPILED = {"compile": "torch.compile", "autotune": "torch.compile, max-autotune", "eager": "PyTorch"}


def result(name: str) -> Mapping[str, Any]:
    """A document of a run."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def by_case(name: str) -> dict[str, Any]:
    """Its rows by their case."""
    return {row["case"]: row for row in result(name)["rows"]}


# -- tables -----------------------------------------------------------------------------------------------------------
def memory_bound() -> Iterator[str]:
    """Every memory-bound kernel beside PyTorch."""
    yield "| kernel | Tilewright, us | of copy | eager, us | torch.compile, us | max-autotune, us |"
    for case, row in by_case("memory_bound").items():
        us = {name: f"{value:.1f}" for name, value in row["microseconds"].items()}
        cells = (us["ours"], f"{row['of_copy']['ours']:.2f}", us["eager"], us["compile"], us["autotune"])
        yield f"| {case} | {' | '.join(cells)} |"


def padding() -> Iterator[str]:
    """Kernels over rows of any width, by what the rows are aligned to; whole lines are no cases of their own."""
    columns = "us | copy, us | of copy | next | next, up to N = 4089 | within 5 %"
    yield f"| kernel | rows at multiples of | {columns} |"
    rows = [r for r in result("padding")["rows"] if r["n"] % 128]
    for kernel in dict.fromkeys(r["kernel"] for r in rows):
        for align in (16, 8, 4, 2):
            of = [r for r in rows if (r["kernel"], r["align_bytes"]) == (kernel, align)]
            us = (f"{sorted(r['microseconds'][name] for r in of)[len(of) // 2]:.1f}" for name in ("ours", "copy"))
            copy = sorted(r["of_copy"]["ours"] for r in of)[len(of) // 2]
            worst = (max(r["of_next"] for r in of if r["n"] <= most) for most in (4200, 4089))
            within = sum(r["of_next"] <= 1.05 for r in of)
            cells = (*us, f"{copy:.2f}", *(f"{x:.2f}" for x in worst), f"{within} of {len(of)}")
            yield f"| {kernel} | {align} bytes | {' | '.join(cells)} |"


def products() -> Iterator[str]:
    """Every product beside cuBLAS, torch.compile or cuDNN."""
    yield "| case | Tilewright | peer | ratio |"
    for case, row in by_case("products").items():
        ours, peer = row["tflops"].values()
        yield f"| {case} | {ours:.3g} | {peer:.3g} | {row['of_peer']:.2f} |"


def attention_forward() -> Iterator[str]:
    """Attention under the default numerics beside cuDNN."""
    yield "| attention forward, default numerics | Tilewright | cuDNN | ratio |"
    for case, row in by_case("attention_forward").items():
        ours, peer = row["tflops"].values()
        yield f"| {case.removeprefix('attention ')} | {ours:.3g} | {peer:.3g} | {row['of_peer']:.2f} |"


def all_products() -> Iterator[str]:
    """bf16 products of the table beside PyTorch's cuBLAS and the best that cublasLt offers."""
    yield "| M x N x K | Tilewright, us | cuBLAS, us | of cuBLAS | of cublasLt's best | goal |"
    for row in result("product_choices_table")["rows"]:
        shape, us = "x".join(map(str, row["shape"])), row["microseconds"]
        ours, peer = (f"{us[name]:.0f}" if us[name] >= 1000 else f"{us[name]:.1f}" for name in ("chosen", "cublas"))
        goal = PRODUCT_GOALS.get(shape, "")
        yield f"| {shape} | {ours} | {peer} | {row['of_cublas']:.2f} | {row['of_cublaslt']:.2f} | {goal} |"


def speed_rows() -> Iterator[str]:
    """Norms' gradients, a wide vocabulary, few rows, wide and shared heads, beside the best of their peers."""
    yield "| case | Tilewright | peer | which | ratio | goal |"
    for case, row in by_case("speed_rows").items():
        if "failed" not in row:
            us = row["microseconds"]
            ours, peer = (f"{us[name]:.1f}" for name in ("ours", row["peer"]))
            goal = next((goal for part, goal in ROW_GOALS.items() if part in case), "1.05")
            yield f"| {case} | {ours} | {peer} | {row['peer']} | {row['of_peer']:.2f} | {goal} |"


def other_products() -> Iterator[str]:
    """Products in other layouts, dtypes, batches and with epilogues beside their peers; those that were timed."""
    yield "| other case | Tilewright, TFLOP/s | peer, TFLOP/s | peer | ratio |"
    for case, row in by_case("speed_cases").items():
        if "failed" not in row:
            ours, peer = row["tflops"].values()
            yield f"| {case} | {ours:.0f} | {peer:.0f} | {row['peer']} | {row['of_peer']:.2f} |"


def counters() -> Iterator[str]:
    """What Nsight Compute counted of speed rows, a launch a row."""
    parts = "tensor, % | issue, % | DRAM, TB/s | read from L2, MB | instructions, M | stalls"
    yield f"| row, one launch each | kernel | us | {parts} |"
    before = ""
    for row in result("counters")["rows"]:
        case = "" if row["case"] == before else row["case"]
        tensor = row.get("tensor_pct") or ""
        figures = (row["microseconds"], tensor, row["issue_pct"], f"{row['dram_terabytes_per_second']:.2f}")
        stalls = ", ".join(f"{row['stalls_per_issue'][name]:.1f}" for name in ("barrier", "memory", "fixed latency"))
        more = (f"{row['read_from_l2_megabytes']:.0f}", row["instructions_millions"], stalls)
        yield f"| {case} | {_launched(row)} | {' | '.join(map(str, (*figures, *more)))} |"
        before = row["case"]


def _launched(row: Mapping[str, Any]) -> str:
    """Whose kernel it was, and what of several."""
    kernel = row["kernel"]
    if row["by"] == "ours":
        of = "PyTorch's fill" if "FillFunctor" in kernel else re.sub(r"^kernel_|_\d+$", "", kernel)
        known = {"attention_delta": "delta", "attention_query_gradient": "dq", "attention_key_gradients": "dk, dv"}
        known |= {"product_stage_a": "copy of A", "product_stage_b": "copy of B"}
        alone = {"product", "row_major", "attention", "block_scaled", "row_scaled", "epilogue", "batched"}
        return "ours" if of in alone else f"ours, {known.get(of, of)}"
    tile = re.search(r"_(\d+x\d+)_\d+x(\d+)_(\d+)x(\d+)_", kernel)
    if kernel.startswith("nvjet") and tile:
        return f"cuBLAS, {tile[1]}, {tile[2]} stages, {tile[3]} x {tile[4]}"
    named = {"dot_do_o": "cuDNN, delta", "convert_dq": "cuDNN, dq rounded", "cudnn": "cuDNN", "triton": "Triton",
             "splitKreduce": "cuBLAS, the sum"}  # fmt: skip
    return next((name for part, name in named.items() if part in kernel), "cuBLAS")


def errors_of_rows() -> Iterator[str]:
    """The greatest quotients of our errors and the peer's over the rows of each family, against float64."""
    yield "| errors, of the peer's | rows | RMS, at most | greatest, at most |"
    families = {"attention forward, heads of 64 and 128": "attention_forward", "silu(a w) * (a v)": "products_gate"}
    for family, name in families.items():
        yield _errors(family, ((r["error"], r["peer_error"], *r["greatest_errors"]) for r in result(name)["rows"]))
    pairs = [
        (*both(row["errors"]), *both(row["greatest_errors"]))
        for row in result("attention_backward")["rows"]
        for both in (lambda found, i=i: (found["ours"][i], found["cudnn"][i]) for i in range(3))
    ]
    yield _errors("attention backward, dq, dk and dv", pairs)
    cases = [r for r in result("speed_cases")["rows"] if "failed" not in r]
    for family, of in (("e4m3", "e4m3"), ("bias, GELU, residual", "bias"), ("batched", "batched"), ("A B", "A B ")):
        found = [r for r in cases if r["case"].startswith(of) and "blocks" not in r["case"]]
        yield _errors(family, ((r["error"], r["peer_error"], *r["greatest_errors"]) for r in found))
    for row in result("speed_rows")["rows"]:
        errors, greatest, peer = row["errors"], row["greatest_errors"], row["peer"]
        if peer in errors and "ours" in errors:
            yield _errors(row["case"], [(errors["ours"], errors[peer], greatest["ours"], greatest[peer])])


def _errors(family: str, rows: Iterable[tuple[float, float, float, float]]) -> str:
    quotients = [(_quotient(a, b), _quotient(c, d)) for a, b, c, d in rows]
    rms, greatest = (max(of) for of in zip(*quotients, strict=True))
    return f"| {family} | {len(quotients)} | {rms:.3f} | {greatest:.2f} |"


def _quotient(ours: float, theirs: float) -> float:
    """1 of two exact results."""
    return ours / theirs if theirs else float(ours > 0) + 1


def dependent_launches() -> Iterator[str]:
    """A layer of the decode chain launched in every way."""
    rows = result("dependent_launch")["rows"]
    ways = [name for name in rows[0]["us_of_layer"] if name != "plain"]
    yield f"| variant, relative to plain | {' | '.join(r['case'].split()[-1] for r in rows)} |"
    yield f"| plain, us a layer | {' | '.join(format(r['us_of_layer']['plain'], '.1f') for r in rows)} |"
    for way in ways:
        cells = (f"{r['of_plain'][way]:.3f}" if way in r["of_plain"] else "" for r in rows)
        yield f"| {way.replace('so, ', 'the same, ')} | {' | '.join(cells)} |"


def attention_orders(mask: str, *taken: str) -> Iterator[str]:
    """Attention and its gradients in several orders of programs, some of which are ``taken``."""
    rows = [row for row in result("attention_orders")["rows"] if f" {mask} " in row["case"]]
    orders = list(rows[0]["of_peer"])
    yield f"| us, {mask} | {' | '.join(orders).replace('cudnn', 'cuDNN')} | of cuDNN, by {', '.join(taken)} |"
    for row in rows:
        us = row["microseconds"]
        cells = (f"{us[name]:.1f}" if name in us else "" for name in orders)
        yield f"| {row['case']} | {' | '.join(cells)} | {', '.join(format(row['of_peer'][n], '.2f') for n in taken)} |"


def operators() -> Iterator[str]:
    """Every operator beside PyTorch, forward and with its gradients."""
    yield "| operator | Tilewright | eager | torch.compile | best peer / ours |"
    for case, row in timed_operators().items():
        ours, *peers = (row[name] * 1e6 for name in ("ours", "eager", "compile"))
        cells = (f"{ours:.1f}", *(f"{peer:.1f}" for peer in peers), f"{min(peers) / ours:.2f}")
        yield f"| {case} | {' | '.join(cells)} |"


def timed_operators() -> dict[str, Any]:
    """Rows by their case, whose dtype and layout the page says."""
    return {row["case"].replace(" bfloat16 row-major", ""): row for row in result("torch_ops")["times"]}


def gradients_of_attention() -> Iterator[str]:
    """Every backward of attention beside cuDNN's and FlashAttention-2's."""
    yield "| case | ours | dq | dk, dv | cuDNN | of cuDNN | of flash |"
    for case, row in by_case("attention_backward").items():
        us = [f"{row['microseconds'][name]:.0f}" for name in ("ours", "dq", "dk, dv", "cudnn")]
        yield f"| {case} | {' | '.join(us)} | {row['of_peer']:.2f} | {row['of_flash']:.2f} |"


def indexed() -> Iterator[str]:
    """Kernels at computed or loaded coordinates, scans, histograms, beside PyTorch where that has been timed."""
    yield "| kernel | Tilewright, us | of copy | eager, us | torch.compile, us |"
    for case, row in indexed_rows().items():
        us = {name: f"{value:.1f}" for name, value in row["microseconds"].items()}
        cells = (us["ours"], f"{row['of_copy']['ours']:.2f}", us.get("eager", ""), us.get("compile", ""))
        yield f"| {case} | {' | '.join(cells)} |"


def indexed_rows() -> dict[str, Any]:
    """Of all three runs."""
    return by_case("indexed") | by_case("scan") | by_case("histograms")


def grouped() -> Iterator[str]:
    """Products of groups of rows beside PyTorch's, a loop of cuBLAS calls, and one dense product."""
    yield "| case | Tilewright, us | grouped_mm, us | a loop, us | dense, us | of grouped_mm |"
    for case, row in by_case("grouped").items():
        us = (f"{row['microseconds'][name]:.1f}" for name in ("ours", "grouped_mm", "loop", "dense"))
        yield f"| {case} | {' | '.join(us)} | {row['of_grouped_mm']:.2f} |"


def experts() -> Iterator[str]:
    """Every mixture of experts beside PyTorch's."""
    peers = "the other way, us | eager, us | torch.compile, us | of the best"
    yield f"| case | Tilewright, us | {peers} | backward, us | eager, us | of eager |"
    for case, row in by_case("moe").items():
        us, back = row["microseconds"], row.get("backward")
        cells = [
            *(f"{us[name]:.1f}" for name in ("ours", "the other way", "eager", "compiled")),
            f"{row['of_peer']:.2f}",
        ]
        if back is not None:
            cells += [f"{back['microseconds'][name]:.1f}" for name in ("ours", "eager")] + [f"{back['of_eager']:.2f}"]
        yield f"| {case} | {' | '.join(cells + [''] * (8 - len(cells)))} |"


def varlen() -> Iterator[str]:
    """Attention over packed sequences beside PyTorch's varlen_attn."""
    names = ("ours", "packed", "varlen_attn", "cudnn_loop", "dense", "copy")
    yield (
        "| case | tiles of one sequence, us | of several, us | varlen_attn, us | cuDNN, a loop, us | dense, us "
        "| copy, us | of varlen_attn |"
    )
    for case, row in by_case("varlen").items():
        us = (f"{row['microseconds'][name]:.1f}" if name in row["microseconds"] else "" for name in names)
        yield f"| {case} | {' | '.join(us)} | {row['of']['varlen_attn']:.2f} |"


def packed_launches() -> Iterator[str]:
    """What offsets cost a launch of attention over packed sequences, behind a flush of L2 and without one."""
    ways = {
        "judged": "each CTA judges, the gate in shared memory (the compiler's)",
        "registers": "each CTA judges, the gate in a register",
        "unjudged": "nobody judges, programs dealt",
        "dense": "dense",
    }
    yield f"| sequences | {' | '.join(ways.values())} | more than dense |"
    run = result("varlen_launches")
    for row in run["launches"]:
        both = row["microseconds"], row["not_flushed"]
        cells = (", ".join(f"{us[way]:.1f}" for us in both) for way in ways)
        more = ", ".join(f"{us['judged'] - us['dense']:.1f}" for us in both)
        yield f"| {row['groups']:,} | {' | '.join(cells)} | {more} |"
    for row in run["rows"]:
        us = row["microseconds"]
        yield f"| {row['case']} | {' | '.join(f'{us[way]:.1f}' if way in us else '' for way in ways)} | |"


def packed_gradients() -> Iterator[str]:
    """Gradients of attention over packed sequences beside varlen_attn's and our dense ones."""
    yield "| case | ours | varlen_attn | our dense gradients | of varlen_attn | of dense |"
    for case, row in by_case("varlen_backward").items():
        if "microseconds" in row and " last" not in case:
            us = (f"{row['microseconds'][n]:.1f}" if n in row["microseconds"] else "" for n in ("ours", *PEERS))
            of = (f"{row['of'][n]:.2f}" if n in row["of"] else "" for n in PEERS)
            yield f"| {case} | {' | '.join((*us, *of))} |"


def paged() -> Iterator[str]:
    """Decode over contiguous and paged caches beside cuDNN and flash attention over contiguous ones."""
    sizes = (16, 32, 64, 128)
    yield "| case | contiguous | pages of 16 | of 32 | of 64 | of 128 | cuDNN | flash | cuDNN / contiguous |"
    for row in result("paged")["rows"]:
        us = row["microseconds"]
        names = ("contiguous", *(f"pages of {n}" for n in sizes), "cudnn", "flash")
        cells = [f"{us[name]:.1f}" if name in us else "" for name in names]
        cells.append(f"{us['cudnn'] / us['contiguous']:.2f}" if "cudnn" in us else "")
        yield f"| {row['case']} {row['layout']} | {' | '.join(cells)} |"


def highlights() -> Iterator[str]:
    """A few of each."""
    yield "| kernel | Tilewright | peer | |"
    for case in HIGHLIGHTS:
        row = by_case("memory_bound")[case]
        us = row["microseconds"]
        best = min(COMPILED, key=us.__getitem__)
        ours = f"{us['ours']:.1f} us, {row['of_copy']['ours']:.2f} of a copy"
        yield f"| {case} | {ours} | {us[best]:.1f} us | {COMPILED[best]} |"
    for case in OPERATORS:
        row = timed_operators()[case]
        best = min(("compile", "eager"), key=row.__getitem__)
        name = case.replace(" ", "` ", 1)
        yield f"| `ops.{name} | {row['ours'] * 1e6:.1f} us | {row[best] * 1e6:.1f} us | {COMPILED[best]} |"
    for case in INDEXED:
        row = indexed_rows()[case]
        us = row["microseconds"]
        ours = f"{us['ours']:.1f} us, {row['of_copy']['ours']:.2f} of a copy"
        yield f"| {case} | {ours} | {us['compile']:.1f} us | torch.compile |"
    for case in EXPERTS:
        us = by_case("moe")[case]["microseconds"]
        yield f"| `ops.moe` {case} | {us['ours']:.0f} us | {us['compiled']:.0f} us | torch.compile |"
    for case, layout, pages in CACHES:
        (row,) = (r for r in result("paged")["rows"] if (r["case"], r["layout"]) == (case, layout))
        us = row["microseconds"]
        ours = f"{us[f'pages of {pages}']:.1f} us, contiguous {us['contiguous']:.1f}"
        yield f"| decode {case}, pages of {pages} | {ours} | contiguous {us['cudnn']:.1f} us | cuDNN |"
    measured = by_case("products")
    for shape in PRODUCTS:
        ours, peer = measured[f"matmul {shape}"]["tflops"].values()
        yield f"| matmul {shape} | {ours:.0f} TFLOP/s | {peer:.0f} TFLOP/s | cuBLAS |"
    forward = by_case("attention_forward")
    for kind in ATTENTIONS:
        ours, peer = forward["attention " + kind.format("")]["tflops"].values()
        strict = measured["attention " + kind.format("strict ")]["tflops"]["ours"]
        name = "attention " + kind.format("").replace("full ", "")
        yield f"| {name} | {ours:.0f} TFLOP/s, `strict` {strict:.0f} | {peer:.0f} TFLOP/s | cuDNN |"
    calls = result("gpu_correctness")["launch_overhead"]
    ours, peer = (calls[name]["median_us"] for name in ("kernel", "torch_add"))
    yield f"| a call from Python | {ours:.1f} us | {peer:.1f} us | `torch.add` with `out=` |"


def layers() -> Iterator[str]:
    """Layers of language models beside torch.compile."""
    return beside_compile("layer", "layers", "ours", "ours, compiled")


def patched_layers() -> Iterator[str]:
    """Those of transformers, as ``tw.patch`` leaves them."""
    return beside_compile("layer of transformers", "patched_layers", "patched", "patched, compiled")


def beside_compile(what: str, name: str, *ways: str) -> Iterator[str]:
    """Layers of a run, in two ways of ours."""
    yield f"| {what} | torch.compile | {' | '.join(ways)} | the better / torch.compile | goal |"
    for case, row in by_case(name).items():
        us, of_peer = row["microseconds"], row["of_peer"]
        times = " | ".join(f"{us[name]:.0f}" for name in ("pytorch, compiled", *ways))
        yield f"| {case} | {times} | {max(of_peer[way] for way in ways):.2f} | {row['goal'] or ''} |"


# -- pages ------------------------------------------------------------------------------------------------------------
def rewritten(pages: dict[Path, str], table: Iterator[str]) -> None:
    """Replace the rows of a table, found by its header, on the page that has it."""
    header, *rows = table
    (page,) = (path for path, text in pages.items() if header in text.splitlines())
    lines = pages[page].splitlines()
    begin = lines.index(header) + 2  # its rule stays
    end = next(i for i in range(begin, len(lines) + 1) if i == len(lines) or not lines[i].startswith("|"))
    pages[page] = "\n".join([*lines[:begin], *rows, *lines[end:]]) + "\n"


def conditions(*names: str) -> str:
    """Clock, versions and dates of runs, which one device made."""
    runs = [result(name) for name in names]
    (driver,), (torch,) = ({run["versions"][part] for run in runs} for part in ("driver", "torch"))
    first, last = min(run["date"] for run in runs), max(run["date"] for run in runs)
    when = first if first == last else f"{first} to {last}"
    return f"({runs[0]['clock_mhz']}, driver {driver}, PyTorch {torch}, {when})"


def measured_so(text: str, *names: str) -> str:
    """The page with the conditions of the runs that it shows, their rounds and their commands, in that order."""
    text, found = re.subn(r"\(\d+ MHz, driver [^)]*\)", lambda _: conditions(*names), text)
    assert found <= 1, "a page says once under what conditions its figures were measured"
    rounds = (str(rounds_of(result(name))) for name in names)
    text = re.sub(r"\d+(?= rotated rounds)", lambda told: next(rounds, told[0]), text)
    for command in (result(name)["command"] for name in names):
        script = " ".join(command.split()[:3])  # python, a file of benchmarks, run
        text = re.sub(rf"^{re.escape(script)} .*$", command, text, flags=re.MULTILINE)
    return text


def rounds_of(run: Mapping[str, Any]) -> int:
    """How often each variant was timed."""
    return run["rounds"] if "rounds" in run else run["conditions"]["rounds"]


def pages() -> dict[Path, str]:
    """All pages as the results have them."""
    pages = {path: path.read_text() for path in (README, GOALS, *sorted(MEASURED.glob("*.md")))}
    tables = (
        highlights(),
        memory_bound(),
        padding(),
        operators(),
        layers(),
        patched_layers(),
        gradients_of_attention(),
        indexed(),
        grouped(),
        experts(),
        paged(),
        varlen(),
        packed_launches(),
        packed_gradients(),
        products(),
        attention_forward(),
        all_products(),
        speed_rows(),
        other_products(),
        counters(),
        errors_of_rows(),
        dependent_launches(),
        attention_orders("full", "heads"),
        attention_orders("causal", "heads", "bands of 33"),
    )
    for table in tables:
        rewritten(pages, table)
    return {path: measured_so(text, *RUNS[path]) if path in RUNS else text for path, text in pages.items()}


def main() -> int:
    """Write the pages, or with ``--check`` say whether they are current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = {page: text for page, text in pages().items() if page.read_text() != text}
    for page, text in stale.items():
        if not check:
            page.write_text(text)
        print(f"{page.relative_to(ROOT)} {'is stale: run python tools/measured.py' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

"""The gradients of attention over packed sequences, all launches of a backward together, beside PyTorch's varlen_attn.

Build where the compiler is, run where the GPU is (PyTorch, numpy, cuda-bindings):

    python benchmarks/varlen_backward.py build
    python benchmarks/varlen_backward.py run --json benchmarks/results/varlen_backward.json

Causal, bf16, 16 heads of 128 elements over as many of keys. Ours are delta, the gradient of queries, those of keys and
values, each of the last two behind the check of its offsets; ``dense`` are our dense gradients, where all sequences
are of one length. They have one order of sums, and the same bits in every run. Errors are against float64.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from harness import ARTIFACTS, Timer, document, load, parser, relative_error, store, write

HEADS, WIDTH = 16, 128
SCALE = WIDTH**-0.5
ROWS = ("dq", "dk", "dv")


def lengths() -> dict[str, list[int]]:
    """The sequences of each case; of the first, whose results are compared with float64, all are short. Rows in all are
    a multiple of 8, so that those of ``lse`` and ``delta`` are aligned."""
    drawn = random.Random(0)
    found = {
        "checked": [300, 1, 0, 513, 128, 77],
        "uniform 16x1024": [1024] * 16,
        "uniform 4x4096": [4096] * 4,
        "skew": [8192, 4096, *[256] * 16],
        "mixed 32": [drawn.randint(1, 2048) for _ in range(32)],
        "mixed 32, short ones last": [],
        "mixed 32, long ones last": [],
        "short 512x(1..128)": [drawn.randint(1, 128) for _ in range(512)],
    }
    found["mixed 32, short ones last"] = sorted(found["mixed 32"], reverse=True)
    found["mixed 32, long ones last"] = sorted(found["mixed 32"])
    return {name: [*sequences[:-1], sequences[-1] + -sum(sequences) % 8] for name, sequences in found.items()}


def build(only: str) -> None:
    """Compile every kernel to an artifact."""
    from tilewright.ops import kernels

    inputs, sums = dict.fromkeys(("do", "q", "k", "v"), "bf16"), {"lse": "f32", "delta": "f32"}
    offsets = {"q_offsets": "i32", "k_offsets": "i32"}
    queries, keys = {**inputs, **sums, "dq": "bf16"}, {**inputs, **sums, "dk": "bf16", "dv": "bf16"}
    whole = {"causal": True, "q_used": None, "k_used": None}
    wanted: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
        "varlen_delta": (kernels.attention_delta, {"do": "bf16", "o": "bf16"}, {"width": WIDTH}),
        "varlen_dq": (kernels.varlen_query_gradient(WIDTH), {**offsets, **queries}, whole),
        "varlen_dkv": (kernels.varlen_key_gradients(WIDTH), {**offsets, **keys}, whole),
        "varlen_dense_dq": (kernels.attention_query_gradient(WIDTH), queries, {"causal": True}),
        "varlen_dense_dkv": (kernels.attention_key_gradients(WIDTH), keys, {"causal": True}),
    }
    for name, (kernel, dtypes, keywords) in wanted.items():
        if only in name:
            _, seconds = store(name, kernel.compile, target="sm_90a", dtypes=dtypes, **keywords)
            print(f"{name}: {seconds:.1f} s", flush=True)


Calls = Sequence[tuple[str, Mapping[str, Any]]]


def launched(calls: Calls) -> Callable[[], None]:
    """All launches of a backward."""
    programs = [(load(name), given) for name, given in calls]

    def run() -> None:
        for program, given in programs:
            program.launch(given)

    return run


class Case:
    """Inputs of one backward."""

    def __init__(self, torch: Any, sequences: list[int]) -> None:
        made, self.torch, self.sequences = torch.Generator("cuda").manual_seed(0), torch, sequences
        shape = (sum(sequences), HEADS, WIDTH)
        draw = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=made) for _ in range(4))
        self.rows = dict(zip(("q", "k", "v", "do"), draw, strict=True))
        self.offsets = torch.tensor([0, *accumulate(sequences)], dtype=torch.int32, device="cuda")
        self.o, self.lse = self._forward()
        self.delta = torch.empty_like(self.lse)
        self.results = {n: torch.full(shape, torch.nan, device="cuda", dtype=torch.bfloat16) for n in ROWS}

    def _forward(self) -> tuple[Any, Any]:
        """By PyTorch, a sequence at a time: neither is timed."""
        torch, (q, k, v) = self.torch, (self.rows[n] for n in "qkv")
        o, lse = torch.zeros_like(q), torch.zeros((HEADS, len(q)), device="cuda")
        for low, high in pairwise(self.offsets.tolist()):
            if high > low:
                part = (x[low:high].transpose(0, 1)[None] for x in (q, k, v))
                found = torch.ops.aten._scaled_dot_product_flash_attention(*part, 0.0, True, scale=SCALE)
                o[low:high], lse[:, low:high] = found[0][0].transpose(0, 1), found[1][0, :, : high - low]
        return o, lse

    def ours(self) -> Calls:
        """Of packed rows."""
        given = {**self.rows, "q_offsets": self.offsets, "k_offsets": self.offsets, "scale": SCALE}
        given |= {"lse": self.lse, "delta": self.delta, **self.results}
        return (("varlen_delta", self._delta(lambda x: x.transpose(0, 1)[None], self.delta[None])),
                ("varlen_dq", _of(given, "dk", "dv")), ("varlen_dkv", _of(given, "dq")))  # fmt: skip

    def dense(self) -> Calls:
        """Of sequences of one length."""
        count, length = len(self.sequences), self.sequences[0]
        heads = {n: self.heads(x).contiguous() for n, x in self.rows.items()}
        sums = {n: x.view(HEADS, count, length).transpose(0, 1).contiguous() for n, x in
                (("lse", self.lse), ("delta", self.delta))}  # fmt: skip
        results = {n: x.view(count, length, HEADS, WIDTH) for n, x in self.results.items()}
        given = {**heads, **sums, **results, "scale": SCALE}
        delta = {"do": heads["do"], "o": self.heads(self.o).contiguous(), "delta": sums["delta"]}
        return (("varlen_delta", delta), ("varlen_dense_dq", _of(given, "dk", "dv")),
                ("varlen_dense_dkv", _of(given, "dq")))  # fmt: skip

    def heads(self, rows: Any) -> Any:
        """Sequences of one length with heads before tokens."""
        return rows.view(len(self.sequences), -1, HEADS, WIDTH).transpose(1, 2)

    def _delta(self, turned: Callable[[Any], Any], delta: Any) -> Mapping[str, Any]:
        return {"do": turned(self.rows["do"]), "o": turned(self.o), "delta": delta}

    def theirs(self) -> Callable[[], Any]:
        """PyTorch's varlen_attn."""
        from torch.nn.attention.varlen import varlen_attn

        flag = "is_causal" in inspect.signature(varlen_attn).parameters
        options: dict[str, Any] = {"is_causal": True} if flag else {"window_size": (-1, 0)}
        leaves, longest = [self.rows[n].clone().requires_grad_() for n in "qkv"], max(self.sequences)
        o = varlen_attn(*leaves, self.offsets, self.offsets, longest, longest, **options)
        return lambda: self.torch.autograd.grad(o, leaves, self.rows["do"], retain_graph=True)

    def exact(self) -> Any:
        """The gradients in float64."""
        leaves, outputs = [self.rows[n].double().requires_grad_() for n in "qkv"], []
        for low, high in pairwise(self.offsets.tolist()):
            q, k, v = (x[low:high].transpose(0, 1) for x in leaves)
            seen = self.torch.ones(high - low, high - low, dtype=self.torch.bool, device="cuda").tril()
            x = (q @ k.transpose(1, 2) * SCALE).masked_fill(~seen, -self.torch.inf)
            outputs.append((x.softmax(-1) @ v).transpose(0, 1))
        return self.torch.autograd.grad(self.torch.cat(outputs), leaves, self.rows["do"].double())


def others(calls: Calls) -> Iterator[tuple[str, tuple[str, Mapping[str, Any]]]]:
    """Other artifacts of the same kernels, of other tiles say: files ``NAME@LABEL.twb`` beside theirs."""
    for name, given in calls:
        for file in sorted(ARTIFACTS.glob(f"{name}@*.twb")):
            yield file.stem.removeprefix("varlen_"), (file.stem, given)


def beside(torch: Any, case: Case, found: Mapping[str, Any], launch: Callable[[], None]) -> float:
    """The greatest relative difference of what a launch writes from ``found``."""
    for x in case.results.values():
        x.fill_(torch.nan)
    launch()
    written = [n for n, x in case.results.items() if not bool(x.isnan().all())]
    return max((relative_error(case.results[n], found[n]) for n in written), default=float("inf"))


def _of(given: Mapping[str, Any], *others: str) -> Mapping[str, Any]:
    return {name: value for name, value in given.items() if name not in others}


def run(args: Any) -> None:
    """Errors of the small case, then times."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for name, sequences in lengths().items():
        if args.only not in name:
            continue
        case = Case(torch, sequences)
        variants = {"ours": launched(case.ours()), "varlen_attn": case.theirs()}
        variants["ours"]()
        found = {n: x.clone() for n, x in case.results.items()}
        variants["ours"]()
        row: dict[str, Any] = {"case": name, "rows": sum(sequences)}
        row["deterministic"] = all(torch.equal(found[n], case.results[n]) for n in ROWS)
        if name == "checked":
            exact, theirs = case.exact(), variants["varlen_attn"]()
            made = {"ours": [found[n] for n in ROWS], "varlen_attn": theirs}
            row["error"] = {n: [relative_error(*x) for x in zip(g, exact, strict=True)] for n, g in made.items()}
        else:
            if len(set(sequences)) == 1:
                variants["dense"] = launched(case.dense())
            parts = {n: launched([call]) for n, call in zip(("delta", "dq", "dk, dv"), case.ours(), strict=True)}
            parts |= {name: launched([call]) for name, call in others(case.ours())}
            row["differs"] = {n: beside(torch, case, found, parts[n]) for n in parts if "@" in n}
            if "dense" in variants:
                parts |= {f"dense {n}": launched([call]) for n, call in
                          zip(("dq", "dk, dv"), case.dense()[1:], strict=True)}  # fmt: skip
            seconds = timer.medians({**variants, **parts})
            flops = 5 * HEADS * WIDTH * sum(n * n for n in sequences)
            row["microseconds"] = {n: round(s * 1e6, 1) for n, s in seconds.items()}
            row["tflops"] = round(flops / seconds["ours"] * 1e-12, 1)
            row["of"] = {n: round(seconds[n] / seconds["ours"], 3) for n in variants if n != "ours"}
        rows.append(row)
        print(row, flush=True)
        write(document(torch, conditions=timer.conditions(), rows=rows), args.json)
        del case, variants, found
        torch.cuda.empty_cache()


if __name__ == "__main__":
    arguments = parser(__doc__, "cases whose names contain this", rounds=9).parse_args()
    build(arguments.only) if arguments.what == "build" else run(arguments)

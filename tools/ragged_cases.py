"""Random attention over packed sequences, its gradients, and products of groups, beside float64.

    python tools/ragged_cases.py --cases 0:220                 # in the simulator
    python tools/ragged_cases.py --cases 0:3000 --device cuda  # compiled as they are asked for

Lengths are 0 and 1 more often than they should be, and those at tiles' ends. Tensors lie in memory of NaN, rows of no
sequence are NaN, results among guards that must stay as they are; no operand may change. A case names its seed, and
``seed % len(KINDS)`` its kind, so that ``--cases 7:3000:26`` compiles the kernels of one kind only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tilewright as tw
from tilewright import ops

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import grouped_matmul
import ragged

GUARD = 1024
BF16, F16, E4M3, I32, I64 = torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int32, torch.int64
TOLERANCE = {BF16: 2e-2, F16: 4e-3}
"""Of results, in units of 1 + the greatest element that is wanted."""


@dataclass(frozen=True)
class Attention:
    """Kernels that one kind of cases runs: heads of ``width``, ``group`` of them to a head of keys."""

    width: int
    dtype: Any
    group: int = 1
    index: Any = I32
    causal: bool = False
    sinks: bool = False
    used: str = ""
    """Of the rows of a sequence its first or its last are used: "first", "last"; all of them without."""
    align_rows: int = 4
    """Results have multiples of so many rows: each other remainder of four is a class of its own."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def packed(self) -> bool:
        return "packed" in self.options

    @property
    def differentiated(self) -> bool:
        return self.width <= 128


@dataclass(frozen=True)
class Groups:
    """Products of groups of rows, or over them (``along_k``). ``orders``: which of the operands lie transposed.
    Rows begin at multiples of ``align`` elements."""

    dtype: Any
    along_k: bool = False
    orders: tuple[bool, bool] = (False, False)
    align: int = 16
    index: Any = I32


KINDS: tuple[Attention | Groups, ...] = (
    Attention(64, BF16, causal=True),
    Attention(64, F16, group=4, align_rows=1),
    Attention(128, BF16, group=2, causal=True, options={"window": 20}),
    Attention(128, BF16, causal=True, sinks=True, options={"softcap": 3.0}),
    Attention(128, F16, group=8, causal=True, index=I64),
    Attention(256, BF16, causal=True),
    Attention(64, BF16, causal=True, options={"packed": True}),
    Attention(128, F16, causal=True, sinks=True, options={"packed": True, "window": 33}),
    Attention(128, BF16, sinks=True, index=I64),
    Attention(64, BF16, group=3, causal=True, options={"window": 1}),
    Attention(256, F16, group=4, causal=True, options={"window": 64, "softcap": 5.0}),
    Attention(64, F16, group=2, options={"packed": True}),
    Attention(64, BF16, group=2, causal=True, used="first"),
    Attention(128, BF16, causal=True, sinks=True, used="last"),
    Attention(64, F16, used="last", index=I64),
    Attention(128, F16, group=4, causal=True, used="first", options={"window": 40}),
    Groups(BF16),
    Groups(F16, orders=(False, True)),
    Groups(BF16, align=1),
    Groups(E4M3),
    Groups(BF16, orders=(True, False)),
    Groups(F16, align=2, index=I64),
    Groups(BF16, along_k=True),
    Groups(F16, along_k=True, index=I64),
    Groups(BF16, along_k=True, align=1),
    Groups(BF16, along_k=True, orders=(True, True)),
)


# -- memory -----------------------------------------------------------------------------------------------------------
def amid(values: Any, order: tuple[int, ...], pitch: int, device: str) -> Any:
    """``values`` in memory of NaN: axes from the slowest to the fastest in ``order``, of which the last but one has
    steps of ``pitch`` elements."""
    shape = [values.shape[axis] for axis in order]
    whole = torch.full((GUARD + int(np.prod(shape[:-1])) * pitch + GUARD,), 1.0, dtype=torch.float32)
    whole = (whole * torch.nan).to(values.dtype).to(device)
    inner = whole[GUARD:-GUARD].view(*shape[:-1], pitch)[..., : shape[-1]]
    inner.copy_(values.permute(order).to(device))
    return inner.permute(tuple(int(i) for i in np.argsort(order)))


def ring(shape: tuple[int, ...], dtype: Any, device: str) -> tuple[Any, Any]:
    """(a result of NaN, the memory around it, of 7)."""
    whole = torch.full((int(np.prod(shape)) + 2 * GUARD,), 7.0, dtype=dtype, device=device)
    inner = whole[GUARD:-GUARD].view(shape)
    inner.fill_(torch.nan)
    return inner, whole


def bytes_of(tensor: Any) -> Any:
    """The memory of a tensor and around it."""
    return torch.as_strided(tensor, (tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0).view(
        torch.uint8
    )


def lengths(random: np.random.Generator, count: int, most: int) -> list[int]:
    """Of sequences or groups, ``most`` rows in all."""
    found: list[int] = []
    for _ in range(count):
        drawn = int(random.choice([0, 0, 1, 1, 2, 63, 64, 65, 127, 128, 129, *random.integers(0, 300, 6)]))
        found.append(min(drawn, most - sum(found)))
    return found


def offsets(parts: list[int], index: Any) -> Any:
    """Where they begin and end."""
    return torch.tensor([0, *accumulate(parts)], dtype=index)


def told(name: str, found: Any, wanted: Any, tolerance: float) -> list[str]:
    """What is wrong with a result."""
    off = (found.double() - wanted).abs()
    limit = tolerance * (1 + float(wanted.abs().max() if wanted.numel() else 0))
    return [] if bool((off <= limit).all()) else [f"{name} off by {float(off.max()):.3g}, of {limit:.3g}"]


# -- attention --------------------------------------------------------------------------------------------------------
def attended(kind: Attention, q: Any, k: Any, v: Any, bounds: tuple[list[int], list[int]], sinks: Any) -> Any:
    """(results, logarithms of sums) in the dtype of ``q``, sequence by sequence."""
    ys, sums = list[Any](), list[Any]()
    for (first, last), (begin, end) in zip(*map(pairwise, bounds), strict=True):
        ahead = (end - begin) - (last - first)
        s, t = torch.arange(last - first, device=q.device)[:, None], torch.arange(end - begin, device=q.device)
        seen = (t <= s + ahead) if kind.causal else torch.ones_like(t + s, dtype=torch.bool)
        if (window := kind.options.get("window")) is not None:
            seen = seen & (t > s + ahead - window)
        key, value = (x[begin:end].repeat_interleave(kind.group, 1) for x in (k, v))
        x = torch.einsum("shd,thd->hst", q[first:last], key) * kind.width**-0.5
        if (softcap := kind.options.get("softcap")) is not None:
            x = softcap * torch.tanh(x / softcap)
        weights = torch.where(seen, x, -60.0).exp() * seen
        total = weights.sum(-1)
        if sinks is not None:
            total = total + sinks.exp()[:, None]
        ys.append(torch.einsum("hst,thd->shd", weights / torch.where(total > 0, total, 1.0)[..., None], value))
        sums.append(total.log())
    return torch.cat(ys), torch.cat(sums, 1)


def attention(kind: Attention, random: np.random.Generator, device: str) -> str:
    """As ``problem``."""
    count, groups = int(random.integers(1, 9)), int(random.integers(1, 3))
    queries = lengths(random, count, 500)
    together = kind.packed or random.random() < 0.5
    keys = queries if together else lengths(random, count, 500)
    rows = [rows_of(random, parts, kind.align_rows) for parts in (queries, keys)]
    if kind.packed:
        rows[1] = rows[0]
    heads = groups * kind.group
    used, spans = list[Any](), list[list[tuple[int, int]]]()
    for parts in (queries, keys):
        lengths_used = [int(random.integers(0, n + 1)) for n in parts] if kind.used else parts
        used.append(torch.tensor(lengths_used, dtype=kind.index, device=device) if kind.used else None)
        whole = zip(pairwise([0, *accumulate(parts)]), lengths_used, strict=True)
        spans.append([(b - n, b) if kind.used == "last" else (a, a + n) for (a, b), n in whole])
    inside = [within(of, n) for of, n in zip(spans, rows, strict=True)]
    tensors = list[Any]()
    for n, h, rest in ((rows[0], heads, ~inside[0]), *[(rows[1], groups, ~inside[1])] * 2):
        values = torch.from_numpy(random.standard_normal((n, h, kind.width))).to(kind.dtype)
        values[rest] = torch.nan
        order = (0, 1, 2) if random.random() < 0.6 else (1, 0, 2)
        tensors.append(amid(values, order, kind.width + int(random.choice([0, 0, 8, 64])), device))
    cu_q = offsets(queries, kind.index).to(device)
    cu_k = cu_q if together else offsets(keys, kind.index).to(device)
    sinks = torch.linspace(-2, 2, heads, device=device) if kind.sinks else None
    given = {"causal": kind.causal, "sinks": sinks, **kind.options}
    if kind.used:
        given |= {"seqused_q": used[0], "seqused_k": used[1], "left_padded": kind.used == "last"}
    before = [bytes_of(x).clone() for x in tensors]
    y, lse = ops.varlen_attention_with_lse(*tensors, cu_q, cu_k, **given)
    out, around = ring(tuple(y.shape), y.dtype, device)
    ops.varlen_attention(*tensors, cu_q, cu_k, **given, out=out)

    of_queries, of_keys = (x.to(device) for x in inside)
    bounds = [[0, *accumulate(b - a for a, b in of)] for of in spans]
    leaves = [x[at].double().requires_grad_() for x, at in zip(tensors, (of_queries, of_keys, of_keys), strict=True)]
    wide_sinks = None if sinks is None else sinks.double().requires_grad_()
    wanted, sums = attended(kind, *leaves, (bounds[0], bounds[1]), wide_sinks)
    wrong = told("y", y[of_queries], wanted.detach(), TOLERANCE[kind.dtype])
    if not torch.equal(y[of_queries], out[of_queries]):
        wrong.append("out= differs")
    if not kind.packed and y[~of_queries].any():
        wrong.append("rows that are not used are not 0")
    if not torch.allclose(lse[:, of_queries].double(), sums.detach(), rtol=0, atol=1e-2):
        wrong.append("other logarithms")
    if not ((around[:GUARD] == 7).all() and (around[-GUARD:] == 7).all()):
        wrong.append("wrote around the result")
    if kind.differentiated and len(leaves[0]) and len(leaves[1]):
        places = of_queries, of_keys, of_keys
        wrong += gradients(
            kind, tensors, (cu_q, cu_k), given, leaves, places, wanted, sums.detach(), wide_sinks, random
        )
    if any(not torch.equal(bytes_of(x), old) for x, old in zip(tensors, before, strict=True)):
        wrong.append("wrote into an operand")
    return "; ".join(wrong)


def rows_of(random: np.random.Generator, parts: list[int], align: int) -> int:
    """Rows of a tensor with these sequences, and some of no sequence behind them."""
    rows = sum(parts) + (int(random.choice([0, 3])) if sum(parts) else 5)
    return -(-rows // align) * align


def within(spans: list[tuple[int, int]], rows: int) -> Any:
    """Which rows are used."""
    found = torch.zeros(rows, dtype=torch.bool)
    for a, b in spans:
        found[a:b] = True
    return found


def gradients(
    kind: Attention, tensors: list[Any], cu: tuple[Any, Any], given: dict[str, Any], wide: list[Any],
    places: tuple[Any, Any, Any], wanted: Any, sums: Any, wide_sinks: Any, random: np.random.Generator,
) -> list[str]:  # fmt: skip
    """What is wrong with those of a case."""
    do = torch.from_numpy(random.standard_normal((len(tensors[0]), *tensors[0].shape[1:]))).to(kind.dtype)
    do = do.to(tensors[0].device)
    do[~places[0]] = torch.nan
    own = [x.detach().requires_grad_() for x in tensors]
    sinks = None if wide_sinks is None else given["sinks"].clone().requires_grad_()
    y = ops.varlen_attention(*own, *cu, **given | {"sinks": sinks})
    y.backward(do)
    wanted.backward(do[places[0]].double())
    wrong = list[str]()
    for name, leaf, exact, at in zip(("dq", "dk", "dv"), own, wide, places, strict=True):
        wrong += told(name, leaf.grad[at], exact.grad, TOLERANCE[kind.dtype])
        if leaf.grad[~at].any():
            wrong.append(f"{name} of rows that are not used is not 0")
    if sinks is not None:
        # a sum over all rows of what is small in each: of the results as they are rounded, whose errors add up in it
        delta = (do[places[0]].double() * y.detach()[places[0]].double()).sum(-1)
        exact = -((wide_sinks.detach()[:, None] - sums).exp() * delta.T).sum(1)
        wrong += told("dsinks", sinks.grad, exact, TOLERANCE[kind.dtype] / 4)
    return wrong


# -- products of groups -----------------------------------------------------------------------------------------------
def products(kind: Groups, random: np.random.Generator, device: str) -> str:
    """As ``problem``."""
    many = random.random() < 0.15
    count = int(random.integers(40, 300)) if many else int(random.integers(1, 9))
    parts = [int(x) for x in random.integers(0, 4, count)] if many else lengths(random, count, 700)
    rows = sum(parts) + (int(random.choice([0, 0, 7])) if sum(parts) else 7)
    n, k = (8, 16) if many else (int(random.choice([1, 2, 3, 8, 9])) * 16, int(random.choice([1, 2, 4, 5, 9])) * 16)
    if kind.align < 16:
        n, k = (max(1, x - int(random.choice([0, 1, 2, 5]))) * kind.align for x in (n, k))
    exact = kind.dtype if kind.dtype is E4M3 else torch.float32

    def drawn(shape: tuple[int, ...], transposed: bool) -> Any:
        values = torch.from_numpy(random.standard_normal(shape)).to(exact).to(kind.dtype)
        order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2) if transposed else tuple(range(len(shape)))
        fastest = shape[order[-1]]
        pitch = -(-fastest // kind.align) * kind.align + kind.align * int(random.choice([0, 0, 3]))
        return amid(values, order, pitch, device)

    bounds = offsets(parts, kind.index).to(device)
    out_type = BF16 if kind.dtype is E4M3 else kind.dtype
    spans = [*pairwise([0, *accumulate(parts)])]
    if kind.along_k:
        x, y = drawn((rows, k), kind.orders[0]), drawn((rows, n), kind.orders[1])
        x[sum(parts) :], y[sum(parts) :] = torch.nan, torch.nan
        operands, (out, around) = (x, y), ring((count, k, n), out_type, device)
        wanted = torch.stack([x[a:b].double().T @ y[a:b].double() for a, b in spans])
    else:
        a, b = drawn((rows, k), kind.orders[0]), drawn((count, n, k), kind.orders[1])
        operands, (out, around) = (a, b), ring((rows, n), out_type, device)
        wanted = torch.zeros((rows, n), dtype=torch.float64, device=device)
        for g, (low, high) in enumerate(spans):
            wanted[low:high] = a[low:high].double() @ b[g].double().T
    before = [bytes_of(x).clone() for x in operands]
    kernel = ragged.grouped_weight_gradient if kind.along_k else grouped_matmul.grouped_matmul
    kernel(bounds, *operands, out)
    wrong = told("the product", out, wanted, TOLERANCE[out_type])
    if not ((around[:GUARD] == 7).all() and (around[-GUARD:] == 7).all()):
        wrong.append("wrote around the result")
    if any(not torch.equal(bytes_of(x), old) for x, old in zip(operands, before, strict=True)):
        wrong.append("wrote into an operand")
    return "; ".join(wrong)


def problem(seed: int, device: str) -> str:
    """What is wrong with one case; empty where nothing is."""
    kind, random = KINDS[seed % len(KINDS)], np.random.default_rng(seed)
    return attention(kind, random, device) if isinstance(kind, Attention) else products(kind, random, device)


def main() -> None:
    """Run the cases, print those that disagree, and exit with 1 if one does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="0:110", help="seeds, first:stop or first:stop:step")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after so long")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    began, done, large, wrong = time.perf_counter(), 0, 0, dict[int, str]()
    for seed in range(*map(int, args.cases.split(":"))):
        if time.perf_counter() - began > args.seconds:
            break
        try:
            with ops.simulated():
                found = problem(seed, args.device)
        except tw.TilewrightError as error:
            if error.code != "SIM001":
                raise
            large += 1
            continue
        tw.check()
        done += 1
        if found:
            wrong[seed] = found
            print(f"case {seed} ({KINDS[seed % len(KINDS)]}): {found}", flush=True)
    seconds = round(time.perf_counter() - began, 1)
    print(f"{done} cases of {args.cases} on {args.device}: {len(wrong)} disagree, {large} too large, {seconds} s")
    if args.json:
        document = {"cases": args.cases, "run": done, "too_large": large, "disagree": wrong}
        Path(args.json).write_text(json.dumps(document | {"device": args.device, "seconds": seconds}))
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()

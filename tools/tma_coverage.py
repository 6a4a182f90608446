"""Share of tensor accesses on tensor copies over workload shapes: ``python tools/tma_coverage.py SHAPES.json``.

SHAPES holds operators with their ``dims`` and ``shapes``. Every operand of every shape is asked for with a common tile;
an access is *direct* if its map is legal as it stands, *repaired* if the cheapest repair that ends in a map beats every
copy by threads, *threads* otherwise.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product as product_of
from pathlib import Path
from typing import Any

from tilewright.base.dtypes import DType, bf16, e4m3, f16, f32
from tilewright.base.verdict import Legal, Repairs
from tilewright.hw.tensormap import Direction
from tilewright.legal.repairs import legalise
from tilewright.legal.tma import TileAccess

Operand = tuple[str, TileAccess]
JAGGED_BYTES = 8e9
"""Dense size up to which the benchmark keeps a jagged shape."""


def rows(name: str, dtype: DType, shape: tuple[int, ...], tile: tuple[int | None, ...], store: bool = False) -> Operand:
    """A dense row-major operand."""
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    direction = Direction.STORE if store else Direction.LOAD
    return name, TileAccess(dtype, shape, tuple(strides), 0, tile, direction)


def product(dtype: DType, m: int, n: int, k: int) -> Iterator[Operand]:
    """Operands of one matrix product."""
    yield rows("a", dtype, (m, k), (128, 128 // dtype.bytes))
    yield rows("b", dtype, (n, k), (128, 128 // dtype.bytes))
    yield rows("c", bf16, (m, n), (128, 128), store=True)


def attention(b: int, h: int, s: int, t: int, d: int, group: int = 1, dtype: DType = bf16) -> Iterator[Operand]:
    """Operands of one attention call."""
    yield rows("q", dtype, (b, h, s, d), (None, None, 128, d))
    yield rows("k", dtype, (b, h // group, t, d), (None, None, 128, d))
    yield rows("v", dtype, (b, h // group, t, d), (None, None, 128, d))
    yield rows("o", bf16, (b, h, s, d), (None, None, 128, d), store=True)


def jagged(shape: list[float]) -> Iterator[Operand]:
    """Values of a jagged batch: all rows of all sequences, M columns."""
    batch, m, longest, sparsity = int(shape[0]), int(shape[1]), int(shape[2]), shape[3]
    total = max(1, int(batch * longest * (1 - sparsity)))
    columns = m if m <= 128 else 128
    yield rows("values", f32, (total, m), (64, columns))


def embedding(b: int, t: int, d: int, v: int) -> Iterator[Operand]:
    """One row of the table a token, and the output."""
    yield rows("table", f32, (v, d), (1, 256))
    yield rows("out", f32, (b * t, d), (64, 256 // 2), store=True)


OPERATORS: dict[str, Callable[[list[int]], Iterator[Operand]]] = {
    "gemm": lambda s: product(f16, s[0], s[1], s[2]),
    "addmm": lambda s: product(bf16, s[0], s[2], s[1]),
    "fp8_gemm": lambda s: product(e4m3, s[0], s[1], s[2]),
    "grouped_gemm": lambda s: product(f16, s[1], s[2], s[3]),
    "flash_attention": lambda s: attention(*s),
    "blackwell_attentions": lambda s: attention(*s),
    "fp8_attention": lambda s: attention(s[0], s[1], s[2], s[2], s[3], dtype=e4m3),
    "flex_attention": lambda s: attention(s[0], s[1], s[3], s[4], s[5], s[1] // s[2]),
    "decoding_attention": lambda s: attention(s[0], s[4], s[1], s[3], s[6], s[4] // s[5]),
    "template_attention": lambda s: attention(s[0], s[1], s[2], s[2], s[3], dtype=f16),
    "jagged_sum": lambda s: jagged([float(x) for x in s]),
    "jagged_mean": lambda s: jagged([float(x) for x in s]),
    "jagged_softmax": lambda s: jagged([float(x) for x in s]),
    "jagged_layer_norm": lambda s: jagged([float(x) for x in s]),
    "embedding": lambda s: embedding(*s),
}


def shapes_of(entry: dict[str, Any]) -> Iterator[list[Any]]:
    """The listed shapes; of a jagged operator the whole product that its ``dims`` describe."""
    if "B_vals" not in entry:
        yield from entry.get("shapes", ())
        return
    for shape in product_of(entry["B_vals"], entry["M_vals"], entry["max_seqlen"], entry["sparsity"]):
        if shape[0] * shape[1] * shape[2] * 4 < JAGGED_BYTES:
            yield list(shape)


@cache
def outcome(access: TileAccess) -> str:
    """How the access reaches shared memory."""
    answer = legalise(access)
    if isinstance(answer, Legal):
        return "direct"
    if isinstance(answer, Repairs):
        best = answer.repairs[0].fields
        return f"repaired: {best.change.name.lower()}" if best.plan is not None else "threads"
    return "refused"


def main() -> None:
    """Print the shares by operator and in all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", type=Path)
    args = parser.parse_args()
    listed = json.loads(args.shapes.read_text())
    total: Counter[str] = Counter()
    for name, operands in OPERATORS.items():
        counts: Counter[str] = Counter()
        for shape in shapes_of(listed.get(name, {})):
            counts.update(outcome(access) for _, access in operands(shape))
        total += counts
        print(f"{name:22} {sum(counts.values()):6} accesses  " + "  ".join(f"{k} {n}" for k, n in counts.most_common()))
    every = max(sum(total.values()), 1)
    print(f"{'all':22} {every:6} accesses  " + "  ".join(f"{k} {n / every:.1%}" for k, n in total.most_common()))


if __name__ == "__main__":
    main()

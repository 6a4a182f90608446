"""Tensor accesses of common operators, by shape: which tiles of which tensors a kernel asks for, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product as product_of
from typing import Any

from tilewright.base.dtypes import DType, bf16, e4m3, f16, f32, i8
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.legal.tma import TileAccess

JAGGED_BYTES = 8e9
"""Dense size up to which the benchmark keeps a jagged shape."""


@dataclass(frozen=True)
class Operand:
    """One tensor of a call; ``reuse`` says how often each of its tiles is asked for."""

    name: str
    access: TileAccess
    reuse: int = 1


OPERAND_SWIZZLES = (Swizzle.B128, Swizzle.B64, Swizzle.B32)
"""What the tensor cores read without bank conflicts."""


def operand(name: str, dtype: DType, shape: tuple[int, ...], tile: tuple[int | None, ...], reuse: int = 1) -> Operand:
    """A dense row-major operand of a matrix product."""
    plain = rows(name, dtype, shape, tile, reuse)
    return replace(plain, access=replace(plain.access, swizzles=OPERAND_SWIZZLES))


def rows(
    name: str, dtype: DType, shape: tuple[int, ...], tile: tuple[int | None, ...], reuse: int = 1, store: bool = False
) -> Operand:
    """A dense row-major tensor."""
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    direction = Direction.STORE if store else Direction.LOAD
    return Operand(name, TileAccess(dtype, shape, tuple(strides), 0, tile, direction), reuse)


def product(dtype: DType, m: int, n: int, k: int, b_dtype: DType | None = None) -> Iterator[Operand]:
    """Operands of one matrix product, both K-major."""
    other = b_dtype or dtype
    depth = 128 // max(dtype.bytes, other.bytes)
    yield operand("a", dtype, (m, k), (128, depth), -(-n // 128))
    yield operand("b", other, (n, k), (128, depth), -(-m // 128))
    yield rows("c", bf16, (m, n), (128, 128), store=True)


def attention(b: int, h: int, s: int, t: int, d: int, group: int = 1, dtype: DType = bf16) -> Iterator[Operand]:
    """Operands of one attention call."""
    again = -(-s // 128) * group
    yield operand("q", dtype, (b, h, s, d), (None, None, 128, d))
    yield operand("k", dtype, (b, h // group, t, d), (None, None, 128, d), again)
    yield operand("v", dtype, (b, h // group, t, d), (None, None, 128, d), again)
    yield rows("o", bf16, (b, h, s, d), (None, None, 128, d), store=True)


def packed_attention(length: int, heads: int, longest: int, q: int, v: int) -> Iterator[Operand]:
    """Query, key and value of a jagged batch, packed along the last axis of one tensor, and the output."""
    width = 2 * q + v
    again = -(-longest // 128)
    for name, extent, reuse in (("q", q, 1), ("k", q, again), ("v", v, again)):
        strides = (heads * width, width, 1)
        access = TileAccess(bf16, (length, heads, extent), strides, 0, (128, None, extent), swizzles=OPERAND_SWIZZLES)
        yield Operand(name, access, reuse)
    yield rows("o", bf16, (length, heads, v), (128, None, v), store=True)


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
    "fp8_gemm_rowwise": lambda s: product(e4m3, s[0], s[1], s[2]),
    "fp8_gemm_blockwise": lambda s: product(e4m3, s[0], s[1], s[2]),
    "fp8_fused_quant_gemm_rowwise": lambda s: product(bf16, s[0], s[1], s[2], e4m3),
    "fp8_gemm_rowwise_grouped": lambda s: product(e4m3, s[1], s[2], s[3]),
    "int4_gemm": lambda s: product(bf16, s[0] * s[1], s[2], s[3] // 2, i8),
    "mixed_gemm": lambda s: product(bf16, s[0], s[1], s[2], i8),
    "bf16xint16_gemm": lambda s: product(bf16, s[0], s[1], s[2]),
    "grouped_gemm": lambda s: product(f16, s[1], s[2], s[3]),
    "flash_attention": lambda s: attention(*s),
    "blackwell_attentions": lambda s: attention(*s),
    "fp8_attention": lambda s: attention(s[0], s[1], s[2], s[2], s[3], dtype=e4m3),
    "flex_attention": lambda s: attention(s[0], s[1], s[3], s[4], s[5], s[1] // s[2]),
    "decoding_attention": lambda s: attention(s[0], s[4], s[1], s[3], s[6], s[4] // s[5]),
    "template_attention": lambda s: attention(s[0], s[1], s[2], s[2], s[3], dtype=f16),
    "ragged_attention": lambda s: packed_attention(s[0] * s[2] // 2, s[1], s[2], s[3], s[4]),
    "gdpa": lambda s: packed_attention(s[0] * s[1] // 2, s[3], s[1], s[2] // s[3], s[2] // s[3]),
    "jagged_sum": lambda s: jagged([float(x) for x in s]),
    "jagged_mean": lambda s: jagged([float(x) for x in s]),
    "jagged_softmax": lambda s: jagged([float(x) for x in s]),
    "jagged_layer_norm": lambda s: jagged([float(x) for x in s]),
    "embedding": lambda s: embedding(*s),
}
"""Operators with matrix products, attention, jagged batches and embeddings, over the shapes as they are listed."""

DTYPES = {"tf32": f32, "bf16": bf16, "f16": f16}
VARIANTS: dict[tuple[str, str], Callable[[list[Any]], Iterator[Operand]]] = {
    ("gemm", "splitk"): lambda s: product(f16, *s),
    ("gemm", "llama_MxNxK (bs x (k,n))"): lambda s: product(f16, *s),
    ("gemm", "run_config (odd shapes) [M,N,K,precision]"): lambda s: product(DTYPES[s[3]], *s[:3]),
    ("addmm", "large_k [M,K,N]"): lambda s: product(bf16, s[0], s[2], s[1]),
    ("flash_attention", "llama_additional [B,H,S,D]"): lambda s: attention(s[0], s[1], s[2], s[2], s[3]),
    ("flash_attention", "ragged_shapes [B,H,S,D]"): lambda s: attention(s[0], s[1], s[2], s[2], s[3]),
    ("blackwell_attentions", "FA3_PAPER_SHAPES"): lambda s: attention(*s),
}
"""Further shapes, by operator and list."""


def workloads(listed: dict[str, Any]) -> Iterator[tuple[str, Operand]]:
    """Every operand of every listed shape, with the operator's name."""
    for name, operands in OPERATORS.items():
        for shape in shapes_of(listed.get(name, {})):
            yield from ((name, operand) for operand in operands(shape))
    for (name, variant), operands in VARIANTS.items():
        for shape in listed.get(name, {}).get("variants", {}).get(variant, ()):
            yield from ((f"{name}, {variant.split()[0]}", operand) for operand in operands(shape))


def shapes_of(entry: dict[str, Any]) -> Iterator[list[Any]]:
    """The listed shapes; of a jagged operator the whole product that its ``dims`` describe."""
    if "B_vals" not in entry:
        yield from entry.get("shapes") or ()
        return
    for shape in product_of(entry["B_vals"], entry["M_vals"], entry["max_seqlen"], entry["sparsity"]):
        if shape[0] * shape[1] * shape[2] * 4 < JAGGED_BYTES:
            yield list(shape)

"""Warp roles, tensor copies and wgmma: a product that is right under any interleaving, then wrong in one place."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr

from support.pipeline import A_BYTES, B_BYTES, matmul
from support.transport import kernel, tensor
from tilewright import simulate
from tilewright.base.dtypes import bf16, f32
from tilewright.base.expr import TRUE, Const, Expr, sym
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import Swizzle
from tilewright.tile.attributes import DTypeAttr, ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import OperandNumbers, TmaAttr, WgmmaOperandAttr

pytestmark = pytest.mark.sample(4)

BF16 = ml_dtypes.bfloat16
TID, R = sym("$tid"), sym("$r")


def _operands(m: int, n: int, k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    draw = lambda *shape: rng.integers(-4, 5, shape).astype(BF16)  # noqa: E731
    return {"a": draw(m, k), "b": draw(n, k), "c": np.full((m, n), np.nan, BF16)}


def _product(tensors: dict[str, np.ndarray]) -> np.ndarray:
    return (tensors["a"].astype(np.float32) @ tensors["b"].astype(np.float32).T).astype(BF16)


@pytest.mark.parametrize("shape", [(128, 64, 64), (256, 128, 192), (200, 104, 136), (1, 8, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_product_under_any_interleaving(shape: tuple[int, int, int], seed: int) -> None:
    tensors = _operands(*shape)
    report = simulate.run(matmul(), tensors, seed=seed, grid_size=1 + seed)
    assert (tensors["c"] == _product(tensors)).all()
    assert report.programs == -(-shape[0] // 128) * -(-shape[1] // 64)


def _fails(code: str | tuple[str, ...], op: t.Kernel) -> str:
    """Every interleaving is refused with the code."""
    for seed in range(4):
        with pytest.raises(TilewrightError) as caught:
            simulate.run(op, _operands(256, 128, 256), seed=seed, grid_size=1)
        assert caught.value.code in code
    return str(caught.value)


@pytest.mark.parametrize(
    ("without", "codes", "found"),
    [
        ("init fence", "SIM017", "full[0]"),
        ("barrier after init", "SIM015", "initialised by thread"),
        ("wait for empty", ("SIM005", "SIM015"), ""),
        ("wait for full", ("SIM004", "SIM005"), "tiles"),
        ("wgmma fence", "SIM017", "registers of 'acc'"),
        ("wgmma wait", ("SIM005", "SIM016"), ""),
        ("store read", "SIM005", "a tensor store"),
        ("reuse barrier", "SIM005", "a tensor store"),
        ("proxy fence", "SIM017", "'c_tiles'"),
        ("store barrier", "SIM005", "'c_tiles'"),
        ("drain", "SIM018", "tensor stores"),
    ],
)
def test_every_wait_barrier_and_fence_is_needed(without: str, codes: str | tuple[str, ...], found: str) -> None:
    assert found in _fails(codes, matmul([without]))


def test_counts_and_bytes_must_be_what_arrives() -> None:
    _fails(("SIM004", "SIM005", "SIM014"), matmul(slot_bytes=A_BYTES))
    assert "full[0] in phase 0" in _fails("SIM014", matmul(slot_bytes=A_BYTES + B_BYTES + 16))
    assert "parity" in _fails("SIM014", matmul(empty_count=3))
    _fails(("SIM005", "SIM014"), matmul(empty_count=1))


def test_descriptors_stay_inside_the_tile_they_declare() -> None:
    op = matmul()
    for product in [o for o in op.walk() if isinstance(o, a.Wgmma)]:
        numbers = product.a_operand.data
        wider = replace(numbers, stride_bytes=numbers.stride_bytes + 64)
        product.attributes["a_operand"] = WgmmaOperandAttr(wider)
    assert "a descriptor that reads" in _fails("SIM019", op)


def test_box_bytes_are_the_box() -> None:
    op = matmul()
    copy = next(o for o in op.walk() if isinstance(o, a.TmaLoad))
    copy.attributes["box_bytes"] = IntAttr(A_BYTES - 16)
    _fails("SIM019", op)


# -- operand layouts ------------------------------------------------------------------------------------------------
T = 8  # elements of 16 bytes


def _place(layout: int, mn: Expr, k: Expr, *, mn_major: bool, leading: int, stride: int) -> Expr:
    """Element offset of (mn, k) in the canonical layouts of PTX ISA 9.1, 9.7.15.5.1.2.1; strides in elements."""
    wide = {0: 1, 1: 8, 2: 4, 3: 2}[layout]  # 16-byte units a swizzled row has
    if mn_major:
        chunks, groups = (leading, stride) if layout else (stride, leading)
        unit, row, rest = mn // T % wide, k % 8, mn // (T * wide) * chunks + k // 8 * groups
    else:
        unit, row = k // T % wide, mn % 8
        rest = mn // 8 * stride + (Const(0) if layout else k // T * leading)
        unit = unit if layout else Const(0)
    within = (mn if mn_major else k) % T
    shift = {0: 1, 1: 1, 2: 2, 3: 4}[layout]
    swizzled = unit ^ (row // shift % wide) if layout else unit
    return rest + row * T * wide + swizzled * T + within


def _one_product(layout: int, *, a_major: int, b_major: int, registers: bool, fence: bool = True) -> t.Kernel:
    """One m64n32k16 product of operands that threads write to shared memory in a given layout."""
    n = 32
    span = {0: 8, 1: 64, 2: 32, 3: 16}[layout]  # elements of a swizzled row

    def strides(extent: int, mn_major: int) -> tuple[int, int]:
        rows = 8 * span
        if mn_major:
            chunks = -(-extent // span)
            # no swizzle: stride is between chunks of mn, leading between groups of k; swizzled: the other way round
            return (rows * chunks, rows) if layout == 0 else (2 * rows, rows)
        return (rows, 2 * rows) if layout == 0 else (T, rows)

    def operand(name: str, source, extent: int, mn_major: int, at: int):
        leading, stride = strides(extent, mn_major)
        count = extent * 16 // 128
        element = TID * count + R
        mn, k = element // 16, element % 16
        buffer = t.Registers(f"{name}_in", bf16, count)
        shared = t.Shared(name, bf16, 8192, at)
        place = _place(layout, mn, k, mn_major=bool(mn_major), leading=leading, stride=stride)
        swizzle = {0: Swizzle.NONE, 1: Swizzle.B128, 2: Swizzle.B64, 3: Swizzle.B32}[layout]
        numbers = OperandNumbers(mn_major, extent, 16, swizzle, leading * 2, stride * 2)
        ops = [
            shared,
            buffer,
            t.Load(source, buffer.buffer, [mn, k], TRUE),
            t.SharedWrite(shared.buffer, buffer.buffer, place, TRUE),
        ]
        return ops, shared.buffer, numbers

    def build(x, y, out):
        ops_a, shared_a, operand_a = operand("a", x, 64, a_major, 0)
        ops_b, shared_b, operand_b = operand("b", y, n, b_major, 16384)
        acc, held = t.Registers("acc", f32, n // 2), t.Registers("held", bf16, 8)
        lane, warp = TID % 32, TID // 32
        row = warp * 16 + lane // 4
        product = a.Wgmma(
            acc.buffer,
            held.buffer if registers else shared_a,
            shared_b,
            dtype=DTypeAttr.of(bf16),
            n=n,
            first=0,
            a_register=0,
            a_offset=Const(0),
            b_offset=Const(0),
            a_operand=None if registers else operand_a,
            b_operand=operand_b,
            a_region=Const(0),
            a_bytes=16384,
            b_region=Const(0),
            b_bytes=16384,
            scale_d=False,
        )
        return [
            *ops_a,
            *ops_b,
            acc,
            held,
            t.Load(x, held.buffer, [row + R // 2 % 2 * 8, lane % 4 * 2 + R % 2 + R // 4 * 8], TRUE),
            *([a.FenceProxyAsync()] if fence else []),
            t.Barrier(),
            a.WgmmaFence(),
            product,
            a.WgmmaCommit(),
            a.WgmmaWait(0, [acc.buffer]),
            t.Store(out, acc.buffer, [row + R // 2 % 2 * 8, R // 4 * 8 + lane % 4 * 2 + R % 2], TRUE),
        ]

    args = {
        "a": tensor("a", [Const(64), Const(16)], bf16),
        "b": tensor("b", [Const(n), Const(16)], bf16),
        "c": tensor("c", [Const(64), Const(n)]),
    }
    return kernel(args, build, threads=128)


@pytest.mark.parametrize("layout", [0, 1, 2, 3], ids=["none", "128B", "64B", "32B"])
@pytest.mark.parametrize("majors", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=["KK", "MK", "KM", "MM"])
def test_canonical_layouts_of_operands(layout: int, majors: tuple[int, int]) -> None:
    tensors = _operands(64, 32, 16)
    tensors["c"] = np.zeros((64, 32), np.float32)
    simulate.run(_one_product(layout, a_major=majors[0], b_major=majors[1], registers=False), tensors)
    assert (tensors["c"] == tensors["a"].astype(np.float32) @ tensors["b"].astype(np.float32).T).all()


def test_left_operand_in_registers() -> None:
    tensors = _operands(64, 32, 16)
    tensors["c"] = np.zeros((64, 32), np.float32)
    simulate.run(_one_product(1, a_major=0, b_major=0, registers=True), tensors)
    assert (tensors["c"] == tensors["a"].astype(np.float32) @ tensors["b"].astype(np.float32).T).all()


def test_threads_that_write_operands_fence_the_proxy() -> None:
    tensors = _operands(64, 32, 16)
    tensors["c"] = np.zeros((64, 32), np.float32)
    with pytest.raises(TilewrightError) as caught:
        simulate.run(_one_product(1, a_major=0, b_major=0, registers=False, fence=False), tensors)
    assert caught.value.code == "SIM017"


def test_registers_of_a_product_in_flight_are_untouchable() -> None:
    op = _one_product(1, a_major=0, b_major=0, registers=False)
    wait = next(o for o in op.walk() if isinstance(o, a.WgmmaWait))
    wait.detach()
    tensors = _operands(64, 32, 16)
    tensors["c"] = np.zeros((64, 32), np.float32)
    with pytest.raises(TilewrightError) as caught:
        simulate.run(op, tensors)
    assert caught.value.code == "SIM016"


def test_boxes_stay_inside_their_buffer_and_maps_inside_their_tensor() -> None:
    op = matmul()
    copy = next(o for o in op.walk() if isinstance(o, a.TmaLoad))
    copy.attributes["offset"] = ExprAttr.of(Const(2 * A_BYTES))
    _fails("SIM011", op)
    op = matmul()
    tensor_map = next(o for o in op.walk() if isinstance(o, a.TensorMap))
    numbers = replace(tensor_map.numbers, dims=(sym("K"), sym("M") + 1))
    tensor_map.attributes["descriptor"] = TmaAttr(numbers)
    tensors = _operands(100, 64, 64)
    with pytest.raises(TilewrightError) as caught:
        simulate.run(op, tensors)
    assert caught.value.code == "SIM002"

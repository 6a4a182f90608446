"""Steps of a stream that need no mask, and programs walked downwards."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from support import transport
from support.ptx_driver import run_artifact
from tilewright import simulate
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.program import traced
from tilewright.hw.target import SM90A
from tilewright.ops.kernels import attention, attention_key_gradients, attention_query_gradient, matmul
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.mask_free_steps import leading_steps
from tilewright.schedule.hopper.program_order import GROUP, LONG_GROUP, SHARERS, lengthening, program_order, shortening
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(37)


def banded(low: int, high: int | None, *, strict: bool = False) -> tw.Kernel:
    """Sums of products of rows and columns whose distance lies in a band."""

    @tw.kernel
    def kernel(a: tw.Tensor["M", 64], b: tw.Tensor["N", 64], c: tw.Tensor["N", 64], o: tw.Tensor["M", 64]):
        m = tw.grid(a.shape[0], 64)
        rows = a[m, :]
        acc = tw.zeros((m, 64), tw.f32)
        for n in tw.stream(b.shape[0], 32):
            x = tw.dot(rows, b[n, :].T)
            away = m.index[:, None] - n.index[None, :]
            x = tw.where(away > low if strict else away >= low, x, 0.0)
            if high is not None:
                x = tw.where(away <= high, x, 0.0)
            acc += tw.dot(x.to(a.dtype), c[n, :])
        o[m, :] = acc

    return kernel


def stream_of(kernel: tw.Kernel) -> tile.StreamLoop:
    return next(op for op in traced(p.request(kernel)).walk() if isinstance(op, tile.StreamLoop))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("low", [-40, 0, 7])
def test_as_many_steps_as_hold_everywhere(low: int, strict: bool) -> None:
    found = leading_steps(stream_of(banded(low, None, strict=strict)))
    assert found is not None
    for program in range(4):
        rows = np.arange(64)[:, None] + 64 * program
        apart = [rows - np.arange(32 * i, 32 * i + 32)[None, :] for i in range(12)]
        whole = [bool((x > low if strict else x >= low).all()) for x in apart]
        assert found[0].evaluate({"$p0": program}) == whole.index(False)


def test_the_far_side_of_a_band_is_always_asked() -> None:
    found = leading_steps(stream_of(banded(0, 90)))
    assert found is not None
    assert len(found[1]) == 1


@pytest.mark.parametrize(
    "candidate", [Candidate(1, stages=2), Candidate(1, stages=2, software_pipelined=True)], ids=str
)
@pytest.mark.parametrize(("low", "high"), [(0, None), (-40, None), (7, None), (0, 90)])
def test_values_near_the_diagonal(low: int, high: int | None, candidate: Candidate) -> None:
    found = p.lower(banded(low, high), candidate)
    assert not isinstance(found, Refused), found.reason
    a, b, c, o = (RNG.normal(size=(n, 64)).astype(ml_dtypes.bfloat16) for n in (130, 150, 150, 130))
    simulate.run(found.scheduled.kernel, {"a": a, "b": b, "c": c, "o": o})
    away = np.arange(130)[:, None] - np.arange(150)[None, :]
    x = a.astype(np.float64) @ b.astype(np.float64).T
    x = np.where((away >= low) & (away <= (high if high is not None else 10**6)), x, 0)
    exact = x.astype(ml_dtypes.bfloat16).astype(np.float64) @ c.astype(np.float64)
    assert np.linalg.norm(o.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


def test_masks_stay_out_of_the_steps_that_need_none() -> None:
    found = p.lower(p.attention, Candidate(1, stages=2), causal=True)
    assert not isinstance(found, Refused), found.reason
    loops = [op for op in found.scheduled.kernel.walk() if isinstance(op, t.For)]
    masked = [any(isinstance(op, tile.Select) for op in loop.walk()) for loop in loops if loop.body.block.ops]
    assert masked.count(True) == 1


def test_long_programs_come_first() -> None:
    assert lengthening(traced(p.request(p.attention, causal=True))) == "$p0"
    assert lengthening(traced(p.request(p.attention))) is None
    assert shortening(traced(p.request(attention_key_gradients(64), causal=True))) == "$p2"
    assert shortening(traced(p.request(attention_key_gradients(64)))) is None
    found = p.lower(p.attention, Candidate(1, stages=2), causal=True)
    assert not isinstance(found, Refused), found.reason
    (down,) = {op.descending for op in found.scheduled.kernel.walk() if isinstance(op, t.Programs)}
    assert down is not None
    assert down.data == "$p0"


def test_heads_are_walked_one_after_the_other_and_products_in_bands() -> None:
    def band(kernel: tw.Kernel, **options: Any) -> int | None:
        return program_order(traced(p.request(kernel, **options)), SM90A, None, loads=False).group

    assert band(attention(64)) is None
    assert band(attention_query_gradient(64)) == LONG_GROUP
    assert band(attention_key_gradients(64)) == LONG_GROUP
    assert band(matmul, bm=128, bn=128) == GROUP


def test_few_lengths_are_walked_head_by_head() -> None:
    kernel = traced(p.request(attention(128), causal=True))
    few, many = (program_order(kernel, SM90A, None, loads=False, few_lengths=each) for each in (True, False))
    assert (few.group, few.descending) == (1, many.descending)
    assert many.group == SM90A.sm_count // SHARERS


@tw.kernel
def triangular(a: tw.Tensor["B", "M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["B", "M", "N"]):
    """c = a b^T for lower triangles a: programs get longer with their rows."""
    g, m, n = tw.grid(c, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[2], 64, until=m.stop):
        acc += tw.dot(a[g, m, k], b[n, k].T)
    c[g, m, n] = acc


@tw.kernel
def upper(
    a: tw.Tensor["B", "M", "M"],
    b: tw.Tensor["N", "M"],
    c: tw.Tensor["B", "M", "N"],
):
    g, m, n = tw.grid(c, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[2], 64, start=m.start):
        acc += tw.dot(a[g, m, k], b[n, k].T)
    c[g, m, n] = acc


def triangles(part: Callable[..., Any], batch: int, rows: int, columns: int) -> tuple[dict[str, Any], Any]:
    a = part(RNG.integers(-2, 3, (batch, rows, rows)).astype(np.float32))
    b = RNG.integers(-2, 3, (columns, rows)).astype(np.float32)
    arrays = {"a": a, "b": b, "c": np.full((batch, rows, columns), 99, np.float32)}
    return {name: x.astype(ml_dtypes.bfloat16) for name, x in arrays.items()}, a @ b.T


@pytest.mark.parametrize("machine", ["simulator", "ptx"])
@pytest.mark.parametrize(("kernel", "part"), [(triangular, np.tril), (upper, np.triu)], ids=["down", "up"])
def test_every_program_of_an_alternating_walk_runs_once(machine: str, kernel: tw.Kernel, part: Any) -> None:
    """2 rows of tiles times 58 combinations: two bands, the second not full."""
    arrays, exact = triangles(part, 29, 72, 104)
    if machine == "simulator":
        kernel(*arrays.values())
    else:
        run_artifact(kernel.compile(dtypes=dict.fromkeys("abc", "bf16")), arrays)
    assert (arrays["c"].astype(np.float32) == exact.astype(ml_dtypes.bfloat16).astype(np.float32)).all()


def programs_of_ctas(others: int, levels: int, ctas: int, way: str) -> list[list[tuple[int, int]]]:
    """The programs that each CTA takes, by the C++ that is emitted for a walk."""
    kernel = transport.kernel({"y": transport.tensor("y", [transport.M, transport.N])}, lambda y: [])
    extents = [transport.M, transport.N]
    walk = partial(t.Programs, ["i", "j"], extents, True, t.block([]), 132 // SHARERS)
    kernel.body.block.add_op(walk(descending="j") if way == "descending" else walk(ascending="j"))
    lines = re.findall(r"const int (\w+) = (.*);", emit_kernel(kernel).source)
    known = {"min": min, "multiply_add": lambda a, b, c: a * b + c, "gridDim": ctas, "u_M": others, "u_N": levels}
    found: list[list[tuple[int, int]]] = [[] for _ in range(ctas)]
    for program in range(others * levels):
        values = {**known, "program": program}
        for name, text in lines:
            if name != "tid":
                python = re.sub(r"\((int|long long|unsigned long long)\)", "", text).replace("gridDim.x", "gridDim")
                values[name] = eval(python.replace("/", "//"), values)
        found[program % ctas].append((values["u_i"], values["u_j"]))
    return found


@pytest.mark.parametrize(("others", "levels"), [(64, 32), (64, 8), (64, 4), (256, 16), (40, 24), (1, 300), (5, 7)])
@pytest.mark.parametrize("way", ["descending", "ascending"])
def test_ctas_have_nearly_as_much_in_all(others: int, levels: int, way: str) -> None:
    """Of programs of 1 to ``levels`` steps: at most 1.13 of an equal share, or the longest program and two steps."""
    ctas = min(132, others * levels)
    taken = programs_of_ctas(others, levels, ctas, way)
    assert sorted(c for mine in taken for c in mine) == [(i, j) for i in range(others) for j in range(levels)]
    assert taken[0][0][1] == (levels - 1 if way == "descending" else 0)
    most = max(sum(j + 1 if way == "descending" else levels - j for _, j in mine) for mine in taken)
    assert most <= max(1.13 * others * levels * (levels + 1) / 2 / ctas, levels + 2)

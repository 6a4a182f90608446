"""Reductions into memory to the bit: zeros of both signs, infinities, NaN, what is there before, any order."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.indexed import Arrays, facts_of
from support.ptx_driver import run_artifact

PATTERNS = np.array(
    [
        *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000),
        *(0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000),
        *(0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF),
    ],
    np.uint32,
)
"""Zeros, subnormal and normal numbers, infinities, NaN: each with either sign."""
NUMBERS = 14


@tw.kernel
def extremes(
    index: tw.Tensor["T"],
    x: tw.Tensor["T"],
    top: tw.Tensor["V"],
    least: tw.Tensor["V"],
):
    m = tw.grid(x.shape[0], 64)
    tw.reduce_max(top, index[m], x[m])
    tw.reduce_min(least, index[m], x[m])


def every_pair() -> Arrays:
    """Each pattern, and each number among what is there before."""
    before = np.repeat(PATTERNS[:NUMBERS], len(PATTERNS)).view(np.float32)
    x = np.tile(PATTERNS, NUMBERS).view(np.float32)
    return {"index": np.arange(len(x), dtype=np.int32), "x": x, "top": before.copy(), "least": before.copy()}


def every_three(rng: np.random.Generator) -> Arrays:
    """Several elements to a place, in a shuffled order."""
    index = np.tile(np.arange(400, dtype=np.int32), 3)
    x = rng.choice(PATTERNS, len(index)).view(np.float32)
    return {
        "index": index,
        "x": x,
        "top": np.full(400, -np.inf, np.float32),
        "least": np.full(400, np.inf, np.float32),
    }


def greatest(values: list[float]) -> int:
    """The bits of the greatest, by Python's comparisons: 0.0 is greater than -0.0, NaN than all."""
    if any(v != v for v in values):
        return 0x7FFFFFFF
    return int(np.float32(max(values, key=lambda v: (v, not np.signbit(v)))).view(np.uint32))


def expected(a: Arrays) -> dict[str, list[int]]:
    tops, lows = [], []
    for v, (top, least) in enumerate(zip(a["top"].tolist(), a["least"].tolist(), strict=True)):
        here = a["x"][a["index"] == v].tolist()
        tops.append(greatest([top, *here]))
        lows.append(greatest([-least, *(-x for x in here)]) ^ 0x80000000)
    return {"top": tops, "least": lows}


@pytest.mark.parametrize("drawn", [every_pair(), every_three(np.random.default_rng(3))], ids=["pairs", "threes"])
def test_simulator_and_ptx_machine_agree_with_python_to_the_bit(drawn: Arrays) -> None:
    wanted = expected(drawn)
    simulated, launched = ({n: x.copy() for n, x in drawn.items()} for _ in range(2))
    extremes(**simulated)
    artifact = extremes.compile(dtypes={n: a.dtype.name for n, a in drawn.items()}, facts=facts_of(drawn))
    run_artifact(artifact, launched, schedules=3)
    for name, bits in wanted.items():
        assert simulated[name].view(np.uint32).tolist() == bits
        assert launched[name].view(np.uint32).tolist() == bits


def test_the_order_of_elements_changes_no_bit() -> None:
    drawn = every_three(np.random.default_rng(4))
    found = set[bytes]()
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(drawn["x"]))
        arrays = {n: x.copy() for n, x in drawn.items()} | {n: drawn[n][order] for n in ("index", "x")}
        extremes(**arrays)
        found.add(arrays["top"].tobytes() + arrays["least"].tobytes())
    assert len(found) == 1


def test_where_nothing_comes_the_bits_stay() -> None:
    arrays = {n: x.copy() for n, x in every_pair().items()}
    before = PATTERNS[np.arange(280) % len(PATTERNS)].view(np.float32)
    arrays |= {"index": np.full_like(arrays["index"], -1), "top": before.copy(), "least": before.copy()}
    extremes(**arrays)
    assert arrays["top"].tobytes() == arrays["least"].tobytes() == before.tobytes()

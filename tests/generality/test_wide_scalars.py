"""Integer arguments that a tile's dtype does not hold: comparisons, quotients, coordinates are of the exact number."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.indexed import facts_of
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright.diag import TilewrightError

pytestmark = pytest.mark.sample(2)

ENDS = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "i64": (-(2**63), 2**63 - 1)}
NUMBERS = (0, 5, -3, 127, 200, 255, -129, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32 + 5, 2**40, 2**63 - 1, -(2**63))


def kernel_of(scalar: Any) -> tw.Kernel:
    @tw.kernel
    def beside(
        x: tw.Tensor["N"],
        less: tw.Tensor["N"],
        least: tw.Tensor["N"],
        most: tw.Tensor["N"],
        place: tw.Tensor["N"],
        moved: tw.Tensor["N"],
        s: scalar,
    ):
        n = tw.grid(x, 32)
        v = x[n]
        less[n] = (v < s).to(tw.i32) + 2 * (v == s).to(tw.i32) + 4 * (s <= n.index).to(tw.i32)
        least[n], most[n] = tw.minimum(v, s), tw.maximum(s, v)
        place[n] = v // tw.maximum(s, 1)
        moved[n] = (v >> s) ^ (v << s)

    return beside


KERNELS = {dtype: kernel_of(getattr(tw, dtype)) for dtype in ENDS}
CASES = [(dtype, scalar) for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64") for scalar in ENDS]


def wrapped(values: list[int], dtype: Any) -> np.ndarray:
    """Exact integers modulo 2^n, as a store and a tile of the dtype have them."""
    return np.array([v % 2**64 for v in values], np.uint64).astype(dtype)


def shifted(v: int, by: int, bits: int) -> int:
    """``(v >> by) ^ (v << by)``; as many bits as there are, more, or fewer than none, leave the sign, and nothing."""
    return (v >> by) ^ (v << by) if 0 <= by < bits else -1 if v < 0 else 0


def launch(dtype: str, number: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    ends = np.iinfo(dtype)
    x = np.array([*(v for v in NUMBERS if ends.min <= v <= ends.max), ends.min, ends.max, 1, 7] * 3, dtype)
    exact = [int(v) for v in x]
    expected = {
        "less": [(v < number) + 2 * (v == number) + 4 * (number <= i) for i, v in enumerate(exact)],
        "least": [min(v, number) for v in exact],
        "most": [max(v, number) for v in exact],
        "place": [v // max(number, 1) for v in exact],
        "moved": [shifted(v, number, ends.bits) for v in exact],
    }
    kinds = {"less": "int32"}
    results = {n: wrapped(v, kinds.get(n, dtype)) for n, v in expected.items()}
    return {"x": x, **{n: np.full_like(v, 77) for n, v in results.items()}}, results


def check(arrays: dict[str, np.ndarray], results: dict[str, np.ndarray], what: object) -> None:
    for name, value in results.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=f"{name}, {what}")


@pytest.mark.parametrize(("dtype", "scalar"), CASES)
def test_simulator(dtype: str, scalar: str) -> None:
    low, high = ENDS[scalar]
    for number in (n for n in NUMBERS if low <= n <= high):
        arrays, results = launch(dtype, number)
        KERNELS[scalar](**arrays, s=number)
        check(arrays, results, number)


@pytest.mark.parametrize(("dtype", "scalar"), rest_slow(CASES, [("int32", "u32"), ("int8", "i32")], several=True))
def test_ptx_machine(dtype: str, scalar: str) -> None:
    low, high = ENDS[scalar]
    arrays, _ = launch(dtype, 0)
    artifact = KERNELS[scalar].compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    for number in (n for n in NUMBERS if low <= n <= high):
        arrays, results = launch(dtype, number)
        driver = run_artifact(artifact, arrays, {"s": number})
        assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
        check(arrays, results, number)


@tw.kernel
def rolled(x: tw.Tensor["N"], s: tw.i64, y: tw.Tensor["N"], z: tw.Tensor["N"], *, seed: tw.i64 = 0):
    n = tw.grid(x, 32)
    y[n] = x[(n.index + s) % x.shape[0]] + tw.rand(seed, n.index) * 0
    z[n] = x[n + s]


def test_coordinates_are_exact_or_refused() -> None:
    """Coordinates are 32-bit integers: an argument that leads beyond is asked for at the launch."""
    x = np.arange(1, 41, dtype=np.float32)
    for s in NUMBERS:
        y, z = np.zeros_like(x), np.zeros_like(x)
        if not -(2**31) <= s < 2**31 - 40:
            with pytest.raises(TilewrightError, match="RUN008"):
                rolled(x, s, y, z, seed=s)
            continue
        rolled(x, s, y, z, seed=s)
        np.testing.assert_array_equal(y, np.roll(x, -s % 40 - 40))
        np.testing.assert_array_equal(z, [x[i + s] if 0 <= i + s < 40 else 0 for i in range(40)])


def test_a_seed_has_64_bits() -> None:
    @tw.kernel
    def drawn(y: tw.Tensor["N"], seed: tw.i64):
        n = tw.grid(y, 32)
        y[n] = tw.rand(seed, n.index)

    def of(seed: int) -> np.ndarray:
        y = np.empty(8, np.float32)
        drawn(y, seed)
        return y

    rows = [of(s) for s in (1, 1 + 2**32, 1 - 2**63, -1)]
    assert len({r.tobytes() for r in rows}) == 4
    with pytest.raises(TilewrightError, match="JIT001"):
        of(2**63)

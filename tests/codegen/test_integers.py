"""Integer arithmetic of tiles: every operand has a result, the one that NumPy gives, in the emitted functions too."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.tile_evaluator import NUMPY
from tilewright.base.dtypes import DType, f32, i32, i64
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.prelude import prelude
from tilewright.codegen.scalars import shuffle_step
from tilewright.codegen.storage import Storage

EDGES = (0, 1, -1, 2, -2, 3, -7, 31, 32, 33, 63, 64, 100, -100)
FUNCTIONS = {
    "floor_div": np.floor_divide,
    "floor_mod": np.mod,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}


def edges(dtype: Any) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    return np.array([*(e for e in EDGES if info.min <= e <= info.max), info.min, info.min + 1, info.max], dtype)


@tw.kernel
def all_of_them(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor[9, "M"], *, bm=64):
    m = tw.grid(a.shape[0], bm)
    p, q = a[m], b[m]
    y[0, m], y[1, m], y[2, m], y[3, m] = p + q, p - q, p * q, p // q
    y[4, m], y[5, m], y[6, m], y[7, m], y[8, m] = p % q, p << q, p >> q, -p, tw.abs(p)


@pytest.mark.parametrize("dtype", [tw.i8, tw.i32, tw.i64], ids=str)
def test_the_simulator_agrees_with_numpy(dtype: DType) -> None:
    values = edges(NUMPY[dtype.name])
    a, b = (x.ravel() for x in np.meshgrid(values, values))
    y = np.full((9, len(a)), 77, a.dtype)
    all_of_them(a, b, y)
    with np.errstate(all="ignore"):
        expected = [a + b, a - b, a * b, a // b, a % b, a << b, a >> b, -a, np.abs(a)]
    np.testing.assert_array_equal(y, np.array(expected))


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize(("kind", "dtype"), [("int", np.int32), ("long long", np.int64)])
def test_the_emitted_functions_agree_with_numpy(kind: str, dtype: Any, tmp_path: Path) -> None:
    """Compiled for the CPU, where undefined behaviour is trapped."""
    values = edges(dtype)
    shown = ", ".join("LEAST" if v == np.iinfo(dtype).min else f"{v}LL" for v in values)
    functions = re.sub("__device__|__forceinline__", "", prelude(f"{name}(" for name in FUNCTIONS))
    calls = " ".join(f'printf("%lld ", (long long){name}(a, b));' for name in FUNCTIONS)
    least = "(-9223372036854775807LL - 1)" if dtype is np.int64 else "(-2147483648LL)"
    source = f"""#include <cstdio>
#define LEAST {least}
struct uint4 {{ unsigned x, y, z, w; }};
{functions}
int main() {{ {kind} v[] = {{ ({kind}){f", ({kind})".join(shown.split(", "))} }};
  for ({kind} a : v) for ({kind} b : v) {{ {calls} }} }}"""
    (tmp_path / "a.cpp").write_text(source)
    flags = ["-O2", "-std=c++17", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(["g++", *flags, str(tmp_path / "a.cpp"), "-o", str(tmp_path / "a")], check=True)
    printed = subprocess.run([str(tmp_path / "a")], check=True, capture_output=True, text=True).stdout
    found = np.array(printed.split(), np.int64).reshape(len(values), len(values), len(FUNCTIONS))
    a, b = values[:, None], values[None, :]
    with np.errstate(all="ignore"):
        for i, fn in enumerate(FUNCTIONS.values()):
            np.testing.assert_array_equal(found[:, :, i], fn(a, b))


def body(kernel: tw.Kernel, dtypes: dict[str, DType] | None = None) -> str:
    compiled = kernel.compiled
    variants = compiled._plan(compiled._ahead("sm_90a", dtypes or {}, None, None, None, {})).variants
    return "\n".join(emit_kernel(v.transport).source for v in variants)


@pytest.mark.parametrize("dtype", [tw.i8, tw.i32, tw.i64], ids=str)
def test_no_arithmetic_of_tiles_has_a_sign(dtype: DType) -> None:
    """Signed overflow is undefined in C; quotients and shifts are functions that know every operand."""
    source = body(all_of_them, dict.fromkeys("aby", dtype))
    values = [line for line in source.splitlines() if re.match(r"\s*const (int|long long) x\d+ = ", line)]
    assert values
    bare = re.compile(r"(?<![\w)])(x\d+|\w+_round\(x\d+\)) (\+|-|\*|/|%|<<|>>) ")
    unsigned = re.compile(r"\((unsigned int|unsigned long long)\)(x\d+|\w+_round\(x\d+\)) (\+|-|\*) ")
    assert not [line for line in values if bare.search(unsigned.sub("", line))]
    assert {"floor_div(", "floor_mod(", "shift_left(", "shift_right(", "wrap_neg("} <= set(re.findall(r"\w+\(", source))


@tw.kernel
def scaled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], n: tw.Tensor["M"], *, k: tw.i32, bm=8):
    m, c = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=64)
    y[m, c] = x[m, c] * (k * k) + x[m, c].sum(1)[:, None] / (x.shape[0] * x.shape[1] * k * k)
    n[m] = m.index.to(tw.i64) * 0 + (k * k * k - 7 * x.shape[0]) + (k * k) // 7 + (-k) % 5


@pytest.mark.parametrize("k", [3, -3, 60000, 2**31 - 1, -(2**31)])
def test_scalars_are_exact_up_to_64_bits(k: int) -> None:
    x = np.ones((9, 40), np.float32)
    y, n = np.zeros_like(x), np.zeros(9, np.int64)
    scaled(x, y, n, k)
    np.testing.assert_allclose(y, k * k + 40.0 / np.float64(np.int64(np.uint64(360 * k * k % 2**64))), rtol=1e-5)
    wrapped = (k**3 - 63 + (k * k) // 7 + (-k) % 5 + 2**63) % 2**64 - 2**63
    np.testing.assert_array_equal(n, wrapped)


def test_scalars_are_formed_in_64_bits() -> None:
    source = body(scaled, {"n": tw.i64})
    assert "(long long)u_k*u_k" in source
    assert not re.search(r"= u_k\*u_k|= \(?u_k \+", source)


@tw.kernel
def divided(x: tw.Tensor["M"], y: tw.Tensor["M"], *, k: tw.i32, bm=64):
    m = tw.grid(x.shape[0], bm)
    y[m] = x[m] + (k * k * x.shape[0]) // 3


def test_a_quotient_of_what_may_not_fit_is_asked_of_the_launch() -> None:
    x = np.zeros(5, np.float32)
    y = np.zeros_like(x)
    divided(x, y, 1000)
    np.testing.assert_allclose(y, 1000 * 1000 * 5 // 3)
    divided(x, y, 2**30)  # 5 * 2^60
    np.testing.assert_allclose(y, (2**60 * 5) // 3)
    with pytest.raises(tw.TilewrightError, match="RUN008"):
        divided(np.zeros(9, np.float32), np.zeros(9, np.float32), 2**30)  # 9 * 2^60


@pytest.mark.parametrize("fn", ["sum", "min", "max", "argmax"])
@pytest.mark.parametrize("dtype", [i32, i64, f32], ids=str)
def test_every_lane_takes_part_in_a_shuffle(fn: str, dtype: DType) -> None:
    """A shuffle in one branch of a condition is executed by some lanes of the warp only, which wait for the others."""
    buffers = [(Storage(dtype, 1), "v"), (Storage(i32, 1), "at")][: 1 + (fn == "argmax")]
    (text,) = shuffle_step(fn, buffers, 4)
    assert text.count("__shfl_xor_sync") == len(buffers)

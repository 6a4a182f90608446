"""The functions that the validator takes for granted, executed: within the bounds of docs/language.md."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from tilewright.ptx.machine import DeviceMemory, MachineLaunch
from tilewright.ptx.machine.run import ExecutableEntry
from tilewright.ptx.reader import read

THREADS, CTAS = 128, 24
COUNT = THREADS * CTAS
_erf = np.vectorize(math.erf, otypes=[np.float64])
_sigmoid: Callable[[Any], Any] = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
ONE: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exp": (np.exp, 2), "exp2": (np.exp2, 2), "log": (np.log, 1), "log2": (np.log2, 1), "log10": (np.log10, 2),
    "sqrt": (np.sqrt, 0.5), "rsqrt": (lambda x: 1 / np.sqrt(x), 2), "cbrt": (np.cbrt, 1), "sin": (np.sin, 2),
    "cos": (np.cos, 2), "tan": (np.tan, 4), "asin": (np.arcsin, 2), "acos": (np.arccos, 2), "atan": (np.arctan, 2),
    "sinh": (np.sinh, 3), "cosh": (np.cosh, 2), "tanh": (np.tanh, 2), "asinh": (np.arcsinh, 3),
    "acosh": (np.arccosh, 4), "atanh": (np.arctanh, 3), "erf": (_erf, 2), "log1p": (np.log1p, 1),
    "expm1": (np.expm1, 1), "floor": (np.floor, 0), "ceil": (np.ceil, 0), "round": (np.rint, 0), "trunc": (np.trunc, 0),
    "sigmoid": (_sigmoid, 3),
}  # fmt: skip
TWO: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "pow": (np.power, 4), "atan2": (np.arctan2, 3), "hypot": (np.hypot, 3), "fmod": (np.fmod, 0),
    "mod": (lambda x, y: np.mod(np.float32(x), np.float32(y)), 0),
    "floordiv": (lambda x, y: np.floor_divide(np.float32(x), np.float32(y)), 0),
}  # fmt: skip
SPECIAL = np.float32(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e-45, 3e38, -3e38, 65535.99,
     65536, -65536, 105615, 1e10, 16367173 * 2.0**72, 0.99999994, 1.0000001, math.pi / 2, math.pi, 88.7, -88.7, 127]
)  # fmt: skip


@cache
def entry(name: str) -> ExecutableEntry:
    """A function of the library, of one element of each of its operands for each thread."""
    text = files("tilewright.validate").joinpath("library.ptx").read_text()
    head = text[: text.index(".visible")]
    (body,) = re.findall(rf"\.visible \.entry f32_{name}\(.*?\n\}}", text, re.DOTALL)
    body = re.sub(r"\.param \.f32 ", ".param .u64 ", body)
    place = (
        "\n.reg .b64 %xd<5>; .reg .b32 %xr<4>; mov.u32 %xr1, %tid.x; mov.u32 %xr2, %ctaid.x;"
        f"mad.lo.u32 %xr3, %xr2, {THREADS}, %xr1; mul.wide.u32 %xd1, %xr3, 4;\n"
    )
    body = body.replace("{", "{" + place, 1)
    load = r"ld.param.u64 %xd2, [\2]; add.u64 %xd2, %xd2, %xd1; ld.global.f32 \1, [%xd2];"
    body = re.sub(r"ld\.param\.f32 \s*(%\w+), \[(\w+)\];", load, body)
    body = re.sub(r"ld\.param\.u64 \s*(%rd\w+), \[(\w+)\];", r"ld.param.u64 \1, [\2]; add.u64 \1, \1, %xd1;", body)
    return ExecutableEntry(read(head + body), f"f32_{name}")


def executed(name: str, *operands: np.ndarray) -> np.ndarray:
    out, memory = np.zeros(COUNT, np.float32), DeviceMemory()
    addresses = [memory.add(f"x{i}", np.ascontiguousarray(x)) for i, x in enumerate(operands)]
    addresses.append(memory.add("y", out))
    values = [a.to_bytes(8, "little") for a in addresses]
    report = entry(name).launch(MachineLaunch((CTAS, 1, 1), (THREADS, 1, 1)), values, memory)
    assert not report.faults
    return out


def arguments(seed: int) -> np.ndarray:
    """A third of everyday size, a third of every exponent, and what is special."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, COUNT, dtype=np.uint32).view(np.float32)
    x = np.where(np.arange(COUNT) % 3 == 0, bits, (rng.normal(size=COUNT) * 2.0 ** rng.integers(-6, 6)))
    x = np.where(np.arange(COUNT) % 3 == 1, rng.uniform(-1, 1, COUNT), x).astype(np.float32)
    x[: len(SPECIAL)] = SPECIAL
    return x


def within(found: np.ndarray, exact: np.ndarray, ulp: float) -> None:
    """``found`` is within so many units of the last place of ``exact``, and special where it is."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
    finite = np.isfinite(nearest) & np.isfinite(found)
    odd = ~finite & ~((nearest == found) | (np.isnan(nearest) & np.isnan(found)))
    overflown = odd & (np.abs(exact) > 3.4e38)  # within an ulp of the greatest float either is right
    assert not (odd & ~overflown).any(), (found[odd], exact[odd])
    zero = finite & (exact == 0)
    assert (np.signbit(found[zero]) == np.signbit(exact[zero])).all()
    unit = np.maximum(np.spacing(np.abs(nearest[finite])).astype(np.float64), 2.0**-149)
    error = np.abs(found[finite].astype(np.float64) - exact[finite]) / unit
    worst = int(error.argmax())
    assert error[worst] <= ulp + 0.5 * (ulp > 0.5), (error[worst], found[finite][worst], exact[finite][worst])


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_element(name: str) -> None:
    function, ulp = ONE[name]
    x = arguments(sum(map(ord, name)))
    x = np.maximum(x, np.float32(-87)) if name == "sigmoid" else x  # results below 2^-126 may be 0
    with np.errstate(all="ignore"):
        exact = np.asarray(function(x.astype(np.float64)))
    within(executed(name, x), exact, ulp)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_elements(name: str) -> None:
    function, ulp = TWO[name]
    x, y = arguments(1), arguments(2)
    y[: len(SPECIAL) ** 2] = np.repeat(SPECIAL, len(SPECIAL))
    x[: len(SPECIAL) ** 2] = np.tile(SPECIAL, len(SPECIAL))
    with np.errstate(all="ignore"):
        exact = np.asarray(function(x.astype(np.float64), y.astype(np.float64)))
    within(executed(name, x, y), exact, ulp)


def test_large_arguments_of_sine_and_cosine() -> None:
    """Every exponent, and arguments next to multiples of pi/2, where all digits cancel."""
    near = np.round(np.exp2(np.random.default_rng(3).uniform(0, 127, COUNT)) / (math.pi / 2)) * (math.pi / 2)
    x = near.astype(np.float32)
    x[0] = np.float32(16367173 * 2.0**72)  # the float whose distance to a multiple of pi/2 is the least
    for name in ("sin", "cos", "tan"):
        function, ulp = ONE[name]
        within(executed(name, x), function(x.astype(np.float64)), ulp)
    assert abs(executed("cos", x)[0]) < 2e-9


def test_every_function_of_the_library_is_tested() -> None:
    text = files("tilewright.validate").joinpath("library.ptx").read_text()
    assert set(re.findall(r"\.entry f32_(\w+)\(", text)) == {*ONE, *TWO}

"""A few random kernels (``tools/random_kernels.py``) every way there is, and that a wrong result is found."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from support.slow import rest_slow

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from random_programs import elementwise, judge, sums, values  # noqa: E402
from random_programs import tree as t  # noqa: E402
from random_programs.draw import FLOAT_FUNCTIONS  # noqa: E402
from random_programs.families import FAMILIES, drawn  # noqa: E402
from random_programs.indexed import indexed  # noqa: E402
from random_programs.places import NUMPY  # noqa: E402
from random_programs.text import source  # noqa: E402

pytestmark = pytest.mark.sample(1)

SEEDS = {
    "maps": (0, 3, 4, 6, 9, 12, 14),
    "rows": (1, 7, 11, 15, 17),
    "streams": (2, 4, 5, 8, 17),
    "products": (2, 6, 20),
    "sums": (0, 1, 2, 4),
}
DRAWN = [(family, seed) for family, seeds in SEEDS.items() for seed in seeds]


QUICK = [("maps", 0), ("maps", 6), ("rows", 11), ("streams", 5), ("products", 2), ("sums", 2)]


@pytest.mark.parametrize(("family", "seed"), rest_slow(DRAWN, QUICK, several=True))
def test_every_way_agrees(family: str, seed: int, tmp_path: Path) -> None:
    found = judge.judged(judge.launch_of(drawn(seed, family), seed), seed, tmp_path, judge.Options(seconds=60))
    assert found.status == "agreed", f"{found.status} {found.what}\n{found.source}"
    assert {"evaluate", "simulate", "build", "machine"} <= found.seconds.keys()


@pytest.mark.parametrize("seed", rest_slow(list(range(24)), list(range(6))))
def test_every_way_agrees_on_gathers_scans_and_sorts(seed: int, tmp_path: Path) -> None:
    launch = indexed(seed)
    assert launch.source == indexed(seed).source
    found = judge.judged(launch, seed, tmp_path, judge.Options(seconds=60))
    assert found.status == "agreed", f"{found.status} {found.what}\n{found.source}"


def test_every_family_is_drawn_from_its_seed() -> None:
    assert set(SEEDS) == set(FAMILIES)
    for seed in range(40):
        text = source(drawn(seed))
        assert text == source(drawn(seed))
        compile(text, "<drawn>", "exec")


def test_every_dtype_and_function_is_drawn() -> None:
    texts = "\n".join(source(drawn(seed)) for seed in range(400))
    assert {dtype for dtype in (*t.INTS, *t.FLOATS, *t.STORED_FLOATS) if f": {dtype} " not in texts} == set()
    named = {*FLOAT_FUNCTIONS, "atan2", "hypot", "fmod", "pow"} - {"neg", *t.POWERS}
    assert {fn for fn in named if f"tw.{fn}(" not in texts} == set()
    assert {n for n in t.POWERS.values() if f" ** {n})" not in texts} == set()


def test_a_wrong_result_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that is off by one element disagrees with NumPy."""
    right = judge.run_steps

    def off(steps: object, scratch: object, tensors: dict[str, np.ndarray], *args: object, **more: object) -> object:
        found = right(steps, scratch, tensors, *args, **more)  # pyright: ignore
        for name, array in tensors.items():
            if name.startswith("y") and array.size:
                array.flat[0] = 0 if array.flat[0] != 0 else 1
        return found

    monkeypatch.setattr(judge, "run_steps", off)
    found = judge.judged(judge.launch_of(drawn(3), 3), 3, tmp_path, judge.Options(seconds=60))
    assert found.status == "disagreed"
    assert "the simulator and NumPy" in found.what


def value(*ends: float, dtype: str = "f32") -> values.Value:
    lo, hi = (np.array([e], np.float32) for e in (ends[0], ends[-1]))
    return values.between(dtype, lo, hi)


def test_sums_are_exact_or_bounded() -> None:
    small = values.exactly("f32", np.array([1.5, -2.25, 4.0], np.float32))
    assert sums.total(small, 0, 3).point
    third = values.exactly("f32", np.full(100, 1 / 3, np.float32))
    found = sums.total(third, 0, 100)
    assert found.lo < np.float32(100 / 3) < found.hi
    assert found.hi - found.lo < 1e-3
    eight = values.exactly("e4m3", np.full((1, 64), 1.125, np.float32))
    assert not sums.product(eight, eight.moved(np.transpose), 4096).point


def test_comparisons_of_what_is_not_known() -> None:
    a, b = value(1.0, 2.0), value(1.5)
    assert (elementwise.compared("lt", a, b).lo, elementwise.compared("lt", a, b).hi) == (False, True)
    assert elementwise.compared("lt", a, value(3.0)).lo
    assert not elementwise.compared("gt", a, value(3.0)).hi
    nan = value(float("nan"))
    assert not elementwise.compared("eq", nan, nan).hi
    assert values.admits(nan, np.array([np.nan], np.float32)).all()
    assert not values.admits(value(-0.0), np.array([0.0], np.float32)).any()


@pytest.mark.parametrize(("fn", "a", "b", "result"), [
    ("floordiv", -7, 2, -4), ("floordiv", 5, 0, 0), ("floordiv", -128, -1, -128), ("mod", -7, 3, 2), ("mod", 5, 0, 0),
    ("shl", 1, 8, 0), ("shr", -3, 9, -1), ("shl", 3, -1, 0), ("add", 127, 1, -128), ("mul", -128, -1, -128),
])  # fmt: skip
def test_integers_of_8_bits(fn: str, a: int, b: int, result: int) -> None:
    x, y = (values.exactly("i8", np.array([v], np.int64)) for v in (a, b))
    assert elementwise.integer_binary(fn, x, y, "i8").lo == [result]


def test_dtypes_of_mixed_operands() -> None:
    assert t.promoted("f16", "bf16") == t.promoted("i64", "f32") == t.promoted("i8", "float") == "f32"
    assert (t.promoted("i64", "f16"), t.promoted("bool", "int"), t.promoted("i8", "i32")) == ("f16", "i32", "i32")
    mixed = [("u8", "i8"), ("u8", "i16"), ("u8", "i32"), ("u16", "i8"), ("u32", "i32"), ("u8", "u32"), ("u32", "i64")]
    for two in mixed:
        assert NUMPY[t.promoted(*two)] == np.promote_types(*(NUMPY[d] for d in two))
    assert [t.promoted(*two[::-1]) for two in mixed] == [t.promoted(*two) for two in mixed]


@pytest.mark.parametrize(("fn", "a", "b", "result"), [
    ("pow", 2.0, 3.0, 8.0), ("floordiv", 1.0, 0.1, 9.0), ("mod", -1.0, 3.0, 2.0), ("fmod", -1.0, 3.0, -1.0),
    ("hypot", 3.0, 4.0, 5.0), ("mod", 1.0, 0.0, np.nan), ("atan2", 0.0, 1.0, 0.0),
])  # fmt: skip
def test_functions_of_two_floats(fn: str, a: float, b: float, result: float) -> None:
    with np.errstate(all="ignore"):
        found = elementwise.float_binary(fn, value(a), value(b), "f32", fast=False)
    assert values.admits(found, np.array([result], np.float32)).all()
    beside = np.array([result + 1e-5 * abs(result) + 1e-30], np.float32)
    assert np.isnan(result) or not values.admits(found, beside).any()
    unknown = elementwise.float_binary(fn, value(a, a + 1), value(b), "f32", fast=False)
    assert unknown.free is not None


@pytest.mark.parametrize(("fn", "x", "result"), [
    ("sin", 0.5, np.sin(0.5)), ("acos", 2.0, np.nan), ("round", 2.5, 2.0), ("trunc", -1.5, -1.0), ("pow_2", 2.0, 0.25),
    ("cbrt", -8.0, -2.0),
])  # fmt: skip
def test_functions_of_one_float(fn: str, x: float, result: float) -> None:
    with np.errstate(all="ignore"):
        found = elementwise.float_unary(fn, value(x), False)
    assert values.admits(found, np.array([result], np.float32)).all()
    assert np.isnan(result) or not values.admits(found, np.array([result * (1 + 1e-5)], np.float32)).any()


def test_floats_become_integers_without_a_sign() -> None:
    found = elementwise.converted(values.exactly("f32", np.array([-3.0, 2.9, 300.0, np.nan], np.float32)), "u8")
    assert found.lo.tolist() == [0, 2, 255, 0]

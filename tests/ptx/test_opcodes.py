"""Every pure row of the opcode table against the reference: exhaustive where one 8-bit operand is read, else edges and
random samples; what the hardware approximates, against its bound; both against results recorded on an H200."""

# ruff: noqa: E501 - tables, a case a line

from __future__ import annotations

import json
import math
import random
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.opcode_reference import FLOATS, bits_of, decode, reference
from tilewright.ptx.opcodes import TABLE, Form, find
from tilewright.ptx.opcodes.bit_vectors import unsigned

pytestmark = pytest.mark.sample(4)

FORMS: dict[str, list[Form]] = defaultdict(list)
for _row in TABLE:
    if _row.build is not None and _row.opcode != "mov":
        for _form in _row.forms():
            FORMS[_row.opcode + ("" if not _row.bound else " approx")].append(_form)

H200 = json.loads((Path(__file__).parents[1] / "data" / "opcodes_h200.json").read_text())
SAMPLES = 48


def edges(type: str) -> list[int]:
    """Patterns where things go wrong: zeros, extremes, subnormals, infinities, NaNs."""
    n = bits_of(type)
    if n == 1:
        return [0, 1]
    if type.endswith("x2"):
        half = edges(type[:-2])
        rng = random.Random(1)
        return [rng.choice(half) | rng.choice(half) << n // 2 for _ in range(24)]
    if type in FLOATS:
        f = "f32" if type == "tf32" else type
        bits, m, _ = FLOATS[f]
        top = 1 << (bits - 1)
        infinity = top - (1 << m)
        one = ((1 << bits - 2 - m) - 1) << m
        found = [
            0,
            1,
            (1 << m) - 1,
            1 << m,
            one,
            one + 1,
            one - 1,
            one + (1 << m),
            infinity - 1,
            infinity,
            infinity + 1,
            top - 1,
        ]
        found += [one + (5 << m) + 1, one + (1 << m - 1), one + (1 << m) + (1 << m - 1)]
        if n >= 32:
            found += (
                [
                    struct.unpack("<I", struct.pack("<f", v))[0]
                    for v in (127.5, 128.5, 255.5, 2.0**31, 2.0**32 - 256, 2.0**63)
                ]
                if n == 32
                else [
                    struct.unpack("<Q", struct.pack("<d", v))[0]
                    for v in (0.5, 2.0**31 - 0.5, 2.0**63, 2.0**64, 1e-310, 65520.0)
                ]
            )
        return found + [f | top for f in found]
    top = 1 << (n - 1)
    return [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 127, 128, 255, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2]


def inputs(form: Form, rng: random.Random) -> Iterator[tuple[int, ...]]:
    types = [t for a, t in zip(form.accesses, form.types, strict=True) if a in "ric"]
    if len(types) == 1 and bits_of(types[0]) == 8:
        yield from ((x,) for x in range(256))
        return
    hard = [edges(t) for t in types]
    for i in range(SAMPLES):
        yield tuple(
            rng.choice(h) if rng.random() < (0.7 if i % 2 else 0.3) else rng.getrandbits(bits_of(t))
            for h, t in zip(hard, types, strict=True)
        )


def computed(form: Form, columns: list[np.ndarray]) -> list[np.ndarray]:
    assert form.function is not None
    with np.errstate(all="ignore"):
        found = form.function(*columns)
    return [np.asarray(f) for f in (found if isinstance(found, tuple) else (found,))]


def columns(form: Form, rows: list[tuple[int, ...]]) -> list[np.ndarray]:
    types = [t for a, t in zip(form.accesses, form.types, strict=True) if a in "ric"]
    return [np.array(c, unsigned(t)) for c, t in zip(zip(*rows, strict=True), types, strict=True)]


@pytest.mark.parametrize("opcode", sorted(o for o in FORMS if not o.endswith("approx") and o != "tanh"))
def test_rows(opcode: str) -> None:
    for form in FORMS[opcode]:
        rng = random.Random(zlib.crc32(form.name.encode()))
        rows = list(inputs(form, rng))
        found = computed(form, columns(form, rows))
        assert found[0].dtype == unsigned(form.types[0]), form.name
        for i, row in enumerate(rows):
            expected = reference(form.name, form.types, row)
            got = tuple(int(f[i]) for f in found)[: len(expected)]
            assert got == expected, (
                f"{form.name} {[hex(x) for x in row]}: {[hex(x) for x in got]}, not {[hex(x) for x in expected]}"
            )


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2"])
def test_narrow_floats_exhaustively(name: str, mode: str) -> None:
    """All patterns, and for each the f32 neighbours of the two midpoints around it."""
    if name in ("e4m3", "e5m2"):
        form = find("cvt", ("rn", "satfinite", f"{name}x2", "f32"))
    else:
        form = find("cvt", (mode, name, "f32"))
    widened = find("cvt", ("rn", "f16x2", f"{name}x2") if name in ("e4m3", "e5m2") else ("f32", name))
    assert form is not None
    assert widened is not None
    rows: list[int] = []
    for pattern in range(0, 1 << FLOATS[name][0], 1 if FLOATS[name][0] == 8 else 7):
        v = decode(pattern, name)
        if not v.special:
            (x,) = struct.unpack("<I", struct.pack("<f", float(v.value)))
            step = 1 << (23 - FLOATS[name][1] - 1)
            rows += [x, x + step, x + step - 1, x + step + 1, x + 1]
    x = np.array(rows, np.uint32)
    assert form.function is not None
    got = form.function(x, x) if name in ("e4m3", "e5m2") else form.function(x)
    for i in range(0, len(rows), 3):
        operands = (rows[i],) * (2 if name in ("e4m3", "e5m2") else 1)
        assert (int(got[i]),) == reference(form.name, form.types, operands), hex(rows[i])


def recorded(form: Form, rows: list[list[str]]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Operands and results of an H200."""
    numbers = [[int(x, 16) for x in row] for row in rows]
    return [tuple(row[:-1]) for row in numbers], [row[-1] for row in numbers]


@pytest.mark.parametrize("name", H200["exact"])
def test_results_of_an_h200(name: str) -> None:
    opcode, *modifiers = name.split(".")
    form = find(opcode, tuple(modifiers))
    assert form is not None
    rows, results = recorded(form, H200["exact"][name])
    (found, *_) = computed(form, columns(form, rows))
    for row, result, got in zip(rows, results, found, strict=True):
        assert int(got) == result, (hex(int(got)), hex(result))
        assert reference(form.name, form.types, row)[0] == result


@pytest.mark.parametrize(
    ("name", "operands", "result"),
    [
        # .ftz: 1 - 2^-24 times the least normal number is tiny, 1 - 2^-25 times it rounds up to it in 24 bits and is not
        ("mul.rn.ftz.f32", (0x00800000, 0x3F7FFFFF), 0),
        ("mul.rn.ftz.f32", (0x00800000, 0x3F800000), 0x00800000),
        ("fma.rn.ftz.f32", (0x96000000, 0x1E000000, 0x00800000), 0),
        ("fma.rn.ftz.f32", (0x96000000, 0x1D800000, 0x00800000), 0x00800000),
        ("cvt.rn.ftz.f32.f64", (0x380FFFFFEFFFFFFF,), 0),
        ("cvt.rn.ftz.f32.f64", (0x380FFFFFF0000000,), 0x00800000),
        ("cvt.rp.ftz.f32.f64", (0x380FFFFFE0000000,), 0),
        ("cvt.rp.ftz.f32.f64", (0x380FFFFFE0000001,), 0x00800000),
        ("rcp.rp.ftz.f32", (0x7E800000,), 0x00800000),
        ("rcp.rp.ftz.f32", (0x7E800001,), 0),
        ("bfe.u64", (~0 % (1 << 64), 63, 1), 1),
        ("bfe.u64", (~0 % (1 << 64), 256, 1), 0),
        ("bfe.u32", (~0 % (1 << 32), 256, 1), 1),
        ("bfi.b64", (1, 0, 256, 1), 0),
        ("bfi.b32", (1, 0, 256, 1), 1),
        ("fma.rn.f64", (0x7FEFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0xFFF0000000000000), 0xFFF0000000000000),
        ("fma.rn.f64", (0x7FF0000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFF0000000000000), 0xFFF8000000000000),
        ("cvt.rna.tf32.f32", (0x7F801000,), 0x7F800000),
        ("cvt.rna.tf32.f32", (0x7F802000,), 0x7F802000),
        ("cvt.rna.tf32.f32", (0x7F7FEFFF,), 0x7F7FE000),
        ("cvt.rna.tf32.f32", (0x7F7FF000,), 0x7F800000),
        ("cvt.rna.satfinite.tf32.f32", (0xFF7FF000,), 0xFF7FE000),
        ("sqrt.rn.f64", (1 << 63,), 1 << 63),
        ("sqrt.rn.f64", (0xFFF0000000000000,), 0xFFF8000000000000),
        ("testp.normal.f32", (1,), 0),
        ("min.f64", (0x7FF0000000000001, 0x3FF0000000000000), 0x3FF0000000000000),
    ],
)  # fmt: skip
def test_the_other_side_of_what_an_h200_showed(name: str, operands: tuple[int, ...], result: int) -> None:
    """What code that ptxas 13.0 makes for sm_90a says, or samples that agreed; the reference says the same."""
    opcode, *modifiers = name.split(".")
    form = find(opcode, tuple(modifiers))
    assert form is not None
    (found, *_) = computed(form, columns(form, [operands]))
    assert (int(found[0]), reference(name, form.types, operands)[0]) == (result, result)


BOUNDS = {  # relative, absolute
    "div": (2**-22, 0.0), "rcp": (2**-23, 0.0), "sqrt": (2**-23, 0.0), "rsqrt": (2**-22.9, 0.0), "ex2": (2**-22, 0.0),
    "sin": (0.0, 2**-20.5), "cos": (0.0, 2**-20.5), "lg2": (2**-22, 2**-22), "tanh": (2**-10.5, 2**-8),
}  # fmt: skip
EXACT = {
    "div": lambda a, b: a / b, "rcp": lambda a: 1 / a, "sqrt": math.sqrt, "rsqrt": lambda a: 1 / math.sqrt(a), "ex2": lambda a: 2.0**a,
    "sin": math.sin, "cos": math.cos, "lg2": math.log2, "tanh": math.tanh,
}  # fmt: skip


@pytest.mark.parametrize("opcode", sorted(EXACT))
def test_approximations_stay_within_their_bound(opcode: str) -> None:
    rng = random.Random(5)
    for form in FORMS[f"{opcode} approx"]:
        type = form.types[0]
        if type.endswith("x2"):
            continue
        n = len(form.accesses) - 1
        values = [[rng.uniform(0.01, 3.0) for _ in range(n)] for _ in range(100)]
        wide = np.array(values, np.float32).view(np.uint32).T
        cast = find("cvt", ("rn", type, "f32"))
        given = [np.asarray(cast.function(c)) if type != "f32" and cast and cast.function else c for c in wide]
        (got,) = computed(form, given)
        ulp = 2.0 ** -FLOATS[type][1] if type != "f32" else 0.0
        for i in range(100):
            want = EXACT[opcode](*(float(decode(int(g[i]), type).value) for g in given))
            relative, absolute = BOUNDS[opcode]
            assert abs(float(decode(int(got[i]), type).value) - want) <= max(
                relative * abs(want), absolute, ulp * abs(want)
            )
        assert form.row.bound


DOMAINS = {
    "div": lambda _, b: 2.0**-126 <= abs(b) <= 2.0**126,
    "sin": lambda a: abs(a) <= math.pi,
    "cos": lambda a: abs(a) <= math.pi,
}


@pytest.mark.parametrize("name", H200["approximate"])
def test_an_h200_keeps_the_bounds_in_their_domain(name: str) -> None:
    opcode, *modifiers = name.split(".")
    form = find(opcode, tuple(modifiers))
    assert form is not None
    assert form.row.bound
    type, (relative, absolute) = form.types[0], BOUNDS[opcode]
    bits, mantissa, _ = FLOATS[type]
    least = 2.0 ** (2 - (1 << bits - 2 - mantissa))  # results below it have an absolute error
    inside = 0
    for row, result in zip(*recorded(form, H200["approximate"][name]), strict=True):
        given = [float(decode(x, type).value) for x in row]
        if "full" in modifiers or DOMAINS.get(opcode, lambda *_: True)(*given):
            want, got = EXACT[opcode](*given), float(decode(result, type).value)
            ulp = 2.0**-mantissa if type != "f32" else 0.0
            tolerated = max(relative * max(abs(want), least), absolute, ulp * abs(want))
            assert abs(got - want) <= tolerated, (row, got, want)
            inside += 1
    assert inside


def test_the_table_has_each_form_once() -> None:
    """No two rows give the same opcode, so that order never decides."""
    seen: dict[str, Form] = {}
    for forms in FORMS.values():
        for form in forms:
            assert form.name not in seen, form.name
            seen[form.name] = form
            assert find(form.name.split(".")[0], tuple(form.name.split(".")[1:])) == form
    assert len(seen) > 2000


def test_unknown_opcodes_have_no_row() -> None:
    assert find("add", ("s128",)) is None
    assert find("frobnicate", ()) is None
    assert find("add", ("s32", "sat")) is None

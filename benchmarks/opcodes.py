"""Every pure row of the PTX opcode table (``tilewright.ptx.opcodes``) compared with a GPU.

    python benchmarks/opcodes.py --samples 200000 --json benchmarks/results/opcodes.json

One kernel per form applies the instruction to an array, a thread an element; the driver assembles it. Operands of at
most 16 bits in all are tried exhaustively, others on edges and random patterns, seeded by the form's name. Exact forms
must agree bit for bit; where both results are NaNs, other payloads are counted apart. Approximate forms are held to
the function rounded to nearest, over all samples and over the domain of their bound. Needs numpy, torch and
cuda-bindings; no CUDA toolkit. ``--only cvt`` takes the forms whose names start so.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import document, write

from tilewright.ptx.opcodes import TABLE, Form
from tilewright.ptx.opcodes.bit_vectors import unsigned, width
from tilewright.ptx.opcodes.formats import FORMATS, is_nan, widen

BATCH, THREADS, SHOWN = 100, 256, 4
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
TRUTH_TABLE = 0xE2  # of lop3, an immediate
DOMAINS = {
    "div.approx": lambda _, b: (np.abs(b) >= 2.0**-126) & (np.abs(b) <= 2.0**126),
    "sin": lambda a: np.abs(a) <= np.pi,
    "cos": lambda a: np.abs(a) <= np.pi,
}
"""Where the bounds of approximate forms hold, if not everywhere."""


# -- kernels ----------------------------------------------------------------------------------------------------------
def forms_of_sm90(only: str) -> list[Form]:
    """All pure forms but moves, and but those that need sm_100: saturation to tf32 other than with ``.rna``."""
    pure = [f for row in TABLE if row.build is not None and row.opcode != "mov" for f in row.forms()]
    refused = [f for f in pure if f.row.pattern == "cvt rn/rz satfinite? relu? tf32 f32" and "satfinite" in f.chosen]
    return [f for f in pure if f.name.startswith(only) and f not in refused]


def inputs_of(form: Form) -> list[tuple[str, str]]:
    """Access and type of each operand that is read, the carry flag among them."""
    return [(a, t) for a, t in zip(form.accesses, form.types, strict=True) if a in "ric"]


def results_of(form: Form) -> list[str]:
    """The types of what is written: the carry flag, and both predicates of ``setp``, too."""
    if "k" in form.accesses:
        return [form.types[0], "pred"]
    both = form.row.opcode == "setp" and form.types[1] not in ("f16", "bf16")
    return [form.types[0]] * (2 if both else 1)


def _bytes(type: str) -> int:
    return max(1, width(type) // 8)


def _address(name: str, at: int, type: str) -> list[str]:
    return [f"ld.param.u64 %a, [{name}_{at}];", f"mul.wide.u32 %w, %i, {_bytes(type)};", "add.u64 %a, %a, %w;"]


def _loaded(form: Form, name: str) -> tuple[list[str], list[str], list[str]]:
    """Registers, loads, and the operands that the instruction names. A carry is set by an addition of its own."""
    registers, lines, operands = list[str](), list[str](), list[str]()
    for at, (access, type) in enumerate(inputs_of(form)):
        lines += _address(name, at, type)
        x = f"%x{at}"
        if type == "pred":
            registers.append(f".reg .pred {x}; .reg .b16 {x}b;")
            lines += [f"ld.global.u8 {x}b, [%a];", f"setp.ne.u16 {x}, {x}b, 0;"]
        else:
            registers.append(f".reg .b{max(width(type), 16)} {x};")
            lines.append(f"ld.global.b{8 * _bytes(type)} {x}, [%a];")
        if access == "c":
            set_flag = "sub.cc.u32 %cx, 0, %cin;" if form.name.startswith("sub") else "add.cc.u32 %cx, %cin, -1;"
            registers.append(".reg .b32 %cin, %cx;")
            lines += [f"selp.b32 %cin, 1, 0, {x};", set_flag]
        else:
            operands.append(hex(TRUTH_TABLE) if access == "i" else x)
    return registers, lines, operands


def kernel(form: Form, name: str) -> str:
    """The PTX of an entry: pointers to inputs, pointers to results, the count."""
    results = results_of(form)
    inputs = len(inputs_of(form))
    registers, lines, operands = _loaded(form, name)
    for i, type in enumerate(results):
        predicate = f" .reg .b16 %y{i}b;" if type == "pred" else ""
        registers.append(f".reg .{'pred' if predicate else f'b{max(width(type), 16)}'} %y{i};{predicate}")
    carries = "k" in form.accesses
    written = "%y0" if carries else "|".join(f"%y{i}" for i in range(len(results)))
    lines.append(f"{form.name} {', '.join((written, *operands))};")
    if carries:
        registers.append(".reg .b32 %co;")
        lines += [f"{'subc' if form.name.startswith('sub') else 'addc'}.u32 %co, 0, 0;", "setp.ne.u32 %y1, %co, 0;"]
    for i, type in enumerate(results):
        lines += _address(name, inputs + i, type)
        if type == "pred":
            lines += [f"selp.u16 %y{i}b, 1, 0, %y{i};", f"st.global.u8 [%a], %y{i}b;"]
        else:
            lines.append(f"st.global.b{8 * _bytes(type)} [%a], %y{i};")
    parameters = ", ".join(f".param .u64 {name}_{i}" for i in range(inputs + len(results)))
    body = [
        ".reg .b32 %i, %c, %n, %t; .reg .b64 %a, %w; .reg .pred %out;",
        *registers,
        "mov.u32 %i, %ctaid.x; mov.u32 %c, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %c, %t;",
        f"ld.param.u32 %n, [{name}_n]; setp.ge.u32 %out, %i, %n; @%out ret;",
        *lines,
        "ret;",
    ]
    return f".visible .entry {name}({parameters}, .param .u32 {name}_n)\n{{\n" + "\n".join(body) + "\n}\n"


# -- samples ----------------------------------------------------------------------------------------------------------
def edges(type: str) -> list[int]:
    """Patterns where things go wrong."""
    bits = width(type)
    top, ones = 1 << (bits - 1), (1 << bits) - 1
    if type.endswith("x2"):
        half, rng = edges(type[:-2]), random.Random(1)
        return [rng.choice(half) | rng.choice(half) << bits // 2 for _ in range(64)]
    if type not in FORMATS:
        small = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256)
        return [x & ones for x in (*small, top - 1, top, top + 1, ones, ones - 1)]
    m = 23 if type == "tf32" else FORMATS[type].mantissa
    infinity, one = top - (1 << m), ((1 << bits - 2 - m) - 1) << m
    found = [0, 1, 2, (1 << m) - 1, 1 << m, one, one + 1, one - 1, one + (1 << m), infinity - 1, infinity, infinity + 1]
    found += [top - 1, one + (1 << m - 1), one + (5 << m) + 1, one + (24 << m), one + (31 << m)]
    found += [one + (32 << m), one + (63 << m)] if bits > 16 else [one, one]
    return [x & ones for x in found] + [(x | top) & ones for x in found]


def columns(form: Form, samples: int) -> list[np.ndarray]:
    """The operands that are read: all patterns if they have 16 bits at most, else edges, small numbers, random bits."""
    types = [t for _, t in inputs_of(form)]
    if sum(map(width, types)) <= 16:
        return list(_all_patterns(types))
    rng = np.random.default_rng(zlib.crc32(form.name.encode()))
    found = [_column(t, samples, rng) for t in types]
    if form.row.opcode == "lop3":
        found[3] = np.full_like(found[3], TRUTH_TABLE)
    return found


def _all_patterns(types: list[str]) -> Iterator[np.ndarray]:
    rest = np.arange(1 << sum(map(width, types)), dtype=np.uint64)
    for type in types:
        yield (rest & np.uint64((1 << width(type)) - 1)).astype(unsigned(type))
        rest = rest >> np.uint64(width(type))


def _column(type: str, samples: int, rng: np.random.Generator) -> np.ndarray:
    if type == "pred":
        return rng.integers(0, 2, samples).astype(np.bool_)
    x = rng.integers(0, 1 << 64, samples, dtype=np.uint64) >> np.uint64(64 - width(type))
    if type in FORMATS and width(type) >= 32:  # exponents near one another, so that sums and products round
        bits, m = width(type), 52 if type == "f64" else 23
        near, bias = rng.random(samples) < 0.5, (1 << bits - 2 - m) - 1
        exponent = (rng.integers(-30, 30, samples) + bias).astype(np.uint64) << np.uint64(m)
        x = np.where(near, (x & ~np.uint64((2 * bias + 1) << m)) | exponent, x)
    hard = np.array(edges(type), np.uint64)
    x = np.where(rng.random(samples) < 0.25, hard[rng.integers(0, len(hard), samples)], x)
    integer = type not in FORMATS and not type.endswith("x2")
    return np.where(rng.random(samples) < (0.3 if integer else 0), x & np.uint64(0x3F), x).astype(unsigned(type))


# -- comparison -------------------------------------------------------------------------------------------------------
def differing(got: np.ndarray, want: np.ndarray, type: str) -> tuple[np.ndarray, np.ndarray]:
    """(differs in more than a NaN's payload, differs in a payload only); packed types half by half."""
    bad = got != want
    if type.removesuffix("x2") not in FORMATS:
        return bad, np.zeros_like(bad)
    if type == type.removesuffix("x2"):
        nan = bad & _nan(got, type) & _nan(want, type)
        return bad & ~nan, nan
    half, bits = unsigned(type[:-2]), width(type) // 2
    parts = [
        differing((got >> shift).astype(half), (want >> shift).astype(half), type[:-2])
        for shift in (got.dtype.type(0), got.dtype.type(bits))
    ]
    more = parts[0][0] | parts[1][0]
    return more, bad & ~more


def _nan(bits: np.ndarray, type: str) -> np.ndarray:
    return is_nan(bits, "f32" if type == "tf32" else type)


def errors(got: np.ndarray, want: np.ndarray, type: str, where: np.ndarray) -> dict[str, float]:
    """The greatest distances of finite results: in units of the last place, absolute, relative."""
    x, y = widen(got, type), widen(want, type)
    both = where & np.isfinite(x) & np.isfinite(y)
    top = 1 << (width(type) - 1)
    a, b = (np.where(v & top, -(v & (top - 1)), v) for v in (got.astype(np.int64), want.astype(np.int64)))
    distance = np.abs(x - y)[both]
    size = np.abs(y)[both]
    return {
        "ulp": int(np.abs(a - b)[both].max(initial=0)),
        "absolute": float(distance.max(initial=0)),
        "relative": float((distance[size > 0] / size[size > 0]).max(initial=0)),
    }


def compare(form: Form, operands: list[np.ndarray], results: list[np.ndarray]) -> dict[str, Any]:
    """What a GPU's results say of a form."""
    assert form.function is not None
    with np.errstate(all="ignore"):
        computed = form.function(*operands)
    expected = computed if isinstance(computed, tuple) else (computed,)
    row: dict[str, Any] = {"form": form.name, "samples": len(operands[0]), "differ": 0, "nan_payload": 0}
    for type, got, value in zip(results_of(form), results, expected, strict=False):
        want = np.broadcast_to(value, got.shape).astype(got.dtype)
        more, payload = differing(got, want, type)
        row["differ"] += int(more.sum())
        row["nan_payload"] += int(payload.sum())
        for name, mask in (("first", more), ("first_nan", payload)):
            if mask.any() and name not in row:
                row[name] = [[[hex(int(c[i])) for c in operands], *(hex(int(v[i])) for v in (got, want))]
                             for i in np.flatnonzero(mask)[:SHOWN]]  # fmt: skip
        if form.row.bound:
            row["bound"] = form.row.bound
        if form.row.bound and type in FORMATS:
            given = [widen(c, type) for c in operands]
            inside = next((d(*given) for n, d in DOMAINS.items() if form.name.startswith(n)), np.ones(got.shape, bool))
            row["errors"] = errors(got, want, type, np.ones(got.shape, bool))
            row["errors_in_domain"] = errors(got, want, type, inside)
    return row


# -- the GPU ----------------------------------------------------------------------------------------------------------
def check(answer: tuple[Any, ...]) -> Any:
    """What a driver call returns besides its status."""
    if int(answer[0]):
        raise RuntimeError(str(answer[0]))
    return answer[1] if len(answer) > 1 else None


class Device:
    """The first GPU: buffers for one form's operands and results."""

    def __init__(self, samples: int) -> None:
        from cuda.bindings import driver

        self.cuda = driver
        check(driver.cuInit(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))))
        self.buffers = [int(check(driver.cuMemAlloc(8 * max(samples, 1 << 16)))) for _ in range(8)]

    def run(self, module: Any, name: str, form: Form, operands: list[np.ndarray]) -> list[np.ndarray]:
        """The results of one form."""
        cuda, count = self.cuda, len(operands[0])
        results = [np.zeros(count, np.uint8 if t == "pred" else unsigned(t)) for t in results_of(form)]
        used = self.buffers[: len(operands) + len(results)]
        for column, buffer in zip(operands, used, strict=False):
            held = np.ascontiguousarray(column.astype(np.uint8) if column.dtype == np.bool_ else column)
            check(cuda.cuMemcpyHtoD(buffer, held.ctypes.data, held.nbytes))
        arguments = (*used, count), (*[ctypes.c_uint64] * len(used), ctypes.c_uint32)
        function = check(cuda.cuModuleGetFunction(module, name.encode()))
        check(cuda.cuLaunchKernel(function, -(-count // THREADS), 1, 1, THREADS, 1, 1, 0, 0, arguments, 0))
        check(cuda.cuCtxSynchronize())
        for result, buffer in zip(results, used[len(operands) :], strict=True):
            check(cuda.cuMemcpyDtoH(result.ctypes.data, buffer, result.nbytes))
        return results


def run(args: argparse.Namespace) -> None:
    """Compare every form; print those that differ; write JSON."""
    import torch

    device, started = Device(args.samples), time.perf_counter()
    forms, rows = forms_of_sm90(args.only), list[dict[str, Any]]()
    for first in range(0, len(forms), BATCH):
        batch = {f"k{i}": form for i, form in enumerate(forms[first : first + BATCH])}
        text = HEAD + "".join(kernel(form, name) for name, form in batch.items())
        module = check(device.cuda.cuModuleLoadData(text.encode() + b"\0"))
        for name, form in batch.items():
            operands = columns(form, args.samples)
            rows.append(compare(form, operands, device.run(module, name, form, operands)))
        check(device.cuda.cuModuleUnload(module))
    exact = [r for r in rows if "bound" not in r]
    shown = [r for r in rows if r not in exact or r["differ"] or r["nan_payload"]]
    counts = {
        "forms": len(rows),
        "samples": sum(r["samples"] for r in rows),
        "exact_forms": len(exact),
        "exact_forms_that_differ": sum(r["differ"] > 0 for r in exact),
        "exact_forms_that_differ_in_nan_payloads_only": sum(r["nan_payload"] > 0 == r["differ"] for r in exact),
    }
    print(*map(json.dumps, shown), json.dumps(counts), f"{time.perf_counter() - started:.0f} s", sep="\n")
    write(document(torch, **counts, rows=shown), args.json, row_lines=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="forms whose names start so")
    parser.add_argument("--samples", type=int, default=1 << 20)
    parser.add_argument("--json", default="", help="where the document of the run goes")
    run(parser.parse_args())


if __name__ == "__main__":
    main()

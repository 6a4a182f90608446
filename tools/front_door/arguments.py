"""Calls of kernels with arguments of all kinds: arrays that lie about themselves, scalars of other libraries."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from support.artifacts import scale
from support.fake_driver import FakeDriver, FakeTensor
from tilewright import runtime
from tilewright.diag import shown


@tw.kernel
def axpy(x: tw.Tensor["M"], y: tw.Tensor["M"], *, a: tw.f32, n: tw.i32 = 3, block=64):
    """The kernel that is called."""
    m = tw.grid(y, block)
    y[m] = x[m] * a + n


class Interface:
    """Something with a CUDA array interface."""

    def __init__(self, **fields: object) -> None:
        self.__cuda_array_interface__ = fields


class Lying:
    """An object whose every special method gives something odd."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __float__(self) -> Any:
        return self._answer

    def __index__(self) -> Any:
        return self._answer

    def __dlpack_device__(self) -> Any:
        return self._answer

    def __dlpack__(self, stream: object = None) -> Any:
        return self._answer

    def __cuda_stream__(self) -> Any:
        return self._answer


class Raising:
    """Every name of it raises."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


class Untrue(np.ndarray):
    """An array that says something else of itself."""

    @property
    def dtype(self) -> Any:
        return "x"

    @property
    def strides(self) -> Any:
        raise RuntimeError("none")

    def view(self, *_: object) -> Any:
        raise RuntimeError("none")


def odd_arrays() -> list[object]:
    """What may stand where a NumPy array of eight floats is wanted."""
    x = np.arange(8, dtype=np.float32)
    fixed = np.arange(8, dtype=np.float32)
    fixed.flags.writeable = False
    return [
        x, np.matrix(x), np.ma.masked_array(x, x > 3), np.ma.masked_array(x), x.astype(">f4"), x.astype(np.float64),
        x[::2], x[::-1], fixed, x.reshape(2, 4), np.float32(1), np.array(1, np.float32), np.zeros(0, np.float32),
        np.broadcast_to(np.float32(1), (8,)), np.frombuffer(bytes(33), np.float32, 8, 1), x.astype(object),
        x.astype(str), np.rec.array([(1, 2.0)] * 8), np.lib.stride_tricks.as_strided(x, (8,), (2,)),
        np.empty((8, 0), np.float32), np.memmap(_mapped(), np.float32, "r", shape=(8,)),
        x.astype(ml_dtypes.bfloat16), x.astype(np.uint8), x.view("V4"), np.broadcast_to(np.float32(1), (1 << 45,)),
        np.datetime64("2026-01-01"), [1.0] * 8, (1.0,) * 8, range(8), None, "x", b"x", 3, Ellipsis, object(),
        x.__array_interface__, memoryview(x), axpy, tw.f32, tw.auto, lambda: 1, np.float32, Lying((1, 0)),
        Lying((2, 0)), Lying(None), Lying("x"), Interface(), Interface(shape=(8,)), FakeTensor(0x1000, (8,)),
        Raising(), x.view(Untrue), np.frombuffer(bytes(34), np.float32, 8, 2),
    ]  # fmt: skip


def odd_device_arrays() -> list[object]:
    """What may stand where an array on a GPU is wanted."""
    good = {"shape": (8, 64), "typestr": "<f2", "data": (0x1000, False), "version": 3}
    changes = [
        {}, {"strides": (64,)}, {"strides": ()}, {"strides": 5}, {"strides": (1, 1, 1)}, {"strides": ("x", 2)},
        {"strides": None}, {"strides": (3, 1)}, {"shape": (8,)}, {"shape": 8}, {"shape": (8, -1)},
        {"shape": (8, 2**70)}, {"shape": ("8", 1)}, {"shape": (8.5, 1)}, {"typestr": "<f9"}, {"typestr": None},
        {"typestr": ">f2"}, {"data": 5}, {"data": (None, False)}, {"data": ("x", False)}, {"data": (-1, False)},
        {"data": (2**64, False)}, {"data": (1.5, 0)}, {"mask": 1}, {"stream": "x"}, {"stream": -1},
        {"stream": 2**70}, {"stream": 1.5}, {"version": None}, {"strides": (2**70, 2)},
    ]  # fmt: skip
    made: list[object] = [Interface(**{**good, **change}) for change in changes]
    made += [Raising()]
    made += [Lying(answer) for answer in ((2, 0), (1, 0), (2,), None, 2, "x", (2, "x"), ("x", 0))]
    made += [FakeTensor(0x1000, (8, 64)), FakeTensor(0x1000, (8,)), FakeTensor(0, (8, 64)), FakeTensor(0x1001, (8, 64))]
    return [*made, None, 3, "x", np.zeros((8, 64), np.float16), object(), [FakeTensor(0x1000, (8, 64))]]


SCALARS = (
    1, 1.5, -1, 0, True, None, "2", b"2", 10**400, -(10**400), 2**31, 2**63, float("nan"), float("inf"), -0.0, 1e300,
    1e-320, 1j, np.float32(2), np.float64(2), np.int64(2), np.int8(2), np.uint64(2**64 - 1), np.bool_(True),
    np.array(2.0), np.array([2.0]), np.array([2.0, 3.0]), np.array("x"), np.array(2, object), np.float16("inf"),
    ml_dtypes.bfloat16(2), np.complex64(2), np.datetime64("2026-01-01"), np.ma.masked, [2], (2,), {}, object(),
    Lying(2), Lying("x"), Lying(None), Lying(10**400), tw.f32, tw.auto, range(2), lambda: 2, Ellipsis,
    np.longdouble(2), "\x1b[31m", Raising(), 10**5000, -(10**5000),
)  # fmt: skip
KEYWORDS = ("block", "blok", "a", "A", "n", "stream", "schedule", "budget", "bm", "", "self", "x", "y", "\x1b")


def calls(rng: Random, count: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """Half of them in the simulator, half through a driver that records."""
    program = runtime.load(scale(), FakeDriver())
    arrays, device_arrays = odd_arrays(), odd_device_arrays()
    for i in range(count):
        if rng.random() < 0.5:
            x = rng.choice(arrays)
            y: object = np.zeros(8, np.float32) if rng.random() < 0.7 else rng.choice(arrays)
            given: dict[str, object] = {"a": rng.choice(SCALARS) if rng.random() < 0.5 else 2.0}
            if rng.random() < 0.3:
                given[rng.choice(KEYWORDS)] = rng.choice((*SCALARS, *arrays))
            yield (
                f"{i}: axpy({_word(x)}, {_word(y)}, {shown(given, 200)})",
                lambda x=x, y=y, g=given: _run(axpy, (x, y), g),
            )
            continue
        x, y = rng.choice(device_arrays), FakeTensor(0x9000_0000, (8, 64)) if rng.random() < 0.7 else None
        given = {
            "x": x,
            "y": rng.choice(device_arrays) if y is None else y,
            "alpha": rng.choice(SCALARS) if rng.random() < 0.5 else 2.0,
            "n": rng.choice(SCALARS) if rng.random() < 0.3 else 1,
        }
        stream = rng.choice((None, *SCALARS, Lying((0, 5)), Lying(5), Lying((0, "x")))) if rng.random() < 0.3 else None
        yield (
            f"{i}: {shown(given, 300)} on {shown(stream, 60)}",
            lambda g=given, s=stream: _run(program.launch, (g,), {"stream": s}),
        )


def _run(kernel: Callable[..., None], args: tuple[object, ...], given: dict[str, object]) -> str:
    kernel(*args, **given)
    return "ran"


def _word(value: object) -> str:
    return f"{type(value).__name__} {shown(value, 60)}"


def _mapped() -> str:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        Path(file.name).write_bytes(bytes(32))
        return file.name

"""What people get wrong, each with a code, their line, what was found, what is required, and help."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.fake_driver import Device, FakeDriver, FakeTensor
from tilewright import pages, runtime
from tilewright.artifact.bundle import from_bytes, to_bytes
from tilewright.artifact.schema import Artifact
from tilewright.diag import TilewrightError
from tilewright.protocol import from_text

Array = np.ndarray[Any, Any]


@tw.kernel
def copy(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x, (4, 4))
    y[m, n] = x[m, n]


@tw.kernel
def bounded(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=4)
    y[m, n] = x[m, n]


def matrix(*shape: int) -> Array:
    return np.zeros(shape or (8, 8), np.float32)


def traced(body: Callable[..., None]) -> None:
    """Run ``body(x, y, m, n)`` as a kernel's."""

    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(x, (4, 4))
        body(x, y, m, n)

    tw.kernel(kernel).explain()


def _branch(x, y, m, n):
    if x[m, n] > 0:
        y[m, n] = x[m, n]


def _loop(x, y, m, n):
    while x[m, n] > 0:
        y[m, n] = x[m, n]


def _and(x, y, m, n):
    y[m, n] = tw.where((x[m, n] > 0) and (x[m, n] < 1), 1.0, 0.0)


def _max(x, y, m, n):
    y[m, n] = max(x[m, n], 0.0)


def _rank(x, y, m, n):
    y[m, n] = x[m]


def _ranges(x, y, m, n):
    y[m, n] = x[m, n] + x[n, m]


def _read_elsewhere(x, y, m, n):
    y[m, n] = x[m, n] + y[n, m].T


def _rebound(x, y, m, n):
    total = tw.zeros((m, n), tw.f32)
    for _ in tw.stream(x.shape[1], 4):
        total = total + 1.0
    y[m, n] = total


def _broken(x, y, m, n):
    total = tw.zeros((m, n), tw.f32)
    for _ in tw.stream(x.shape[1], 4):
        total += 1.0
        break
    y[m, n] = total


def _returned(x, y, m, n):
    total = tw.zeros((m, n), tw.f32)
    for _ in tw.stream(x.shape[1], 4):
        total += 1.0
        return


def _after(x, y, m, n):
    for k in tw.stream(x.shape[1], 4):
        part = x[m, k]
    y[m, n] = part.sum(1)[:, None]  # pyright: ignore[reportPossiblyUnboundVariable]


def _two_names(x, y, m, n):
    total = tw.zeros((m, n), tw.f32)
    other = total
    for _ in tw.stream(x.shape[1], 4):
        total += 1.0
        other += 1.0
    y[m, n] = total


def _large() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(x, (2048, 4096))
        y[m, n] = x[m, n]

    kernel.explain()


def strided(steps: tuple[int, int]) -> Array:
    return np.lib.stride_tricks.as_strided(matrix(), (8, 8), steps)


def overlapping() -> tuple[Array, Array]:
    memory = np.zeros(96, np.float32)
    return memory[:64].reshape(8, 8), memory[32:].reshape(8, 8)


@cache
def artifact() -> Artifact:
    return copy.compile()


def launch(*args: object, **driver: Any) -> None:
    runtime.load(artifact(), FakeDriver(**driver)).launch(args)


def on(address: int, device: int = 0) -> FakeTensor:
    return FakeTensor(address, (8, 8), dtype="torch.float32", device=Device("cuda", device))


def read(change: Callable[[bytes], bytes]) -> None:
    from_bytes(change(to_bytes(artifact())), "copy.twb")


WRONG: dict[str, tuple[str, Callable[[], object]]] = {
    "wrong rank of an index": ("LNG002", lambda: traced(_rank)),
    "wrong rank of an argument": ("RUN003", lambda: copy(matrix(8), matrix())),
    "dimensions that disagree": ("RUN005", lambda: copy(matrix(), matrix(8, 9))),
    "unsupported dtype": ("JIT003", lambda: copy(np.zeros((8, 8)), matrix())),
    "an extent that no launch has": ("LNG029", lambda: copy.plan(static={"N": 10**20})),
    "one dtype for all": ("LNG029", lambda: copy.compile(dtypes="bf16")),  # pyright: ignore[reportArgumentType]
    "unsupported dtype by name": ("JIT003", lambda: copy.compile(dtypes={"x": "f64"})),
    "an option that no kernel has": ("LNG001", lambda: tw.kernel(numeric="fast")),  # pyright: ignore[reportCallIssue]
    "two functions": ("LNG001", lambda: tw.kernel(copy.fn, copy.fn)),  # pyright: ignore[reportCallIssue]
    "a keyword that no kernel has": ("LNG029", lambda: copy.compile(bm=4)),
    "an extent that is no int": ("LNG029", lambda: copy.plan(static={"N": "a"})),  # pyright: ignore[reportArgumentType]
    "a switch that is no bool": ("LNG029", lambda: copy.compile(debug="no")),  # pyright: ignore[reportArgumentType]
    "an unknown target": ("JIT004", lambda: copy.plan("sm_90")),
    "an option of the kernel for one compilation": ("LNG029", lambda: copy.compile(numerics="fast")),
    "tile too large": ("LNG005", _large),
    "if": ("LNG006", lambda: traced(_branch)),
    "while": ("LNG006", lambda: traced(_loop)),
    "and": ("LNG006", lambda: traced(_and)),
    "builtin max": ("LNG006", lambda: traced(_max)),
    "rebinding in a stream": ("LNG010", lambda: traced(_rebound)),
    "break": ("LNG011", lambda: traced(_broken)),
    "return": ("LNG011", lambda: traced(_returned)),
    "used after the loop": ("LNG012", lambda: traced(_after)),
    "two names": ("LNG013", lambda: traced(_two_names)),
    "read and written at different Ranges": ("LNG014", lambda: traced(_read_elsewhere)),
    "operands with different Ranges": ("LNG017", lambda: traced(_ranges)),
    "output with a zero stride": ("RUN009", lambda: copy(matrix(), strided((0, 4)))),
    "output with overlapping strides": ("RUN009", lambda: copy(matrix(), strided((16, 4)))),
    "arguments that overlap": ("RUN010", lambda: copy(*overlapping())),
    "a dimension beyond its upto": ("RUN007", lambda: bounded(matrix(), matrix())),
    "not a tensor": ("RUN001", lambda: launch(object(), on(8192))),
    "not an array": ("JIT002", lambda: copy(matrix(), [1, 2])),
    "another architecture": ("RUN012", lambda: launch(on(4096), on(8192), arch=(8, 0))),
    "two devices": ("RUN011", lambda: launch(on(4096), on(8192, 1), devices=2)),
    "a truncated bundle": ("ART003", lambda: read(lambda data: data[: len(data) // 2])),
    "an altered bundle": ("ART004", lambda: read(lambda data: data[:3000] + bytes([data[3000] ^ 1]) + data[3001:])),
    "no cache program": ("PAG009", lambda: pages.program(3)),  # pyright: ignore[reportArgumentType]
    "no text of a protocol": ("MBR007", lambda: from_text(3)),  # pyright: ignore[reportArgumentType]
    "no bundle": ("ART001", lambda: read(lambda _: b"hello")),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_refusal_names_place_finding_and_remedy(wrong: str) -> None:
    code, cause = WRONG[wrong]
    with pytest.raises(TilewrightError) as caught:
        cause()
    text = str(caught.value)
    assert text.startswith(f"error[{code}]"), text
    assert f"--> {Path(__file__)}:" in text, text
    for part in ("= found:", "= required:", "help: "):
        assert part in text, text


def test_the_legal_twins_pass() -> None:
    x, y = np.ones((8, 8), np.float32), matrix()
    copy(x, y)
    assert (y == 1).all()
    bounded(np.ones((8, 4), np.float32), matrix(8, 4))
    launch(on(4096), on(8192))
    read(lambda data: data)

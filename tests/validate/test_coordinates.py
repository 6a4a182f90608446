"""PTX of loaded coordinates of every width, alone, moved by a number, and beside bounds that scalars give."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import pytest

import tilewright as tw

pytestmark = pytest.mark.sample(3)


@tw.kernel
def gathered(at: tw.Tensor["N"], x: tw.Tensor["K"], y: tw.Tensor["N"]):
    p = tw.grid(y, 16)
    y[p] = x[at[p]]


@tw.kernel
def added(at: tw.Tensor["N"], x: tw.Tensor["N"], y: tw.Tensor["K"]):
    p = tw.grid(x, 16)
    tw.reduce_add(y, at[p], x[p])


@tw.kernel
def greatest(at: tw.Tensor["N"], x: tw.Tensor["N"], y: tw.Tensor["K"]):
    p = tw.grid(x, 16)
    tw.reduce_max(y, at[p], x[p])


@tw.kernel
def scattered(at: tw.Unique["N"], x: tw.Tensor["N"], y: tw.Tensor["K"]):
    p = tw.grid(x, 16)
    y[at[p]] = x[p]


@tw.kernel
def next_one(at: tw.Tensor["N"], x: tw.Tensor["M", "K"], y: tw.Tensor["M", "N"]):
    m, p = tw.grid(y, (1, 16))
    y[m, p] = x[m, at[p] + 1].fill(0)


@tw.kernel
def steps(at: tw.Tensor["N"], x: tw.Tensor["M", "K"], y: tw.Tensor["M", "N"]):
    m, p = tw.grid(y, (1, 16))
    i = at[p]
    y[m, p] = x[m, i].fill(0) - x[m, i + 1].fill(0)


@tw.kernel
def halves(x: tw.Tensor["M", "2 * N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (2, 8))
    a, b = x[m, n], x[m, n + y.shape[1]]
    y[m, n] = a * tw.sigmoid(a) * b


@tw.kernel
def ignoring(x: tw.Tensor["M", "V"], at: tw.Tensor["M"], loss: tw.Tensor["M"], *, ignored=-100):
    m = tw.grid(loss, 4)
    v = tw.axis(x.shape[1], upto=64)
    row = x[m, v]
    top = row.max(1)
    total = tw.log(tw.exp(row - top[:, None]).sum(1)) + top
    loss[m] = tw.where(at[m] == ignored, 0.0, total - x[m, at[m]])


@tw.kernel
def part(x: tw.Tensor["N"], low: tw.i32, high: tw.i32, y: tw.Tensor["N"]):
    tw.grid(1)
    for i in tw.stream(x.shape[0], 8, start=low, until=high):
        y[i] = x[i]


@pytest.fixture(autouse=True)
def _validated(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_VALIDATION")


def undecided(kernel: tw.Kernel, **dtypes: str) -> list[str]:
    return [reason for image in kernel.compile(dtypes=dtypes).kernels for reason in image.undecided]


@pytest.mark.parametrize("width", ["i32", "i64"])
@pytest.mark.parametrize("kernel", [gathered, added, greatest, scattered, ignoring], ids=lambda k: k.__name__)
def test_coordinates_of_both_widths(kernel: tw.Kernel, width: str) -> None:
    assert undecided(kernel, at=width) == []


def test_a_coordinate_that_is_moved() -> None:
    """-1 + 1 is 0: the word counts with its sign."""
    assert undecided(next_one, at="i32") == []


def test_two_coordinates_of_one_address() -> None:
    """NVRTC reads x[m, i + 1] at the address of x[m, i] and 4 bytes, which for an i of -1 lies before the row."""
    assert undecided(steps, at="i32", x="f32", y="f32") == []


def test_the_second_half_of_a_row() -> None:
    """NVRTC adds in 64 bits, and keeps the low half."""
    assert undecided(halves) == []


def test_bounds_that_scalars_give() -> None:
    """NVRTC shifts a difference of 64 bits without its sign, where the low half is kept."""
    assert undecided(part) == []


@tw.kernel
def of_two_stages(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (64, 8))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


def test_slots_of_two_stages() -> None:
    """NVRTC takes the other one by an exclusive or."""
    made = of_two_stages.compile(dtypes=dict.fromkeys("abc", "bf16"), schedule=tw.Schedule(stages=2))
    assert [reason for image in made.kernels for reason in image.undecided] == []

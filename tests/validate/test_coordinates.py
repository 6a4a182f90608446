"""PTX of loaded coordinates of every width, alone, moved by a number, and beside bounds that scalars give."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import pytest

import tilewright as tw


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


@tw.kernel
def where_asked(asked: tw.Tensor["Q"], x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (16, 32))
    for _ in tw.stream(1, None, until=tw.where(asked[m.start // 16] >= 0, 1, 0)):
        y[m, n] = x[m, n] * 2


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


@pytest.mark.parametrize("width", ["i32", "i64"])
def test_a_bound_of_a_sign(width: str) -> None:
    """NVRTC takes the sign's bit from 1 where a word below 0 asks for no turn."""
    assert undecided(where_asked, asked=width) == []


@tw.kernel
def where_asked_for(asked: tw.Tensor["Q"], x: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (64, 128))
    for _ in tw.stream(1, None, until=tw.where(asked[m.start // 64] >= 0, 1, 0)):
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[1], 64):
            acc += tw.dot(x[m, k], w[n, k].T)
        y[m, n] = acc


def test_a_product_of_a_stream_of_one_turn() -> None:
    """A branch in the PTX, whose bound each role reads from where the producer wrote it."""
    assert undecided(where_asked_for, asked="i32", x="bf16", w="bf16", y="bf16") == []


@tw.kernel
def of_chosen_weights(at: tw.Tensor["Q"], x: tw.Tensor["M", "K"], w: tw.Tensor["E", "N", "K"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (64, 128))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        acc += tw.dot(x[m, k], w[at[m.start // 64], n, k].T)
    y[m, n] = acc


def test_ptx_of_a_product_of_chosen_weights() -> None:
    """Of the lowering it is open: where ``at`` leads outside, zeros are multiplied, which infinities turn to NaN."""
    reasons = undecided(of_chosen_weights, at="i32", x="bf16", w="bf16", y="bf16")
    assert [reason for reason in reasons if not reason.startswith("lowering:")] == []


@tw.kernel
def one_of_two(count: tw.Tensor["N"], found: tw.Tensor["K"]):
    n = tw.grid(count, 16)
    tw.reduce_max(found, tw.where(count[n] > 1, 0, -1), 1)


def test_a_coordinate_that_is_one_of_two_numbers() -> None:
    """NVRTC keeps it in 32 bits, and multiplies it into 64."""
    assert undecided(one_of_two, count="i32", found="i32") == []


@tw.kernel
def where_a_scalar_asks(on: tw.i32, x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(y, 16)
    for _ in tw.stream(1, None, until=on):
        y[m] = x[m]


@tw.kernel
def of_odd_rows(x: tw.Tensor["M", "N"], y: tw.Tensor["N"]):
    n = tw.grid(y, 16)
    row = tw.zeros((n,), tw.f32)
    for _ in tw.stream(x.shape[0] % 2, None):
        row += x[0, n]
    y[n] = row


@pytest.mark.parametrize("kernel", [where_a_scalar_asks, of_odd_rows], ids=lambda k: k.__name__)
def test_at_most_one_iteration_by_what_a_launch_gives(kernel: tw.Kernel) -> None:
    assert undecided(kernel) == []

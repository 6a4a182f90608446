"""Two programs that are one at other sizes of tiles, and programs whose values depend on the sizes."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import pytest

import tilewright as tw
from support import products as p
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.program_match import ProgramMismatchError
from tilewright.compiler.proofs.retiled import require_retiled
from tilewright.compiler.proofs.rewritten import certify_swapped
from tilewright.diag import TilewrightError
from tilewright.transport.text import tile_kernel


@tw.kernel
def row_maxima(x: tw.Tensor["M", "K"], c: tw.Tensor["M"], *, bm=64, bk=64):
    m = tw.grid(c, bm)
    greatest = tw.full(m, -float("inf"), tw.f32)
    for k in tw.stream(x.shape[1], bk):
        greatest.set(tw.maximum(greatest, x[m, k].max(1)))
    c[m] = greatest


@tw.kernel
def places(x: tw.Tensor["M", "K"], c: tw.Tensor["M", "K"], *, bm=64, bk=64):
    m, k = tw.grid(c, (bm, bk))
    c[m, k] = x[m, k] * (m.index[:, None] - k.index[None, :]).to(tw.f32)


@tw.kernel
def added(x: tw.Tensor["M", "K"], c: tw.Tensor["M"], *, bm=64, bk=64):
    m, k = tw.grid(x, (bm, bk))
    tw.reduce_add(c, m, x[m, k].to(tw.f32).sum(1))


@tw.kernel
def of_tiles(x: tw.Tensor["M", "K"], c: tw.Tensor["M", "K"], *, bm=64, bk=64):
    m, k = tw.grid(c, (bm, bk))
    c[m, k] = x[m, k] - x[m, k].max(1)[:, None]


@tw.kernel
def steps(x: tw.Tensor["M", "K"], c: tw.Tensor["M"], *, bm=64, bk=64):
    m = tw.grid(c, bm)
    count = tw.zeros(m, tw.f32)
    for _ in tw.stream(x.shape[1], bk):
        count += x[m, 0].to(tw.f32)
    c[m] = count


@tw.kernel
def sums_of_maxima(x: tw.Tensor["M", "K"], c: tw.Tensor["M"], *, bm=64, bk=64):
    m = tw.grid(c, bm)
    total = tw.zeros(m, tw.f32)
    for k in tw.stream(x.shape[1], bk):
        total += x[m, k].to(tw.f32).max(1)
    c[m] = total


@tw.kernel
def products_of_steps(x: tw.Tensor["M", "K"], c: tw.Tensor["M"], *, bm=64, bk=64):
    m = tw.grid(c, bm)
    total = tw.zeros(m, tw.f32)
    for k in tw.stream(x.shape[1], bk):
        total += x[m, k].to(tw.f32).sum(1) * 2.0
    c[m] = total


@tw.kernel
def scanned(x: tw.Tensor["M", "K"], c: tw.Tensor["M", "K"], *, bm=64, bk=64):
    m, k = tw.grid(c, (bm, bk))
    c[m, k] = tw.cumsum(x[m, k].to(tw.f32), 1)


def pair(kernel: tw.Kernel, one: dict[str, int], other: dict[str, int]):
    return traced(p.request(kernel, **one)), traced(p.request(kernel, **other))


@pytest.mark.parametrize(
    ("kernel", "one", "other"),
    [
        (p.nt, {"bm": 64, "bn": 64}, {"bm": 128, "bn": 32}),
        (row_maxima, {"bm": 64, "bk": 64}, {"bm": 1, "bk": 256}),
        (places, {"bm": 64, "bk": 64}, {"bm": 16, "bk": 128}),
        (added, {"bm": 64}, {"bm": 16}),
        (of_tiles, {"bm": 64}, {"bm": 16}),
    ],
)
def test_the_same_program_in_other_tiles(kernel: tw.Kernel, one: dict[str, int], other: dict[str, int]) -> None:
    first, second = pair(kernel, one, other)
    require_retiled(first, second)
    require_retiled(second, first)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (added, "tile.reduce over"),
        (of_tiles, "tile.reduce over"),
        (steps, "adds more"),
        (sums_of_maxima, "adds more"),
        (products_of_steps, "over a step"),
        (scanned, "tile.scan over"),
    ],
)
def test_values_of_a_tile_are_seen(kernel: tw.Kernel, words: str) -> None:
    with pytest.raises(ProgramMismatchError, match=words):
        require_retiled(*pair(kernel, {"bk": 64}, {"bk": 128}))


@tw.kernel
def each_program(x: tw.Tensor["M"], c: tw.Tensor["M"], n: tw.Tensor["N"], *, bm=64):
    m = tw.grid(c, bm)
    c[m] = x[m]
    tw.reduce_add(n, 0, 1.0)


def test_programs_that_count_themselves_are_seen() -> None:
    with pytest.raises(ProgramMismatchError, match="atomic_reduce"):
        require_retiled(*pair(each_program, {"bm": 64}, {"bm": 128}))


@tw.kernel
def through(x: tw.Tensor["M"], c: tw.Tensor["M"], *, wide=0):
    m = tw.grid(c, 64)
    c[m] = x[m].to(tw.f32).to(tw.f16 if wide else tw.bf16).to(tw.f32)


def test_conversions_to_another_dtype_are_seen() -> None:
    first, second = pair(through, {"wide": 0}, {"wide": 1})
    with pytest.raises(TilewrightError, match="another dtype"):
        certify_swapped(first, second)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('grid = [#tile.expr<"(M + 31) // 32">', 'grid = [#tile.expr<"(M + 31) // 16">', "programs along"),
        ('#tile.expr<"(N + 63) // 64">]', '#tile.expr<"1 + (N + 63) // 64">]', "another grid"),
        ('trip <"(K + 63) // 64">', 'trip <"$p0 + (K + 63) // 64">', "a stream of"),
        ('"$k0*64", 64, "K"', '"$k0*64", 64, "K - $p0"', "a stream"),
        ('tile.constant <"0.0">', 'tile.constant <"1.0">', "another tile.constant"),
        ("tile.binary <add>", "tile.binary <sub>", "another tile.binary"),
        ("numerics<accurate>", "numerics<fast>", "other numerics"),
    ],
)
def test_edited_programs_are_seen(old: str, new: str, words: str) -> None:
    first, second = pair(p.nt, {"bm": 64}, {"bm": 32})
    text = str(second)
    assert old in text
    other = tile_kernel(text.replace(old, new))
    with pytest.raises(ProgramMismatchError, match=words):
        require_retiled(first, other)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('trip <"(K', 'trip <"$p0 + (K', "a stream of"),
        ('"$k0*64", 64, "K"', '"$k0*64", 64, "K - $p0"', "a stream over"),
    ],
)
def test_what_depends_on_the_program_is_seen(old: str, new: str, words: str) -> None:
    """In both alike: as many steps as the program's number says."""
    texts = [str(kernel) for kernel in pair(p.nt, {"bm": 64}, {"bm": 32})]
    assert all(old in text for text in texts)
    first, second = (tile_kernel(text.replace(old, new)) for text in texts)
    with pytest.raises(ProgramMismatchError, match=words):
        require_retiled(first, second)


@pytest.mark.parametrize(("old", "new"), [('trip <"(K', 'trip <"1 + (K'), ('from <"0">', 'from <"1">')])
def test_steps_that_leave_some_out_are_seen(old: str, new: str) -> None:
    texts = [str(kernel) for kernel in pair(row_maxima, {"bk": 64}, {"bk": 128})]
    first, second = (tile_kernel(text.replace(old, new)) for text in texts)
    with pytest.raises(ProgramMismatchError, match="a stream over"):
        require_retiled(first, second)

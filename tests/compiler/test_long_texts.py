"""Texts that would take the assembler long: smaller tiles, more threads, and candidates that need no try."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Region

import tilewright as tw
from tilewright.compiler import products as products_room
from tilewright.compiler import program as program_room
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.products import CandidateSearch
from tilewright.diag import TilewrightError
from tilewright.jit import Kernel
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.unrolled import instructions, is_long

pytestmark = pytest.mark.sample(1)


@tw.kernel
def many_functions(x: tw.Tensor["M", "N"], p: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    """A tile of 8-bit elements has many: 8192, of which each thread unrolls 32."""
    m, n = tw.grid(y, (bm, bn))
    value = x[m, n]
    for _ in range(8):
        value = tw.tanh(tw.erf(value)) + tw.log(value)
    y[m, n] = tw.where(p[m, n] != 0, value, 0.0)


@tw.kernel
def whole_rows(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], None), tw.axis(x.shape[1], upto=4096)
    value = x[m, n]
    for _ in range(8):
        value = tw.tanh(value) / tw.erf(value)
    y[m, n] = value


def planned(kernel: Kernel, **dtypes: str) -> PlannedKernel:
    return kernel._plan(kernel._ahead("sm_90a", dtypes, None, None, None, {})).variants[-1]


@pytest.mark.parametrize(("kernel", "dtypes"), [(many_functions, {"p": "i8"}), (whole_rows, {})])
def test_a_long_text_is_made_shorter(
    monkeypatch: pytest.MonkeyPatch, kernel: tw.Kernel, dtypes: Mapping[str, str]
) -> None:
    short = planned(Kernel(kernel), **dtypes)
    assert not is_long(short.transport)
    monkeypatch.setattr(program_room, "is_long", lambda _: False)
    assert is_long(planned(Kernel(kernel), **dtypes).transport)


def test_pinned_threads_stay() -> None:
    pinned = whole_rows.compiled._ahead("sm_90a", None, None, tw.Schedule(warps=8), None, {})
    assert whole_rows.compiled._plan(pinned).variants[-1].placement.home.threads == 256


@pytest.mark.slow
def test_the_count_is_of_the_size_of_what_nvrtc_emits() -> None:
    artifact = many_functions.compile(dtypes={"p": "i8"})
    emitted = len(artifact.kernels[-1].ptx.splitlines())
    assert 0.4 * emitted < instructions(planned(Kernel(many_functions), p="i8").transport) < 2.5 * emitted


class _Kernel:
    """Stands for a lowered kernel: its attributes and its body are all that a search asks of it."""

    def __init__(self, text: str) -> None:
        self.attributes = {"text": StringAttr(text)}
        self.body = Region(Block())


def search(
    monkeypatch: pytest.MonkeyPatch, texts: Mapping[tuple[int, Candidate], str]
) -> tuple[CandidateSearch, list[Any]]:
    """A search over these sizes and candidates, and what of them is lowered."""
    tried: list[tuple[int, Candidate]] = []

    def pending() -> Iterator[tuple[Any, Mapping[str, int], Candidate]]:
        for size, candidate in texts:
            yield size, {"bn": size}, candidate

    def attempt(self: CandidateSearch, kernel: Any, candidate: Candidate) -> Any:
        tried.append((kernel, candidate))
        scheduled = products_room.Scheduled(_Kernel(texts[kernel, candidate]), None, (), ())  # type: ignore[arg-type]
        return scheduled, (), True

    monkeypatch.setattr(CandidateSearch, "_try", attempt)
    request = gram.compiled._ahead("sm_90a", None, None, None, None, {})
    return CandidateSearch(request, "k", pending()), tried


@tw.kernel
def gram(a: tw.Tensor["M", 64], c: tw.Tensor["M", "M"]):
    m, n = tw.grid(c, (64, 64))
    c[m, n] = tw.dot(a[m], a[n].T)


def test_tiles_between_which_nothing_fits_are_not_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Candidate(1), Candidate(1, copies=False)
    texts = {(size, one): f"{size}" for size in (256, 192, 128, 64)} | {(256, other): "other"}
    found, tried = search(monkeypatch, texts)
    found.next()
    found.next("4288 bytes spilled")
    found.next("3676 bytes spilled")  # 128 would spill 3064, 64 would spill 2452
    assert tried == [(256, one), (192, one), (256, other)]
    assert [why for _, why in found.refusals[2:]] == [
        "3064 bytes would spill, by what two other tiles did",
        "2452 bytes would spill, by what two other tiles did",
    ]


def test_tiles_that_may_fit_are_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Candidate(1)
    found, tried = search(monkeypatch, {(size, one): f"{size}" for size in (256, 192, 128)})
    found.next()
    found.next("1886 bytes spilled")
    found.next("1004 bytes spilled")
    assert tried[-1] == (128, one)


def test_what_turns_spill_another_warpgroup_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """e4m3 with scales of rows, 128 x 208: 912 bytes in turns are quicker than a tile that two warpgroups share."""
    shared, turns = Candidate(1), Candidate(1, ping_pong=2)
    found, _ = search(monkeypatch, {(208, turns): "turns", (208, shared): "shared"})
    assert found.next().spill_tolerance_bytes >= 912
    assert found.next("not those").spill_tolerance_bytes < 912


def test_a_kernel_that_was_given_up_is_not_assembled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, plain = Candidate(1), Candidate(1, matrix_stores=False)
    found, tried = search(monkeypatch, {(256, stored): "same", (256, plain): "same"})
    found.next()
    with pytest.raises(TilewrightError, match="the same kernel as before"):
        found.next("40 bytes spilled")
    assert len(tried) == 2


def test_lowered_kernels_are_compared_in_full() -> None:
    """With matrix stores, without, and with them again: the third is the first."""
    request = gram.compiled._ahead("sm_90a", {"a": "bf16", "c": "bf16"}, None, None, None, {})
    traced = gram.compiled._plan(request).variants[-1].tile
    tried = [Candidate(1), Candidate(1, matrix_stores=False), Candidate(1)]
    found = CandidateSearch(request, "k", iter([(traced, {}, candidate) for candidate in tried]))
    first, second = found.next().scheduled.kernel, found.next("slow").scheduled.kernel
    assert str(first) != str(second)
    with pytest.raises(TilewrightError, match="the same kernel as before"):
        found.next("slow")

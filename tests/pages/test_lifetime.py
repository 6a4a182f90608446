"""Peaks by phase, reuse windows and the choice of a page size."""

from __future__ import annotations

import random

import pytest

from support.page_cases import cases
from support.page_oracle import Execution
from support.page_programs import random_program
from tilewright import pages
from tilewright.diag import TilewrightError
from tilewright.pages.programs import ops
from tilewright.pages.programs.checker import check


def serve(pool: pages.Pool, requests: pages.Requests) -> None:
    held = pages.slots(requests)
    with pages.phase("prefill"):
        for request in pages.each(requests):
            table = pool.table()
            table.append(100)
            held[request].put(table)
    with pages.phase("decode"):
        scratch = pool.take()
        other = pool.take()
        for _ in pages.repeat("steps"):
            pages.launch("decode", writes=[scratch, other])
        pages.fence()
        scratch.release()
        other.release()
    for request in pages.each(requests):
        held[request].take().release()


def test_peaks_are_told_by_phase() -> None:
    checked = pages.program(serve).check().checked
    plan = pages.plan(checked, requests=10, tokens=100, page_tokens=16)
    assert plan.by_phase == {"prefill": 70, "decode": 65, "": 70}
    assert plan.pages == 70


def test_pages_are_taken_again_around_a_loop() -> None:
    def program(pool: pages.Pool) -> None:
        for _ in pages.repeat("steps"):
            first = pool.take()
            second = pool.take()
            first.release()
            second.release()
        pool.take().release()

    traced = pages.program(program).traced
    base = traced.where.line
    found = {w.released.line - base: [t.line - base for t in w.taken] for w in pages.reuse_windows(traced)}
    assert found == {4: [2, 6], 5: [2, 6], 6: []}


class Counting(Execution):
    """Counts pages of tables as one storage each, as peaks do."""

    most = 0

    def step(self, op: ops.PageOp) -> None:
        super().step(op)
        alive = {id(h.object) for h in (*self.names.values(), *self.cells.values()) if h.object.handles}
        self.most = max(self.most, len(alive))


@pytest.mark.parametrize("seed", range(150))
def test_no_execution_holds_more_than_the_peak(seed: int) -> None:
    program = random_program(seed, 25, 0.0)
    checked = check(program)
    if not checked.legal:
        return
    for run in range(20):
        execution = Counting(program, random.Random(run).randrange)
        execution.run()
        peaks = checked.peaks.values()
        bound = max((p.pages + p.tables for p in peaks), default=0)
        bound += max(execution.requests - 1, 0) * max(
            (p.pages_per_request + p.tables_per_request for p in peaks), default=0
        )
        assert execution.most <= bound


def test_the_page_size_follows_the_lengths() -> None:
    short, _ = pages.choose_page_size([9] * 10, token_bytes=1024)
    source = random.Random(1)
    lengths = [1 + round(source.lognormvariate(8.7, 1.2)) for _ in range(2000)]
    long, choices = pages.choose_page_size(lengths, token_bytes=131072)
    assert (short.page_tokens, long.page_tokens) == (1, 16)
    wasted = {c.page_tokens: c.waste for c in choices}
    mean = sum(lengths) / len(lengths)
    measured, _ = pages.choose_page_size(lengths, token_bytes=131072, slower={16: 0.05, 64: 0.01})
    assert measured.page_tokens == 64
    assert wasted[64] == pytest.approx(31.5 / mean, rel=0.1)
    with pytest.raises(TilewrightError, match="PAG026"):
        pages.choose_page_size([], token_bytes=1)


def test_all_right_programs_have_a_plan() -> None:
    for case in cases("right"):
        checked = pages.program(case.function()).checked
        assert pages.plan(checked, requests=4, tokens=64, page_tokens=16).pages >= 1

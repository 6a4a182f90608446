"""Sequences of pages against a dictionary from positions to tokens: what is appended is read back through tables."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support.slow import rest_slow
from tilewright import pages
from tilewright.diag import TilewrightError
from tilewright.pages import Discharge


def read(memory: np.ndarray, table: pages.BlockTable, row: int) -> list[int]:
    """The tokens of a sequence through its row, as a kernel reads them."""
    size = table.page_tokens
    at = np.arange(table.seq_lens[row])
    return memory[table.block_table[row][at // size], at % size].tolist()


def appended(sequences: list[pages.PageSequence], counts: list[int]) -> pages.Appended | None:
    """None where there are not enough pages."""
    try:
        return pages.append(sequences, counts)
    except TilewrightError as error:
        if error.code != "PAG021":
            raise
        return None


@pytest.mark.parametrize("seed", rest_slow(range(40), 6))
@pytest.mark.parametrize("size", [1, 3, 16])
def test_what_is_appended_is_read_back(size: int, seed: int) -> None:
    source = random.Random(seed)
    pool = pages.PagePool(60, page_tokens=size, log=True)
    memory = np.full((60, size), -1)
    live: list[tuple[pages.PageSequence, list[int]]] = []
    for token in range(1, 120):
        if not live or source.random() < 0.2:
            prompt = [source.randrange(2)] * source.randrange(3 * size)
            made = pages.PageSequence.matched(pool, prompt)
            live.append((made, prompt[: made.length]))
        elif source.random() < 0.15:
            sequence, tokens = source.choice(live)
            live.append((sequence.fork(), list(tokens)))
        if len(live) > 4 or source.random() < 0.1:
            sequence, tokens = live.pop(source.randrange(len(live)))
            sequence.publish(tokens)
            sequence.release()
        chosen = [entry for entry in live if source.random() < 0.7]
        if chosen:
            counts = [source.randrange(1, 2 * size + 1) for _ in chosen]
            done = appended([s for s, _ in chosen], counts)
            if done is None:  # preempt
                live.pop(source.randrange(len(live)))[0].release()
                continue
            memory[done.targets] = memory[done.sources]
            done.copied()
            fresh = [[token % 2] * n for n in counts]
            memory.reshape(-1)[done.slots.slots] = [t for ts in fresh for t in ts]
            assert len(set(done.slots.slots.tolist())) == sum(counts)
            for (_, tokens), new in zip(chosen, fresh, strict=True):
                tokens += new
        if live:
            table = pages.block_table([s for s, _ in live])
            assert [read(memory, table, i) for i in range(len(live))] == [t for _, t in live]
    for sequence, _ in live:
        sequence.release()
    stats = pool.stats()
    assert (stats.held, stats.free + stats.cached) == (0, 60)


def test_a_fork_copies_the_page_that_is_not_full() -> None:
    pool = pages.PagePool(8, page_tokens=4)
    first = pages.PageSequence(pool)
    first.append(6)
    second = first.fork()
    assert pages.block_table([first, second]).unique is Discharge.OPEN
    done = second.append()
    assert (done.sources.tolist(), done.targets.tolist()) == ([first.row[1]], [second.row[1]])
    assert pool.stats().held == 3
    assert pages.block_table([first, second]).unique is Discharge.OPEN, "the copy holds the source"
    done.copied()
    assert pages.block_table([first, second]).unique is Discharge.BY_CONSTRUCTION
    assert first.append().sources.tolist() == []
    assert first.row[0] == second.row[0]


def test_a_copy_that_is_told_twice_gives_its_page_back_once() -> None:
    pool = pages.PagePool(8, page_tokens=4)
    first = pages.PageSequence(pool)
    first.append(6)
    second = first.fork()
    done = second.append()
    done.copied()
    done.copied()
    first.release()
    second.release()
    assert pool.stats().held == 0


def test_the_last_fork_of_a_batch_writes_in_place() -> None:
    pool = pages.PagePool(8, page_tokens=4)
    first = pages.PageSequence(pool)
    first.append(2)
    forks = [first, first.fork(), first.fork()]
    done = pages.append(forks, [1, 1, 1])
    assert (done.sources.tolist(), done.targets.tolist()) == ([0, 0], [1, 2])
    assert [s.row.tolist() for s in forks] == [[1], [2], [0]]
    assert done.slots.slots.tolist() == [6, 10, 2]
    done.copied()
    assert pool.stats().held == 3
    assert pages.block_table(forks).unique is Discharge.BY_CONSTRUCTION


def test_one_sequence_twice_is_not_unique() -> None:
    pool = pages.PagePool(8, page_tokens=4)
    sequence = pages.PageSequence(pool)
    sequence.append(3)
    assert pages.block_table([sequence, sequence]).unique is Discharge.OPEN
    with pytest.raises(TilewrightError, match="PAG026"):
        pages.append([sequence, sequence], [1, 1])


def test_an_append_without_pages_changes_nothing() -> None:
    pool = pages.PagePool(3, page_tokens=4)
    first, other = pages.PageSequence(pool), pages.PageSequence(pool)
    pages.append([first, other], [6, 1])
    second = first.fork()
    before = pool.state()
    with pytest.raises(TilewrightError, match="PAG021"):
        second.append(1)
    with pytest.raises(TilewrightError, match="PAG021"):
        pages.append([other, second], [3, 1])
    assert pool.state() == before
    assert (second.length, other.length, second.row.tolist()) == (6, 1, first.row.tolist())


def test_pages_before_the_window_are_given_back() -> None:
    pool = pages.PagePool(8, page_tokens=4)
    sequence = pages.PageSequence(pool)
    sequence.append(18)
    assert sequence.slide(7) == 2
    assert sequence.slide(7) == 0
    assert sequence.row.tolist()[:2] == [-1, -1]
    assert pool.stats().held == 3
    table = pages.block_table([sequence], pad=0, window=7)
    assert table.block_table[0, :2].tolist() == [0, 0]
    assert table.used().tolist() == [[False, False, True, True, True]]
    fork = sequence.fork()
    sequence.release()
    assert pool.stats().held == 3
    fork.release()
    assert pool.stats().free == 8
    gone = pages.PageSequence(pool)
    gone.append(8)
    gone.slide(1)
    with pytest.raises(TilewrightError, match="PAG026"):
        gone.publish([0] * 8)

"""What is read was written: reads that many writes cover together, against sets of bytes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tilewright.base.verdict import Proved
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o
from tilewright.verify import check

SIZE = 256

Span = tuple[int, int]


def covered(writes: list[Span], read: Span, synchronised: bool = True) -> Protocol:
    """Elected threads of one role write spans of bytes, another role reads one of them behind a barrier."""
    b = Build("covered")
    tile = b.buffer("tile", SIZE)
    with b.role("writer", 32) as w:
        for begin, end in writes:
            w.one(o.Write(tile.at(begin, end - begin)))
        b.sync(w)
    with b.role("reader", 32) as r:
        if synchronised:
            b.sync(r)
        r.all(o.Read(tile.at(read[0], read[1] - read[0])))
        if not synchronised:
            b.sync(r)
    return b.protocol()


@pytest.mark.parametrize("seed", range(20))
def test_reads_of_bytes_that_many_writes_cover(seed: int) -> None:
    rng = random.Random(seed)
    edges = sorted(rng.sample(range(SIZE + 1), 12))
    writes = [(a, b) for a, b in pairwise(edges) if rng.random() < 0.9]
    rng.shuffle(writes)
    written = {byte for a, b in writes for byte in range(a, b)}
    for _ in range(6):
        begin = rng.randrange(SIZE)
        read = begin, rng.randint(begin + 1, SIZE)
        assert isinstance(check(covered(writes, read)), Proved) is written.issuperset(range(*read)), (writes, read)


@pytest.mark.parametrize("seed", range(10))
def test_reads_that_wait_for_nothing_meet_no_write(seed: int) -> None:
    rng = random.Random(seed)
    writes = [(a, a + 8) for a in range(0, 128, 16)]
    begin = rng.randrange(120)
    read = begin, rng.randint(begin + 1, 128)
    assert not isinstance(check(covered(writes, read, synchronised=False)), Proved)

"""What is read was written before, also where no order is asked for: threads with their own parts, queues in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.base.verdict import Proved, Refuted
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust

C = o.Const


def _own_parts(wrong: bool) -> Protocol:
    b = Build("own parts")
    n, x = b.symbol("n"), b.buffer("x", 512)
    with b.role("all", 128) as r, r.loop("i", n):
        if wrong:
            r.all(o.Read(x.whole, private=True))
        r.all(o.Write(x.whole, private=True))
        r.all(o.Read(x.whole, private=True))
    return b.protocol()


def _own_parts_once(wrong: bool) -> Protocol:
    b = Build("own parts once")
    x = b.buffer("x", 512)
    with b.role("all", 128) as r:
        ops = [o.Write(x.whole, private=True), o.Read(x.whole, private=True)]
        for op in reversed(ops) if wrong else ops:
            r.all(op)
    return b.protocol()


def _own_parts_of_stages(wrong: bool) -> Protocol:
    """Wrong: each turn reads the stage of the next one."""
    b = Build("own parts of stages")
    n, x = b.symbol("n"), b.buffer("x", 1024)
    with b.role("all", 128) as r, r.loop("i", n) as i:
        r.all(o.Write(x.at(i % 2 * 512, 512), private=True))
        r.all(o.Read(x.at((i + int(wrong)) % 2 * 512, 512), private=True))
    return b.protocol()


def _stage_read_first(wrong: bool) -> Protocol:
    b = Build("stage read first")
    n, x = b.symbol("n"), b.buffer("x", 1024)
    with b.role("all", 128) as r, r.loop("i", n) as i:
        stage = x.at(i % 2 * 512, 512)
        ops = [o.Write(stage, private=True), o.Read(stage, private=True)]
        for op in reversed(ops) if wrong else ops:
            r.all(op)
    return b.protocol()


def _one_writes_its_part(wrong: bool) -> Protocol:
    """Wrong: one thread writes what it calls its own part, all read theirs."""
    b = Build("one writes its part")
    x = b.buffer("x", 512)
    with b.role("all", 128) as r:
        write = o.Write(x.whole, private=True)
        r.one(write) if wrong else r.all(write)
        r.all(o.Read(x.whole, private=True))
    return b.protocol()


def _scales(wrong: bool) -> Protocol:
    """Scales copied to tensor memory, in the queue of the product that takes them; wrong: behind it."""
    b = Build("scales")
    a = b.buffer("a", 512, initialised=True)
    scales, acc = b.buffer("scales", 32, Space.TMEM), b.buffer("acc", 32, Space.TMEM)
    done = b.mbarrier("done")
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("scales"))
        m.all(o.Tcgen05Alloc("acc"))
        b.init(m)
        ops = [o.Tcgen05Cp(scales.whole, a.whole), o.Tcgen05Mma(acc.whole, (a.whole, scales.whole))]
        for op in reversed(ops) if wrong else ops:
            m.one(op)
        m.one(o.Tcgen05Commit(done[0]))
        m.all(o.Wait(done[0], C(0)))
        m.all(o.Tcgen05Dealloc("scales"))
        m.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


PAIRS = (_own_parts, _own_parts_once, _own_parts_of_stages, _stage_read_first, _one_writes_its_part, _scales)


@pytest.mark.parametrize("build", PAIRS, ids=lambda f: f.__name__)
def test_written_first(build: Callable[[bool], Protocol]) -> None:
    assert isinstance(check(build(False)), Proved)
    assert exhaust(build(False), lambda _, __: 3).finding is None


@pytest.mark.parametrize("build", PAIRS, ids=lambda f: f.__name__)
def test_read_first(build: Callable[[bool], Protocol]) -> None:
    found = check(build(True))
    assert isinstance(found, Refuted)
    assert found.witness.code == "MBR016"

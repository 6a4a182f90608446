"""The control-flow graph: edges with their conditions, dominators against their definition, loops and their nesting."""

from __future__ import annotations

import random

import pytest

from tilewright.diag import TilewrightError
from tilewright.ptx.flow import Flow, graph
from tilewright.ptx.reader import read
from tilewright.ptx.syntax import Guard

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n.entry k() { .reg .pred %p<9>; .reg .b32 %r<9>;\n"


def flow(body: str) -> Flow:
    return graph(read(HEAD + body + "}").entry())


NEST = """
bra.uni outer;
outer: mov.b32 %r1, 0;
inner: add.s32 %r1, %r1, 1;
@%p1 bra inner;
@!%p2 bra outer;
ret;
"""


def test_edges_and_loops_of_a_nest() -> None:
    f = flow(NEST)
    assert [(b.first, b.last) for b in f.blocks] == [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6)]
    assert [(e.target, e.guard) for e in f.blocks[2].out] == [(2, Guard("%p1", False)), (3, Guard("%p1", True))]
    assert [(e.target, e.guard) for e in f.blocks[3].out] == [(1, Guard("%p2", True)), (4, Guard("%p2", False))]
    assert [e.target for e in f.blocks[4].out] == [f.exit]
    assert [(loop.header, sorted(loop.blocks), loop.depth, loop.parent) for loop in f.loops] == [
        (1, [1, 2, 3], 1, None), (2, [2], 2, 0)
    ]  # fmt: skip
    assert f.block_of == (0, 1, 2, 2, 3, 4)
    assert f.order == (0, 1, 2, 3, 4)
    assert f.dominates(1, 4)
    assert not f.dominates(4, 1)


def test_a_diamond_with_guarded_exit() -> None:
    f = flow("@%p1 bra a;\n@%p2 exit;\nbra.uni b;\na: mov.b32 %r1, 1;\nb: ret;")
    assert f.idom == (None, 0, 1, 0, 0)
    assert f.ipdom == (f.exit, f.exit, 4, 4, f.exit)
    assert [(e.target, e.guard) for e in f.blocks[1].out] == [(f.exit, Guard("%p2", False)), (2, Guard("%p2", True))]


def test_two_entries_into_a_loop_are_said_to_be_irreducible() -> None:
    f = flow("@%p1 bra b;\na: mov.b32 %r1, 1;\nb: mov.b32 %r2, 1;\n@%p2 bra a;\nret;")
    assert f.loops == ()
    assert len(f.irreducible) == 1


def test_endless_loops_and_dead_code() -> None:
    f = flow("a: bra a;\nmov.b32 %r1, 1;\n")
    assert f.order == (0,)
    assert f.ipdom[0] is None
    assert f.idom[1] is None
    assert flow("").blocks == ()


def test_indexed_branches() -> None:
    f = flow("t: .branchtargets a, b;\nbrx.idx %r1, t;\na: ret;\nb: trap;")
    assert [(e.target, e.case) for e in f.blocks[0].out] == [(1, 0), (2, 1)]


@pytest.mark.parametrize("body", ["bra x;", "bra;", "brx.idx %r1, x;", "t: .branchtargets x;\nbrx.idx %r1, t;"])
def test_a_branch_to_no_label_is_refused(body: str) -> None:
    with pytest.raises(TilewrightError, match="PTX002"):
        flow(f".shared .b32 x;\n{body}")


def test_dominators_of_random_graphs() -> None:
    """Removing a dominator cuts its block off from the start; a post-dominator, from the end."""
    rng = random.Random(3)
    for _ in range(60):
        n = rng.randint(1, 9)
        f = flow(
            "".join(
                f"L{i}: @%p1 bra L{rng.randrange(n)};\n" + ("ret;\n" if rng.random() < 0.2 else "") for i in range(n)
            )
        )
        forward = {i: [e.target for e in b.out] for i, b in enumerate(f.blocks)} | {f.exit: []}
        backward = {i: [s for s, ts in forward.items() if i in ts] for i in forward}
        for tree, edges, root in ((f.idom, forward, 0), (f.ipdom, backward, f.exit)):
            reached = _reach(edges, root, None)
            for b in range(f.exit):
                strict = {d for d in reached if d != b and b in reached and b not in _reach(edges, root, d)}
                assert _above(tree, b, root) == strict


def _reach(edges: dict[int, list[int]], root: int, without: int | None) -> set[int]:
    seen, stack = set[int](), [root]
    while stack:
        at = stack.pop()
        if at not in seen and at != without:
            seen.add(at)
            stack += edges[at]
    return seen


def _above(tree: tuple[int | None, ...], block: int, root: int) -> set[int]:
    found: set[int] = set()
    at: int | None = block
    while at is not None and at != root:
        at = tree[at]
        if at is not None:
            found.add(at)
    return found

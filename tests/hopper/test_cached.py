"""What L2 keeps: copies of what is not read again are the first that leave it."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import UnitAttr
from xdsl.utils.exceptions import VerifyException

from support import products as p
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport import asynchronous as a


def loads(**known: bool) -> dict[str, bool]:
    """Whether each operand's copies evict first, by its map."""
    found = p.lower(p.nt, Candidate(1, stages=2, **known))
    assert isinstance(found, p.Lowered), found
    kernel = found.scheduled.kernel
    kernel.verify()
    copies = [op for op in kernel.walk() if isinstance(op, a.TmaLoad)]
    return {op.map.owner.hint.data: op.evict_first is not None for op in copies}


@pytest.mark.parametrize(
    ("known", "first"),
    [
        ({}, {"a_map0": False, "b_map1": False}),
        ({"one_row": True}, {"a_map0": False, "b_map1": True}),  # every program of the row reads the other operand
        ({"one_wave": True}, {"a_map0": True, "b_map1": True}),
    ],
)
def test_what_is_not_read_again_leaves_first(known: dict[str, bool], first: dict[str, bool]) -> None:
    assert loads(**known) == first


def test_what_a_cluster_shares_has_no_hint() -> None:
    found = p.lower(p.nt, Candidate(1, stages=2, cluster=(2, 1), one_wave=True))
    assert isinstance(found, p.Lowered), found
    copies = {op.map.owner.hint.data: op for op in found.scheduled.kernel.walk() if isinstance(op, a.TmaLoad)}
    assert [(bool(op.ctas), op.evict_first is not None) for op in copies.values()] == [(False, True), (True, False)]


def test_a_multicast_copy_takes_no_hint() -> None:
    found = p.lower(p.nt, Candidate(1, stages=2, cluster=(2, 1), one_wave=True))
    assert isinstance(found, p.Lowered), found
    shared = next(op for op in found.scheduled.kernel.walk() if isinstance(op, a.TmaLoad) and op.ctas)
    shared.verify()
    shared.attributes["evict_first"] = UnitAttr()
    with pytest.raises(VerifyException, match="hint"):
        shared.verify()

"""Without a replay a breach is not shown by a schedule: the answer is Unknown, and comes without the model checker."""

from __future__ import annotations

import pytest

from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.protocol import from_text
from tilewright.verify import check

RING = """protocol("ring", cluster=1, registers_per_thread=32)
buffer("ab", "shared", 128, offset=0, initialised=False)
with role("writer", 32):
    all(Write(Region("ab", 0, 128)))
    {sync}
with role("reader", 32):
    {sync}
    all(Read(Region("ab", 0, 128)))
"""


def test_a_breach_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, right = from_text(RING.format(sync="pass")), from_text(RING.format(sync="all(CtaSync())"))
    assert isinstance(check(broken), Refuted)

    def explored(*_: object) -> None:
        raise AssertionError("explored")

    monkeypatch.setattr("tilewright.verify.canonical_search.exhaust", explored)
    found = check(broken, replay=False)
    assert isinstance(found, Unknown)
    assert found.reason.endswith("not replayed")
    assert isinstance(check(right, replay=False), Proved)

"""mbarrier.inval: nothing may be on its way to a barrier that ends."""

from __future__ import annotations

import pytest

from tilewright.base.verdict import Proved, Refuted
from tilewright.contract import check
from tilewright.contract.explore import exhaust
from tilewright.protocol import from_text

HEAD = 'protocol("x")\nbuffer("b", "shared", 1024)\nbuffer("acc", "tmem", 32)\nmbarrier("f", 1, COUNT)\n'
COPY = """with role("a", 32):
    elected(MbarrierInit("f"))
    elected(ArriveExpectTx(f[0], 1024))
    elected(TmaLoad(b, f[0]))
    elected(Wait(f[0], 0))
    elected(MbarrierInval("f"))
"""
OTHERS = """with role("c", 32):
    all(CtaSync())
    elected(Arrive(f[0]))
    all(BarSync(1, 64))
with role("a", 32):
    elected(MbarrierInit("f"))
    elected(FenceMbarrierInit())
    all(CtaSync())
    all(BarSync(1, 64))
    elected(MbarrierInval("f"))
"""
ASYNC = """with role("a", 32):
    elected(MbarrierInit("f"))
    elected(CpAsync(b))
    elected(CpAsyncArrive(f[0]))
    elected(Wait(f[0], 0))
    elected(MbarrierInval("f"))
"""
PRODUCT = """with role("a", 32):
    elected(MbarrierInit("f"))
    all(Write(b))
    all(FenceProxyAsync())
    all(Tcgen05Alloc("acc"))
    all(CtaSync())
    elected(Tcgen05Mma(acc, (b,)))
    elected(Tcgen05Commit(f[0]))
    elected(Wait(f[0], 0))
    elected(MbarrierInval("f"))
    all(CtaSync())
    all(Tcgen05Dealloc("acc"))
"""
JOIN = "    all(BarSync(1, 64))\n"
WAIT = "    elected(Wait(f[0], 0))\n"
CASES = {
    "copy": (COPY, 1, WAIT),
    "arrival of another role": (OTHERS, 1, JOIN),
    "arrival in a phase under way": (OTHERS, 2, JOIN),
    "cp.async": (ASYNC, 1, WAIT),
    "tcgen05": (PRODUCT, 1, WAIT),
}


@pytest.mark.parametrize("name", CASES)
def test_a_barrier_ends_behind_what_comes_to_it(name: str) -> None:
    text, count, _ = CASES[name]
    right = from_text(HEAD.replace("COUNT", str(count)) + text)
    assert isinstance(check(right), Proved)
    assert exhaust(right, lambda symbol, at: 1).finding is None


@pytest.mark.parametrize("name", CASES)
def test_not_before(name: str) -> None:
    """Without the wait, or the roles' last barrier."""
    text, count, order = CASES[name]
    proof = check(from_text(HEAD.replace("COUNT", str(count)) + text.replace(order, "")))
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == "MBR021"

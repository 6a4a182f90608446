"""mbarrier.inval: nothing may be on its way to a barrier that ends."""

from __future__ import annotations

import pytest

from tilewright.base.verdict import Proved, Refuted
from tilewright.protocol import from_text
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust

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


AGAIN = """buffer("x", "shared", 1024)
mbarrier("f", 1, 1)
with role("r", 64):
    for t in range(0, TURNS, 1):
        elected(MbarrierInit("f"))
        elected(FenceMbarrierInit())
        all(CtaSync())
        elected(ArriveExpectTx(f[0], 1024))
        elected(TmaLoad(x, f[0]))
        all(Wait(f[0], 0))
        all(Read(x))
        all(FenceProxyAsync())
        all(CtaSync())
        elected(MbarrierInval("f"))
    elected(MbarrierInit("f"))
    elected(FenceMbarrierInit())
    all(CtaSync())
    elected(ArriveExpectTx(f[0], 1024))
    elected(TmaLoad(x, f[0]))
    LAST
    all(Read(x))
"""


@pytest.mark.parametrize("turns", ["1", "3", "n"])
@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("all(Wait(f[0], 0))", ""),
        ("pass", "MBR016"),
        ("elected(Wait(f[0], 0))", "MBR016"),
        ("all(Wait(f[0], 1))", "MBR"),
    ],
)
def test_a_wait_of_a_life_before_tells_nothing_of_this_one(turns: str, last: str, code: str) -> None:
    symbol = 'symbol("n")\n' if turns == "n" else ""
    text = f'protocol("x")\n{symbol}' + AGAIN.replace("TURNS", turns).replace("LAST", last)
    proof, found = check(from_text(text)), exhaust(from_text(text), lambda symbol, at: 2).finding
    assert isinstance(proof, Refuted if code else Proved), proof
    assert (found is not None) == bool(code)
    if isinstance(proof, Refuted):
        assert proof.witness.code.startswith(code)


USED = """protocol("x")
mbarrier("f", 1, 1)
with role("b", 32):
    all(CtaSync())
    USE
    BEHIND
with role("a", 32):
    elected(MbarrierInit("f"))
    elected(FenceMbarrierInit())
    all(CtaSync())
    elected(Arrive(f[0]))
    BEHIND
    elected(MbarrierInval("f"))
"""


@pytest.mark.parametrize(
    "use", ["elected(TestWait(f[0], 0))", "elected(Wait(f[0], 0))\n    all(WarpSync())\n    elected(Wait(f[0], 0))"]
)
def test_a_barrier_ends_behind_tests_and_repeated_waits(use: str) -> None:
    right = from_text(USED.replace("USE", use).replace("BEHIND", "all(CtaSync())"))
    assert isinstance(check(right), Proved)
    wrong = use.replace("all(WarpSync())", "all(CtaSync())")  # of which the last wait is behind the barrier
    text = USED.replace("USE", wrong)
    text = (
        text.replace("BEHIND", "pass")
        if wrong == use
        else text.replace("BEHIND", "pass", 1).replace("BEHIND", "all(CtaSync())")
    )
    proof = check(from_text(text))
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == "MBR021"
    assert exhaust(from_text(text), lambda symbol, at: 1).finding is not None


def test_a_barrier_is_initialised_behind_its_end() -> None:
    """By another role, which the last one must have told."""
    text = """protocol("x")
mbarrier("f", 1, 1)
with role("a", 32):
    elected(MbarrierInit("f"))
    elected(FenceMbarrierInit())
    elected(MbarrierInval("f"))
    all(CtaSync())
with role("b", 32):
    FIRST
    elected(MbarrierInit("f"))
    LAST
"""
    right = from_text(text.replace("FIRST", "all(CtaSync())").replace("LAST", "pass"))
    assert isinstance(check(right), Proved)
    assert exhaust(right, lambda symbol, at: 1).finding is None
    wrong = from_text(text.replace("FIRST", "pass").replace("LAST", "all(CtaSync())"))
    proof = check(wrong)
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == "MBR021"
    assert exhaust(wrong, lambda symbol, at: 1).finding is not None

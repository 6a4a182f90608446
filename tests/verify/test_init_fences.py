"""Initialisations that a barrier of the CTA orders, without a fence: proved with a warning, in one CTA alone."""

from __future__ import annotations

from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.diag import Severity
from tilewright.protocol.model import Protocol
from tilewright.protocol.text import from_text
from tilewright.verify import check
from tilewright.verify.check import verify
from tilewright.verify.parametric import METHOD, prove

_TEXT = """protocol("copied", cluster=1)
buffer("x", "shared", 64, offset=0, initialised=False)
mbarrier("full", 1, 1)
with role("a", 32):
    elected(MbarrierInit("full"))
    all(FenceMbarrierInit())
    all(CtaSync())
    elected(ArriveExpectTx(Slot("full"), 64))
    elected(TmaLoad(Region("x", 0, 64), Slot("full")))
with role("b", 32):
    all(CtaSync())
    all(Wait(Slot("full"), 0))
    all(Read(Region("x", 0, 64)))
"""


def copied(*, fence: bool, cluster: int = 1, met: bool = True) -> Protocol:
    """A copy by one warp for another, which meet before it."""
    text = _TEXT.replace("cluster=1", f"cluster={cluster}")
    text = text if fence else text.replace("    all(FenceMbarrierInit())\n", "")
    return from_text(text if met else text.replace("    all(CtaSync())\n", ""))


def test_an_initialisation_without_a_fence_is_proved_with_a_warning() -> None:
    answer = verify(copied(fence=False))
    assert answer.certificate is not None
    assert {o.method for o in answer.certificate.obligations} == {METHOD}
    assert [(d.code, d.severity) for d in answer.diagnostics] == [("MBR022", Severity.WARNING)]
    assert len(answer.certificate.warnings) == 1


def test_with_the_fence_there_is_no_warning() -> None:
    answer = verify(copied(fence=True))
    assert isinstance(answer.proof, Proved)
    assert not answer.diagnostics


def test_an_initialisation_has_to_be_ordered() -> None:
    for fence in (False, True):
        unmet = copied(fence=fence, met=False)
        assert isinstance(prove(unmet), Unknown)
        assert isinstance(check(unmet), Refuted)


def test_in_a_cluster_the_fence_is_needed() -> None:
    assert isinstance(prove(copied(fence=True, cluster=2)), Proved)
    assert isinstance(prove(copied(fence=False, cluster=2)), Unknown)
    assert isinstance(check(copied(fence=False, cluster=2)), Refuted)

"""Other CTAs in a canonical run: they must run when they are touched, and outlive it."""

from __future__ import annotations

from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.state import S, Stream, begun
from tilewright.verify.rules import Rule


def note_remote(x: StepExecution, target: int) -> None:
    """A peer's barrier or memory is touched: the peer must run, and outlive it."""
    if not x.a.clock[S] >> begun(target) & 1:
        detail = f"CTA {target} may not run yet when {x.label} touches it"
        raise x.breach(Rule.PEER_START, detail)
    x.st.remote[target, x.agent.index] = x.a.epoch


def outlives(x: StepExecution, target: int, stream: Stream, seq: int) -> None:
    """A CTA must know, at its end, that a stream which reaches its memory or barriers is done so far."""
    x.st.outlived[target, x.agent.index, stream] = seq

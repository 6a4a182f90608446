"""What an op does, in a few words: the same in a timed run, in a critical cycle and in a picture of both."""

from __future__ import annotations

from tilewright.protocol import ops


def issued(op: ops.Op) -> str:
    """What the threads do that execute it."""
    match op:
        case ops.Read(region=region):
            return f"reads {region.buffer}"
        case ops.Write(region=region):
            return f"writes {region.buffer}"
        case ops.TmaLoad(dst=moved) | ops.CpAsync(dst=moved) | ops.DsmemCopy(dst=moved) | ops.TmaStore(src=moved):
            return f"{type(op).__name__} {moved.buffer}"
        case _:
            bar = getattr(op, "bar", None)
            return type(op).__name__ + (f" {bar.barrier}" if isinstance(bar, ops.Slot) else "")


def served(op: ops.Op, role: str) -> str:
    """What an engine does for a role."""
    match op:
        case ops.TmaLoad(dst=moved) | ops.CpAsync(dst=moved) | ops.DsmemCopy(dst=moved) | ops.TmaStore(src=moved):
            return moved.buffer
        case _:
            return f"{role}: product"


__all__ = ["issued", "served"]

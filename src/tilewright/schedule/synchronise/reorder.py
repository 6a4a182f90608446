"""Moves waits down past independent ops, to the first step that needs them."""

from __future__ import annotations

from dataclasses import replace

from tilewright.protocol import ops
from tilewright.protocol.independence import independent
from tilewright.protocol.model import If, Loop, Node, Protocol, Step


def late_waits(protocol: Protocol) -> Protocol:
    """The protocol with every wait as late as independence allows."""
    return replace(protocol, roles=tuple(replace(r, body=_sunk(protocol, r.body)) for r in protocol.roles))


def _sunk(protocol: Protocol, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        match node:
            case Step():
                out.append(node)
            case Loop():
                out.append(replace(node, body=_sunk(protocol, node.body)))
            case If():
                out.append(replace(node, then=_sunk(protocol, node.then), otherwise=_sunk(protocol, node.otherwise)))
    for i in range(len(out) - 2, -1, -1):
        at, node = i, out[i]
        if not isinstance(node, Step) or not isinstance(node.op, ops.Wait | ops.BulkWait | ops.WgmmaWait):
            continue
        while at + 1 < len(out) and independent(protocol, node, out[at + 1]):
            out[at], out[at + 1] = out[at + 1], out[at]
            at += 1
        if at + 1 == len(out):  # nothing here needs it: it is for what comes after, and stays
            out.insert(i, out.pop(at))
    return tuple(out)

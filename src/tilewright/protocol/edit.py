"""Protocols changed at one place: steps replaced, dropped, put in between.

A ``Spot`` says where a node stands: its role, then positions in nested bodies. In an ``If`` the positions of
``otherwise`` go on behind those of ``then``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.protocol.model import If, Loop, Node, Protocol, Step


@dataclass(frozen=True, order=True)
class Spot:
    """Where a node stands in a protocol."""

    role: int
    path: tuple[int, ...]


@dataclass(frozen=True)
class Insertion:
    """A step to put before, or behind, the node at ``spot``."""

    spot: Spot
    step: Step
    behind: bool = False


Edit = Callable[[Spot, Step], tuple[Node, ...]]
"""What to put in place of a step."""


def spots(protocol: Protocol) -> Iterator[tuple[Spot, Step]]:
    """All steps with their places, in order of text."""
    for i, role in enumerate(protocol.roles):
        yield from ((Spot(i, path), step) for path, step in _steps(role.body, (), 0))


def _steps(nodes: tuple[Node, ...], path: tuple[int, ...], first: int) -> Iterator[tuple[tuple[int, ...], Step]]:
    for i, node in enumerate(nodes, first):
        match node:
            case Step():
                yield (*path, i), node
            case Loop():
                yield from _steps(node.body, (*path, i), 0)
            case If():
                yield from _steps(node.then, (*path, i), 0)
                yield from _steps(node.otherwise, (*path, i), len(node.then))


def step_at(protocol: Protocol, spot: Spot) -> Step:
    """The step at a place."""
    return next(step for found, step in spots(protocol) if found == spot)


def rewritten(protocol: Protocol, edit: Edit) -> Protocol:
    """The protocol with every step replaced by what ``edit`` makes of it. Places are those of the original."""
    roles = tuple(replace(role, body=_rewritten(role.body, i, (), 0, edit)) for i, role in enumerate(protocol.roles))
    return replace(protocol, roles=roles)


def apart(protocol: Protocol) -> Protocol:
    """The same protocol, each place with a ``Step`` of its own: who tells places by their step can't mix two up that
    hold the same one."""
    return rewritten(protocol, lambda _, step: (Step(step.op, step.by, step.where, step.note),))


def _rewritten(nodes: tuple[Node, ...], role: int, path: tuple[int, ...], first: int, edit: Edit) -> tuple[Node, ...]:
    out: list[Node] = []
    for i, node in enumerate(nodes, first):
        match node:
            case Step():
                out.extend(edit(Spot(role, (*path, i)), node))
            case Loop():
                out.append(replace(node, body=_rewritten(node.body, role, (*path, i), 0, edit)))
            case If():
                then = _rewritten(node.then, role, (*path, i), 0, edit)
                otherwise = _rewritten(node.otherwise, role, (*path, i), len(node.then), edit)
                out.append(replace(node, then=then, otherwise=otherwise))
    return tuple(out)


def replaced(protocol: Protocol, spot: Spot, *nodes: Node) -> Protocol:
    """The protocol with other nodes in place of the step at ``spot``; without any it is dropped."""
    return rewritten(protocol, lambda here, step: nodes if here == spot else (step,))


def without(protocol: Protocol, dropped: frozenset[Spot]) -> Protocol:
    """The protocol without the steps at these places."""
    return rewritten(protocol, lambda here, step: () if here in dropped else (step,))


def inserted(protocol: Protocol, insertions: Sequence[Insertion]) -> Protocol:
    """The protocol with steps put in; those at one place in their order."""
    roles = tuple(replace(r, body=_with(r.body, i, (), 0, insertions)) for i, r in enumerate(protocol.roles))
    return replace(protocol, roles=roles)


def _with(
    nodes: tuple[Node, ...], role: int, path: tuple[int, ...], first: int, insertions: Sequence[Insertion]
) -> tuple[Node, ...]:
    out: list[Node] = []
    for i, node in enumerate(nodes, first):
        here = Spot(role, (*path, i))
        out += [x.step for x in insertions if x.spot == here and not x.behind]
        match node:
            case Step():
                out.append(node)
            case Loop():
                out.append(replace(node, body=_with(node.body, role, here.path, 0, insertions)))
            case If():
                then = _with(node.then, role, here.path, 0, insertions)
                otherwise = _with(node.otherwise, role, here.path, len(node.then), insertions)
                out.append(replace(node, then=then, otherwise=otherwise))
        out += [x.step for x in insertions if x.spot == here and x.behind]
    return tuple(out)

"""Edits of a protocol at one position: replace, drop or insert steps.

A ``NodePath`` names a node: its role, then indices into nested bodies. In an ``If`` the indices of ``otherwise``
follow those of ``then``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.protocol.model import If, Loop, Node, Protocol, Step, body_of


@dataclass(frozen=True, order=True)
class NodePath:
    """The path to a node of a protocol."""

    role: int
    path: tuple[int, ...]


@dataclass(frozen=True)
class Insertion:
    """A step to insert before, or after, the node at ``spot``."""

    spot: NodePath
    step: Step
    behind: bool = False


Edit = Callable[[NodePath, Step], tuple[Node, ...]]
"""The replacement of a step."""

NodeEdit = Callable[[NodePath, Node], tuple[Node, ...]]
"""The replacement of a node."""


def spots(protocol: Protocol) -> Iterator[tuple[NodePath, Step]]:
    """All steps with their places, in order of text."""
    for i, role in enumerate(protocol.roles):
        yield from ((NodePath(i, path), step) for path, step in _steps(role.body, ()))


def _steps(nodes: tuple[Node, ...], path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Step]]:
    for i, node in enumerate(nodes):
        if isinstance(node, Step):
            yield (*path, i), node
        else:
            yield from _steps(body_of(node), (*path, i))


def step_at(protocol: Protocol, spot: NodePath) -> Step:
    """The step at a place."""
    return next(step for found, step in spots(protocol) if found == spot)


def rewritten(protocol: Protocol, edit: Edit) -> Protocol:
    """The protocol with every step replaced by what ``edit`` makes of it. Places are those of the original."""
    return _each(protocol, edit, lambda _, node: (node,))


def _each(protocol: Protocol, edit: Edit, around: NodeEdit) -> Protocol:
    """The protocol with every step replaced, then every loop and branch by what ``around`` makes of it."""
    roles = (replace(r, body=_rewritten(r.body, i, (), 0, edit, around)) for i, r in enumerate(protocol.roles))
    return replace(protocol, roles=tuple(roles))


def apart(protocol: Protocol) -> Protocol:
    """The same protocol with a distinct ``Step`` object at each position, so that steps can be keys of positions."""
    return rewritten(protocol, lambda _, step: (Step(step.op, step.by, step.where, step.note),))


def _rewritten(
    nodes: tuple[Node, ...], role: int, path: tuple[int, ...], first: int, edit: Edit, around: NodeEdit
) -> tuple[Node, ...]:
    out: list[Node] = []
    for i, node in enumerate(nodes, first):
        here = (*path, i)
        match node:
            case Step():
                out.extend(edit(NodePath(role, here), node))
            case Loop():
                body = _rewritten(node.body, role, here, 0, edit, around)
                out.extend(around(NodePath(role, here), replace(node, body=body)))
            case If():
                then = _rewritten(node.then, role, here, 0, edit, around)
                otherwise = _rewritten(node.otherwise, role, here, len(node.then), edit, around)
                out.extend(around(NodePath(role, here), replace(node, then=then, otherwise=otherwise)))
    return tuple(out)


def replaced(protocol: Protocol, spot: NodePath, *nodes: Node) -> Protocol:
    """The protocol with other nodes in place of the step at ``spot``; without any it is dropped."""
    return rewritten(protocol, lambda here, step: nodes if here == spot else (step,))


def without(protocol: Protocol, dropped: frozenset[NodePath]) -> Protocol:
    """The protocol without the steps at these places."""
    return rewritten(protocol, lambda here, step: () if here in dropped else (step,))


def inserted(protocol: Protocol, insertions: Sequence[Insertion]) -> Protocol:
    """The protocol with steps put in; those at one place in their order."""

    def edit(spot: NodePath, node: Node) -> tuple[Node, ...]:
        here = [x for x in insertions if x.spot == spot]
        return *(x.step for x in here if not x.behind), node, *(x.step for x in here if x.behind)

    return _each(protocol, edit, edit)

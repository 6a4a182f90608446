"""Integers that a plan of ours made, as opaque handles: what ``tw.Unique`` promises of them holds by construction.

A launch that gets a handle leaves out the steps that check the promise. So a handle owns its integers: the plan alone
wrote them, they lie in memory that no name of the plan shows, and they are handed out as copies only. What is trusted:
nobody reaches into private attributes, or writes memory by an address; and the ids that the plan was made of did not
change while it was made.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.diag import fail, type_shown
from tilewright.lang.params import KernelFunction
from tilewright.lang.tensors import Promise


class PlannedIndices:
    """Integers of which no two are one place, for a ``tw.Unique`` parameter: ``tw.build_pack_plan(..., unique=True)``
    makes them. Read-only; ``copy()`` gives a tensor, which has lost that it is known to be unique."""

    __slots__ = ("__tensor", "__what")

    def __init__(self, tensor: Any, what: str, *, by: object = None) -> None:
        if by is not _PLANS:
            fail(
                "JIT012",
                found=f"PlannedIndices of {type_shown(tensor)}",
                required="integers that a plan made",
                help="take plan.unique_slots of tw.build_pack_plan(ids, buckets, unique=True); others are checked",
            )
        object.__setattr__(self, "_PlannedIndices__tensor", tensor)
        object.__setattr__(self, "_PlannedIndices__what", what)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.__tensor.shape)

    def copy(self) -> Any:
        """The integers in a tensor of their own, which a launch checks like any other."""
        return copied(self.__tensor)

    def __repr__(self) -> str:
        return f"<{self.__what}, {self.shape}, unique by construction>"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: indices of a plan are read-only")

    __delattr__: Any = __setattr__

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("indices of a plan are neither copied nor pickled: copy() gives a tensor")


_PLANS = object()
"""Known to those who make plans."""


def planned(tensor: Any, what: str) -> PlannedIndices:
    """A handle of integers that a plan has just made, which nothing else holds; for plans alone."""
    if hasattr(tensor, "setflags"):
        tensor.setflags(write=False)
    return PlannedIndices(tensor, what, by=_PLANS)


def copied(tensor: Any) -> Any:
    """A tensor or array of its own with the same elements."""
    return tensor.clone() if hasattr(tensor, "clone") else tensor.copy()


def opened(function: KernelFunction, given: dict[str, object]) -> tuple[frozenset[str], dict[str, object]]:
    """The arguments with handles replaced by their tensors, and which of them were handles; JIT001 for a handle passed
    for a parameter that is not ``tw.Unique``."""
    names = frozenset(name for name, value in given.items() if isinstance(value, PlannedIndices))
    unique = {t.name for t in function.tensors if t.promise is Promise.UNIQUE}
    for name in sorted(names - unique):
        fail(
            "JIT001",
            found=f"{name} = {given[name]!r}",
            required=f"a tensor: {name} is no tw.Unique",
            help=f"pass {name}.copy(), or the plan's own array",
        )
    held = {name: getattr(given[name], "_PlannedIndices__tensor") for name in names}  # noqa: B009 - private to this file
    return names, given | held

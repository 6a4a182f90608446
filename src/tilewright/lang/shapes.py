"""``Shape``: the extents of a tensor or a tile, a tuple whose misuse is refused at the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypeVar

from tilewright.diag import shown
from tilewright.lang.source_locations import refuse

E = TypeVar("E")


class Shape(tuple[E, ...]):
    """An extent for each axis: an int, of a tensor also a Scalar."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker knows what a tuple has

        def __getitem__(self, key):
            try:
                return super().__getitem__(key)
            except (IndexError, TypeError):
                refuse(
                    "LNG025",
                    found=f"dimension {shown(key)} of a shape of {len(self)}",
                    required=f"a dimension of {-len(self)} to {len(self) - 1}" if self else "no dimension",
                    help="count dimensions from 0",
                )

        def __call__(self, *args, **kwargs) -> NoReturn:
            written = ", ".join(map(str, args))
            refuse(
                "LNG041",
                found=f"x.shape({written}) calls a tuple",
                required="x.shape[0] of a dimension",
                help=f"x.shape[{written}]" if written else "x.shape",
            )

"""The specialisation of a kernel before it is traced: dtypes, extents and keywords."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from tilewright.base.dtypes import DType
from tilewright.base.expr import Expr
from tilewright.base.number import kind_of
from tilewright.diag import shown
from tilewright.lang.params import KERNEL_OPTIONS, KernelFunction
from tilewright.lang.source_locations import refuse

DEFAULT_EXTENT = 16
"""Extent of a ``tw.auto`` axis when a kernel is traced before the schedule has chosen."""


@dataclass(frozen=True)
class Signature:
    """Everything the trace depends on, each part sorted by name.

    ``dtypes`` per tensor; ``static`` extents fixed at compile time, by dimension name; ``keywords`` compile-time values
    that differ from their defaults; ``extents`` of the keywords left to the schedule;
    ``limits`` narrow the tiles of ``tw.axis(extent, upto=...)`` for a variant that serves shorter axes only.
    """

    dtypes: tuple[tuple[str, DType], ...]
    static: tuple[tuple[str, int], ...] = ()
    keywords: tuple[tuple[str, Hashable], ...] = ()
    extents: tuple[tuple[str, int], ...] = ()
    limits: tuple[tuple[Expr, int], ...] = ()
    kinds: tuple[Hashable, ...] = ()
    """What keywords that equal each other may differ in."""

    @staticmethod
    def of(
        dtypes: Mapping[str, DType],
        *,
        static: Mapping[str, int] | None = None,
        keywords: Mapping[str, Hashable] | None = None,
        extents: Mapping[str, int] | None = None,
    ) -> Signature:
        """A signature from mappings."""
        named = tuple(sorted((keywords or {}).items(), key=lambda kv: kv[0]))
        return Signature(
            tuple(sorted(dtypes.items())),
            tuple(sorted((static or {}).items())),
            named,
            tuple(sorted((extents or {}).items())),
            kinds=tuple(kind_of(value) for _, value in named),
        )

    def with_extents(self, extents: Mapping[str, int], limits: tuple[tuple[Expr, int], ...]) -> Signature:
        """The same with tile extents chosen by the schedule, and narrower tiles for ``upto`` axes."""
        return replace(self, extents=tuple(sorted(extents.items())), limits=limits)


def check_signature(kernel: KernelFunction, signature: Signature) -> None:
    """Refuse (LNG029) a signature that names what the kernel has not, or leaves out what it needs."""
    _check(
        kernel, "dtype for the tensor", (n for n, _ in signature.dtypes), [t.name for t in kernel.tensors], all_=True
    )
    _check(kernel, "static extent of the dimension", (n for n, _ in signature.static), list(kernel.dims))
    for name, value in signature.keywords:
        if name in KERNEL_OPTIONS and name not in {k.name for k in kernel.keywords}:
            found = f"{name}={shown(value)} for one compilation"
            _refuse(kernel, found, "an option of the kernel", f"write @tw.kernel({name}={shown(value)})")
    _check(kernel, "value for the keyword", (n for n, _ in signature.keywords), [k.name for k in kernel.keywords])
    _check(kernel, "extent of the keyword", (n for n, _ in signature.extents), list(kernel.autos))
    given = {n for n, _ in signature.keywords}
    for param in kernel.keywords:
        if param.required and param.name not in given:
            _refuse(kernel, f"no value for the keyword {param.name}", "a value for every keyword without a default")
    for name, extent in (*signature.static, *signature.extents):
        if type(extent) is not int or extent < 1:
            _refuse(kernel, f"{name} = {shown(extent)}", "an int of at least 1", f"write {name!r}: 4096")


def _check(kernel: KernelFunction, what: str, names: Iterable[str], known: list[str], *, all_: bool = False) -> None:
    given = list(names)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            _refuse(
                kernel,
                f"{'an' if what[0] in 'aeiou' else 'a'} {what} {name!r}",
                f"one of {', '.join(known)}" if known else f"none: {kernel.name} has no {what.rpartition(' the ')[2]}",
                f"did you mean {near[0]!r}?" if near else "",
            )
    missing = [name for name in known if name not in given]
    if all_ and missing:
        _refuse(kernel, f"no {what} {missing[0]!r}", "one for each of " + ", ".join(known))


def _refuse(kernel: KernelFunction, found: str, required: str, help: str = "") -> NoReturn:
    refuse(
        "LNG029",
        where=kernel.where,
        found=found,
        required=required,
        help=help or f"see the parameters of {kernel.name}",
    )

"""Proves that programs which were rewritten before they were scheduled compute what the kernel says.

    swapped    op by op the kernel's own, where a value may be held transposed: ``(a b)^T = b^T a^T``
    split      of ``f = 0; for i < T: f += X(i); rest`` one kernel sums ``X(s * per + j)`` over ``j`` for each part s,
               the other one adds the parts, and does the rest; so too of ``f = max(f, X(i))`` and ``min``, from any
               number, which each part begins with. With ``per = ceil(T / parts)`` and ``parts >= 1`` every
               i below T is ``s * per + j`` of one part and one j below ``min(per, T - s * per)``; the order of sums is
               free (docs/language.md). That all sums are there when they are read, ``proofs.steps`` proves.
    rest       the kernel's own without its streams, for launches in which none of them has a step
    clustered  the same in one kernel, each of whose programs s sums up a part of as many steps, adds its share of the
               columns of all parts, and does the rest for it. Steps from T on add products over no elements.

Both sides are walked together, ops that nothing uses left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import (
    OWN,
    TRUE,
    Any_,
    Compare,
    Expr,
    Sym,
    conjuncts,
    simplify,
)
from tilewright.compiler.proofs.program_match import (
    Names,
    ProgramMatch,
    ProgramMismatchError,
    RestMatch,
    is_empty,
    require_same_frame,
)
from tilewright.compiler.proofs.split_programs import match_cluster_parts, match_combine, match_product, match_shares
from tilewright.diag import TilewrightError, fail
from tilewright.tile import dialect as tile


class RewrittenKernel(Protocol):
    """A launched kernel with the programs that it was derived from, if it was rewritten: at its extents, and at those
    of its shares."""

    @property
    def tile(self) -> tile.Kernel: ...
    @property
    def originals(self) -> tuple[tile.Kernel, ...]: ...
    @property
    def binding(self) -> Mapping[str, Expr]: ...


def certify_rewritten(kernels: Sequence[RewrittenKernel], predicate: Expr) -> tuple[Obligation, ...]:
    """The obligations of a variant's kernels, in order, of which the last one, or the last two together, may be
    rewritten; ``predicate`` holds in its launches. CRT003 for one that does not hold."""
    found = [(kernel.originals, kernel.tile, kernel.binding) for kernel in kernels if kernel.originals]
    match found:
        case []:
            return ()
        case [((whole,), made, _)]:
            return (
                certify_rest(whole, made, predicate)
                if not any(isinstance(op, tile.Dot) for op in made.walk())
                else certify_swapped(whole, made),
            )
        case [((whole, shares), made, _)]:
            return (certify_clustered(whole, shares, made),)
        case [((whole,), product, given), ((same,), combine, other)]:
            if given != other:
                _refuse("split", "two kernels that are told of other parts")
            return (certify_split((whole, same), product, combine, given),)
        case _:
            _refuse("split", f"{len(found)} kernels that were rewritten")


def certify_swapped(whole: tile.Kernel, made: tile.Kernel) -> Obligation:
    """The obligation of a kernel with swapped operands; CRT003 where the programs differ."""
    try:
        require_same_frame(whole, made, [extent.expr for extent in whole.grid])
        match = ProgramMatch({})
        match.arguments(whole, made)
        match.block(whole.body.block, made.body.block)
    except ProgramMismatchError as why:
        _refuse("swapped", f"{made.sym_name.data}: {why}")
    return Obligation("swapped", "identity", "(a b)^T = b^T a^T")


def certify_rest(whole: tile.Kernel, made: tile.Kernel, predicate: Expr) -> Obligation:
    """The obligation of a kernel that is ``whole`` where an extent is 0, as ``predicate`` says: without streams of no
    steps, and with zeros for products over no elements; CRT003 where the programs differ."""
    try:
        cases = (each.args if isinstance(each, Any_) else (each,) for each in conjuncts(predicate))
        extents = [names for several in cases if (names := _extents_of_0(several))]
        found = next((names for names in extents if all(_without(whole, made, name) for name in names)), None)
        if found is None:
            raise ProgramMismatchError(f"streams may have steps where {predicate}")
        require_same_frame(whole, made, [extent.expr for extent in whole.grid])
        for name in found:
            match = RestMatch(name)
            match.arguments(whole, made)
            match.block(whole.body.block, made.body.block)
    except ProgramMismatchError as why:
        _refuse("rest", f"{made.sym_name.data}: {why}")
    return Obligation("rest", "identity", f"no stream has a step where {predicate}")


def is_rest(whole: tile.Kernel, made: tile.Kernel, predicate: Expr) -> bool:
    """Whether that obligation holds."""
    try:
        certify_rest(whole, made, predicate)
    except TilewrightError:
        return False
    return True


def _extents_of_0(cases: Sequence[Expr]) -> list[str]:
    """The extents of which each case of a predicate says that one is 0; none for other predicates."""
    extents = [c.lhs.name for c in cases if isinstance(c, Compare) and isinstance(c.lhs, Sym) and c == c.lhs.eq(0)]
    return extents if len(extents) == len(cases) else []


def _without(whole: tile.Kernel, made: tile.Kernel, extent: str) -> bool:
    """As many streams may have a step where the extent is 0 as there are in ``made``, and less is computed."""
    streams, left = ([op for op in kernel.walk() if isinstance(op, tile.StreamLoop)] for kernel in (whole, made))
    products = [op for op in whole.walk() if isinstance(op, tile.Dot)]
    may = [op for op in streams if not is_empty(op, extent)]
    if len(left) == len(streams) and not any(is_empty(op, extent) for op in products):
        raise ProgramMismatchError("no streams that it is without, and no products over nothing")
    return len(may) == len(left)


def certify_split(
    originals: tuple[tile.Kernel, tile.Kernel], product: tile.Kernel, combine: tile.Kernel, given: Names
) -> Obligation:
    """The obligation of split-K by two kernels; CRT003 where they are not the program. ``originals`` is the program at
    the extents of ``product`` and of ``combine``, ``given`` the values of their symbols at launch."""
    try:
        parts = product.grid.data[0].expr
        count = parts.substitute(given)
        least = dict.fromkeys(count.symbols, (0, None))
        if simplify(count >= 1, least) != TRUE or any(OWN in name or "." in name for name in count.symbols):
            raise ProgramMismatchError(f"{count} parts")
        stored = match_product(originals[0], product, parts)
        loaded = match_combine(originals[1], combine, parts)
        if stored != loaded:
            raise ProgramMismatchError(
                f"sums stored to {', '.join(map(str, stored))}, loaded from {', '.join(map(str, loaded))}"
            )
    except ProgramMismatchError as why:
        _refuse("split", str(why))
    return Obligation("split", "identity", f"{count} parts, each step in one of them")


def certify_clustered(whole: tile.Kernel, shares: tile.Kernel, made: tile.Kernel) -> Obligation:
    """The obligation of split-K in a cluster; CRT003 where the kernel is not the program. ``whole`` is the program at
    the extents of a part's tiles, ``shares`` at those of a share of the sums."""
    try:
        parts = made.grid.data[-1].expr.constant
        if parts is None or parts < 1:
            raise ProgramMismatchError("programs that are no parts")
        totals, rest = match_cluster_parts(whole, made, int(parts))
        match_shares(shares, made, int(parts), totals, rest)
    except ProgramMismatchError as why:
        _refuse("clustered", f"{made.sym_name.data}: {why}")
    said = f"{parts} parts, each step in one of them, each column in one share"
    return Obligation("clustered", "identity", said)


def _refuse(obligation: str, found: str) -> NoReturn:
    fail("CRT003", found=f"{obligation}: {found}", required="the program that was written")

"""Between the kinds of layout: conversions (partial, with the reason), equality with its proof, and inclusion.

Every kind is a map from an index (the first axis fastest) to one number per output:

    CuteLayout, ComposedLayout   index -> offset               F2Layout        packed input -> output axes
    AffineLayout                 digits -> outputs             PiecewiseLayout coordinates -> outputs
    RegisterLayout               register, lane, warp -> tile coordinate

``equal`` decides by the strongest form both sides have: bits or strides (``equality``), affine canonical forms
(``smith``: unique per map), Presburger maps (``isl``, symbols allowed), or the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from tilewright.base.expr import Mod
from tilewright.diag import TilewrightError, fail
from tilewright.layout import equality, gf2_vectors
from tilewright.layout.cute import CuteLayout
from tilewright.layout.equality import Different, Equal, ProofKind
from tilewright.layout.f2 import F2Layout
from tilewright.layout.int_tuple import leaves
from tilewright.layout.library.affine import AffineLayout, Column
from tilewright.layout.library.affine_queries import Lift, lift
from tilewright.layout.library.piecewise import PiecewiseLayout
from tilewright.layout.register import RegisterLayout, Repeat
from tilewright.layout.swizzle import ComposedLayout

Core: TypeAlias = CuteLayout | ComposedLayout | F2Layout
Layout: TypeAlias = Core | AffineLayout | PiecewiseLayout | RegisterLayout

MOST_POINTS = 1 << 22
"""Largest table that is compared by listing it."""

# -- to affine ------------------------------------------------------------------------------------------------------


def affine_of(layout: Layout) -> AffineLayout:
    """As an affine layout (LAY010 with the reason where it is none): CuTe modes become axes dim0, dim1, ... of digits,
    F2 axes and register axes become axes of bits and repeats."""
    match layout:
        case AffineLayout():
            return layout
        case CuteLayout():
            ins = tuple((f"dim{i}", tuple(leaves(mode.shape))) for i, mode in enumerate(layout.modes))
            return AffineLayout(ins, (("offset", None),), tuple((d,) for _, d in layout.flat), (0,))
        case ComposedLayout():
            _no_form(layout, "affine", "its swizzle xors bits")
        case F2Layout():
            return _affine_of_f2(layout)
        case RegisterLayout():
            return _affine_of_register(layout)
        case PiecewiseLayout():
            return _affine_of_piecewise(layout)


def _affine_of_f2(layout: F2Layout) -> AffineLayout:
    images = [layout.unpack(c) for c in layout.columns]
    for j, name in enumerate(layout.out_names):
        used = 0
        for image in images:
            if used & image[j]:
                _no_form(layout, "affine", f"two input bits xor a bit of {name}")
            used |= image[j]
    outs: tuple[tuple[str, int | None], ...] = tuple((n, None) for n in layout.out_names)
    return AffineLayout(tuple((n, (2,) * b) for n, b in layout.ins), outs, tuple(images), (0,) * len(outs))


def _affine_of_register(layout: RegisterLayout) -> AffineLayout:
    atom = _affine_of_f2(layout.atom)
    columns: list[Column] = [atom.columns[i] for i in atom.axis("register")]
    for repeat in layout.repeats:
        columns.append(tuple(repeat.stride if d == repeat.dim else 0 for d in range(layout.rank)))
    columns += (atom.columns[i] for name in ("lane", "warp") for i in atom.axis(name))
    (_, bits), *others = atom.ins
    ins = (("register", (*bits, *(r.count for r in layout.repeats))), *others)
    return AffineLayout(ins, atom.outs, tuple(columns), atom.base)


def _affine_of_piecewise(layout: PiecewiseLayout) -> AffineLayout:
    """One piece on a box from 0, its values differences of unit steps; isl confirms."""
    piece, bounds = layout.pieces[0], layout.pieces[0].domain.bounds
    sizes = [b.constant for a, b in bounds or () if a.constant == 0]
    if len(layout.pieces) > 1 or bounds is None or len(sizes) < len(layout.dims) or None in sizes:
        _no_form(layout, "affine", "it is not one piece on a box of numbers from 0")
    zero = dict.fromkeys(layout.dims, 0)
    outs = tuple(
        (n, v.denominator.constant if isinstance(v, Mod) else None)
        for n, v in zip(layout.outs, piece.values, strict=True)
    )
    inner = [v.numerator if isinstance(v, Mod) else v for v in piece.values]
    base = tuple(int(v.evaluate(zero)) for v in inner)
    columns = tuple(
        tuple(int(v.evaluate(zero | {d: 1})) - b for v, b in zip(inner, base, strict=True)) for d in layout.dims
    )
    ins = tuple((d, (s or 1,)) for d, s in zip(layout.dims, sizes, strict=True))
    found = AffineLayout(ins, outs, columns, base)
    if not PiecewiseLayout.from_affine(found).map.is_equal(layout.map):
        _no_form(layout, "affine", "its values have no fixed steps")
    return found


# -- from affine ----------------------------------------------------------------------------------------------------


def cute_of(layout: AffineLayout) -> CuteLayout:
    """As nested strides, one mode per axis (LAY010 for several outputs, offsets, negative strides, moduli that
    wrap)."""
    form = _plain(layout, "nested strides")
    if len(form.outs) != 1 or form.base[0] != 0:
        _no_form(layout, "nested strides", f"it has {len(form.outs)} outputs and starts at {form.base}")
    modes: list[CuteLayout] = []
    for name, digits in form.ins:
        strides = tuple(form.columns[i][0] for i in form.axis(name))
        if any(isinstance(d, int) and d < 0 for d in strides):
            _no_form(layout, "nested strides", f"axis {name} steps back")
        pair = (digits[0], strides[0]) if len(digits) == 1 else (tuple(digits), strides)
        modes.append(CuteLayout(*pair) if digits else CuteLayout(1, 0))
    return modes[0] if len(modes) == 1 else CuteLayout.of(modes)


def f2_of(layout: AffineLayout) -> F2Layout:
    """As bits (LAY010 unless extents are powers of two and no bits carry)."""
    form = _plain(layout, "bits")
    extents, columns, base = form.numbers
    if any(base) or any(c < 0 for column in columns for c in column):
        _no_form(layout, "bits", "it has an offset or steps back")
    ins: list[tuple[str, int]] = []
    images: list[tuple[int, ...]] = []
    for name, _ in form.ins:
        bits = 0
        for i in form.axis(name):
            if extents[i] & (extents[i] - 1):
                _no_form(layout, "bits", f"the extent {extents[i]} is not a power of two")
            for k in range(extents[i].bit_length() - 1):
                images.append(tuple(c << k for c in columns[i]))
                bits += 1
        ins.append((name, bits))
    for j, name in enumerate(form.out_names):
        if sum(image[j] for image in images).bit_count() != sum(image[j].bit_count() for image in images):
            _no_form(layout, "bits", f"bits of {name} carry")
    outs = tuple((n, sum(x[j] for x in images).bit_length()) for j, n in enumerate(form.out_names))
    shifts = [sum(b for _, b in outs[:j]) for j in range(len(outs))]
    packed = tuple(sum(x << s for x, s in zip(image, shifts, strict=True)) for image in images)
    return F2Layout(tuple(ins), outs, packed)


def register_of(layout: AffineLayout) -> RegisterLayout:
    """As an atom and repeats (LAY010, LAY007): axes register, lane, warp onto dim0, dim1, ...; from the first register
    digit that is no power of two on, digits are repeats."""
    form = _plain(layout, "a register layout")
    if set(form.in_names) != {"register", "lane", "warp"}:
        _no_form(layout, "a register layout", f"its axes are {', '.join(form.in_names)}")
    if any(form.base):
        _no_form(layout, "a register layout", "it has an offset")
    extents, columns, _ = form.numbers
    own = list(form.axis("register"))
    inner = next((k for k, i in enumerate(own) if extents[i] & (extents[i] - 1)), len(own))
    repeats: list[Repeat] = []
    for i in own[inner:]:
        dims = [d for d, c in enumerate(columns[i]) if c]
        if len(dims) > 1:
            _no_form(layout, "a register layout", "a digit moves two dimensions")
        repeats.append(Repeat(dims[0] if dims else 0, extents[i], columns[i][dims[0]] if dims else 0))
    parts = {"register": own[:inner], "lane": list(form.axis("lane")), "warp": list(form.axis("warp"))}
    atom = AffineLayout(
        tuple((n, tuple(extents[i] for i in part)) for n, part in parts.items()),
        tuple((f"dim{d}", None) for d in range(len(form.outs))),
        tuple(columns[i] for part in parts.values() for i in part),
        form.base,
    )
    high = lift(form).high
    return RegisterLayout(tuple(h + 1 for h in high), f2_of(atom), tuple(repeats))


def piecewise_of(layout: Layout) -> PiecewiseLayout:
    """As one piece, a dimension per axis (LAY010 where the layout is not affine)."""
    return layout if isinstance(layout, PiecewiseLayout) else PiecewiseLayout.from_affine(affine_of(layout))


def _plain(layout: AffineLayout, form: str) -> AffineLayout:
    """Over the integers: a modulus that never wraps dropped."""
    if layout.moduli.count(None) == len(layout.moduli):
        return layout
    lifted = lift(layout)
    if any(lifted.wraps):
        name = layout.out_names[lifted.wraps.index(True)]
        _no_form(layout, form, f"{name} wraps")
    outs: tuple[tuple[str, int | None], ...] = tuple((n, None) for n in layout.out_names)
    return AffineLayout(layout.ins, outs, lifted.columns, lifted.base)


def _no_form(layout: Layout, form: str, reason: str) -> NoReturn:
    fail(
        "LAY010",
        title=f"the layout cannot be written as {form}",
        found=f"{layout}: {reason}",
        required=f"a map that {form} can hold",
        help="keep the form it has, or compare by equal()",
    )


# -- equality -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counterexample:
    """At ``place`` (an index, or a point as isl prints it) the values are ``left`` and ``right``; empty where a layout
    has no value there."""

    place: int | str
    left: tuple[int, ...]
    right: tuple[int, ...]


def equal(a: Layout, b: Layout) -> Equal | Counterexample:
    """Whether two layouts, of whatever kinds, have equal values at every index (LAY010 where neither symbols nor the
    table's size allow an answer)."""
    if isinstance(a, CuteLayout | ComposedLayout | F2Layout) and isinstance(b, CuteLayout | ComposedLayout | F2Layout):
        found = equality.equal(a, b)
        return Counterexample(found.index, (found.left,), (found.right,)) if isinstance(found, Different) else found
    left, right = _affine_or_none(a), _affine_or_none(b)
    if left is not None and right is not None and left.is_static and right.is_static:
        decided = _equal_affine(left, right)
        if decided is not None:
            return decided
    if isinstance(a, PiecewiseLayout) or isinstance(b, PiecewiseLayout) or _symbolic(left) or _symbolic(right):
        maps = _maps(a, b)
        if maps is not None:
            return _equal_maps(*maps)
    return _equal_tables(a, b)


def _affine_or_none(layout: Layout) -> AffineLayout | None:
    try:
        return affine_of(layout)
    except TilewrightError:
        return None


def _symbolic(layout: AffineLayout | None) -> bool:
    return layout is not None and not layout.is_static


def _indexed(layout: AffineLayout, moduli: tuple[int | None, ...]) -> AffineLayout:
    """All digits on one axis, outputs numbered."""
    outs = tuple((f"out{j}", m) for j, m in enumerate(moduli))
    return AffineLayout((("index", layout.digits),), outs, layout.columns, layout.base).canonical()


def _equal_affine(a: AffineLayout, b: AffineLayout) -> Equal | Counterexample | None:
    """Equality by canonical forms; None if moduli wrap and differ, where there is no common canonical form."""
    if a.size != b.size or len(a.outs) != len(b.outs):
        return Counterexample(-1, (a.size, len(a.outs)), (b.size, len(b.outs)))
    one, two = lift(a), lift(b)
    moduli: list[int | None] = []
    for j, (m, n) in enumerate(zip(a.moduli, b.moduli, strict=True)):
        wraps = {x for x, w in ((m, one.wraps[j]), (n, two.wraps[j])) if w}
        if len(wraps) > 1:
            return None
        modulus = wraps.pop() if wraps else None
        for layout, lifted in ((a, one), (b, two)):
            # one that does not wrap may take a value that the other never has
            if modulus is not None and not lifted.wraps[j] and not 0 <= lifted.low[j] <= lifted.high[j] < modulus:
                index = _corner(layout, lifted, j, lowest=lifted.low[j] < 0)
                return Counterexample(index, _at(a, index), _at(b, index))
        moduli.append(modulus)
    # true differences are right with and without the modulus
    left, right = (
        _indexed(AffineLayout(x.ins, x.outs, y.columns, y.base), tuple(moduli)) for x, y in ((a, one), (b, two))
    )
    if left == right:
        return Equal(ProofKind.SMITH)
    places = sorted(p for p in {0, *_places(left), *_places(right)} if p < a.size)
    index = next((p for p in places if left(p) != right(p)), None)
    assert index is not None, "canonical forms that differ, differ at the start of a digit"
    return Counterexample(index, _at(a, index), _at(b, index))


def _corner(layout: AffineLayout, lifted: Lift, j: int, lowest: bool) -> int:
    """The index at which output j is least or greatest."""
    index, place = 0, 1
    for e, column in zip(layout.numbers[0], lifted.columns, strict=True):
        if (column[j] < 0) == lowest and column[j]:
            index += (e - 1) * place
        place *= e
    return index


def _at(layout: AffineLayout, index: int) -> tuple[int, ...]:
    """The values at an index, the first digit fastest."""
    digits: list[int] = []
    for e in layout.numbers[0]:
        index, x = divmod(index, e)
        digits.append(x)
    return tuple(v for v in layout.at(digits) if isinstance(v, int))


def _places(layout: AffineLayout) -> Iterator[int]:
    place = 1
    for e in layout.numbers[0]:
        yield place
        place *= e


def _maps(a: Layout, b: Layout) -> tuple[PiecewiseLayout, PiecewiseLayout] | None:
    """Both over the same number of dimensions for isl; None where one has bits, or axes are grouped in another way, so
    that only indices compare."""
    try:
        left, right = piecewise_of(a), piecewise_of(b)
    except TilewrightError as problem:
        if problem.code != "LAY010":
            raise
        return None
    return (left, right) if len(left.dims) == len(right.dims) else None


def _equal_maps(a: PiecewiseLayout, b: PiecewiseLayout) -> Equal | Counterexample:
    if len(a.outs) != len(b.outs):
        return Counterexample(-1, (len(a.dims), len(a.outs)), (len(b.dims), len(b.outs)))
    if a.map.is_equal(b.map):
        return Equal(ProofKind.ISL)
    conflict = a.subset(b) or b.subset(a)
    assert conflict is not None, "maps that include each other are equal"
    return Counterexample(conflict.point, (), ())


def _equal_tables(a: Layout, b: Layout) -> Equal | Counterexample:
    if _size(a) != _size(b):
        return Counterexample(-1, (_size(a),), (_size(b),))
    if _size(a) > MOST_POINTS:
        _no_form(a, "a table", f"{_size(a)} entries")
    for index, (x, y) in enumerate(zip(table(a), table(b), strict=True)):
        if x != y:
            return Counterexample(index, x, y)
    return Equal(ProofKind.ENUMERATED)


def _size(layout: Layout) -> int:
    match layout:
        case F2Layout():
            return 1 << layout.in_bits
        case RegisterLayout():
            return layout.registers * layout.threads
        case AffineLayout():
            return layout.size
        case PiecewiseLayout():
            return sum(1 for _ in layout.domain.points())
        case CuteLayout() | ComposedLayout():
            size = layout.size
            return size if isinstance(size, int) else _no_form(layout, "a table", "it has symbols")


def table(layout: Layout) -> Iterator[tuple[int, ...]]:
    """Values in index order: the first axis fastest (LAY010 for symbols, LAY022 for unbounded domains)."""
    match layout:
        case CuteLayout() | ComposedLayout():
            yield from ((x,) for x in layout.offsets())
        case F2Layout():
            yield from (layout.unpack(gf2_vectors.apply(layout.columns, i)) for i in range(1 << layout.in_bits))
        case RegisterLayout():
            for index in range(layout.registers * layout.threads):
                thread, register = divmod(index, layout.registers)
                yield layout.coordinate(thread, register)
        case AffineLayout():
            yield from layout.table()
        case PiecewiseLayout():
            yield from (layout(*point) for point in sorted(layout.domain.points(), key=lambda p: p[::-1]))


def subset(a: Layout, b: Layout) -> Counterexample | None:
    """None if ``b`` has every coordinate of ``a``, with the same values; else one where it does not. By isl where both
    are Presburger maps of as many dimensions, else by the tables (an index of ``a`` is the same index of ``b``)."""
    maps = _maps(a, b)
    if maps is not None and len(maps[0].outs) == len(maps[1].outs):
        conflict = maps[0].subset(maps[1])
        return None if conflict is None else Counterexample(conflict.point, (), ())
    theirs = list(table(b))
    for index, x in enumerate(table(a)):
        if index >= len(theirs) or theirs[index] != x:
            return Counterexample(index, x, theirs[index] if index < len(theirs) else ())
    return None

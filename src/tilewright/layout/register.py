"""Register layouts: which thread holds which element of a tile, in which of its registers.

A register layout is an F2 atom (what the instruction fixes: register, lane and warp bits to coordinates) times integer
repeat modes (how often the atom is laid side by side). Atom bits and repeats along one dimension are the digits of the
coordinate, so only the repeats see extents that are not powers of two::

    wgmma accumulator 64 x 24:  atom 64 x 8 (2 register, 5 lane, 2 warp bits)  x  Repeat(dim=1, count=3, stride=8)

    register = atom register bits (fastest) + 4 * repeat digit
    thread   = lane + 32 * warp

Every layout covers its box completely, and holds an element more than once only by *replication*: input bits whose
column depends on earlier ones (order: register, lane, warp), and repeats of stride 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr, Interval, Sym, all_of, expr, simplify
from tilewright.diag import fail
from tilewright.layout import gf2_vectors
from tilewright.layout.bit_expr import BitField, linear_expr
from tilewright.layout.checks import extent, integer, log2_size
from tilewright.layout.f2 import F2Layout

LANES = 32
"""Threads of a warp (PTX ISA, thread hierarchy)."""


@dataclass(frozen=True)
class Repeat:
    """An integer mode: digit k in [0, count) adds ``k * stride`` to the coordinate of dimension ``dim``."""

    dim: int
    count: int
    stride: int


@dataclass(frozen=True)
class Replication:
    """Where a layout holds elements more than once.

    ``free_thread_mask``: thread bits that only pick a copy; the threads with ``thread & mask == 0`` hold every element.
    ``free_register_mask``: the same for the atom's register bits. ``free_repeats``: indices of repeats of stride 0.
    """

    free_thread_mask: int
    free_register_mask: int
    free_repeats: tuple[int, ...]


@dataclass(frozen=True)
class RegisterLayout:
    """An F2 atom times integer repeats; ``shape`` is the box that they fill exactly (LAY007 otherwise)."""

    shape: tuple[int, ...]
    atom: F2Layout
    repeats: tuple[Repeat, ...] = ()

    def __post_init__(self) -> None:
        if self.atom.in_names != ("register", "lane", "warp"):
            _refuse_axes(self.atom)
        expected = tuple(f"dim{d}" for d in range(len(self.shape)))
        if self.atom.out_names != expected or self.atom.in_size("lane") != LANES:
            _refuse_axes(self.atom)
        for repeat in self.repeats:
            extent(repeat.count, "repeat count")
            if integer(repeat.stride, "repeat stride") < 0 or not 0 <= repeat.dim < len(self.shape):
                fail(
                    "LAY002",
                    title="a repeat names no dimension of the tile",
                    found=str(repeat),
                    required=f"0 <= dim < {len(self.shape)} and stride >= 0",
                    help="repeat along a dimension of the tile",
                )
        for dim, size in enumerate(self.shape):
            self._check_cover(dim, extent(size, f"extent of dim{dim}"))
        masks = sum(m.bit_count() for m in map(self._dim_mask, range(len(self.shape))))
        if self.atom.rank != masks:
            fail(
                "LAY007",
                title="the atom holds only part of its box",
                found=f"{1 << self.atom.rank} elements",
                required=f"{1 << masks} coordinates",
                help="add the missing bases, or cover a smaller box",
            )

    def _dim_mask(self, dim: int) -> int:
        """Bits of the atom's coordinate along ``dim`` that some input moves."""
        shift, n = sum(b for _, b in self.atom.outs[:dim]), self.atom.outs[dim][1]
        used = 0
        for column in self.atom.columns:
            used |= column
        return (used >> shift) & ((1 << n) - 1)

    def _check_cover(self, dim: int, size: int) -> None:
        """The digits of one dimension, smallest first, each start where the ones before end."""
        digits = [(1 << b, 2) for b in gf2_vectors.bits(self._dim_mask(dim))]
        digits += [(r.stride, r.count) for r in self.repeats if r.dim == dim and r.stride and r.count > 1]
        reach = 1
        for stride, count in sorted(digits):
            if stride != reach:
                problem = "overlap" if stride < reach else "leave a gap"
                fail(
                    "LAY007",
                    title=f"modes along dim{dim} {problem}",
                    found=f"a mode of stride {stride} after {reach} covered coordinates",
                    required=f"stride {reach}",
                    help=f"set the stride of that mode to {reach}",
                )
            reach *= count
        if reach != size:
            fail(
                "LAY007",
                title=f"the modes along dim{dim} do not cover its extent",
                found=f"{reach} coordinates",
                required=f"{size}",
                help="extents are rounded up to what the atom and its repeats cover",
            )

    # -- sizes ----------------------------------------------------------------------------------------------------
    @property
    def rank(self) -> int:
        """Number of tile dimensions."""
        return len(self.shape)

    @property
    def atom_registers(self) -> int:
        """Elements per thread in one atom."""
        return self.atom.in_size("register")

    @property
    def registers(self) -> int:
        """Elements per thread."""
        return self.atom_registers * prod(r.count for r in self.repeats)

    @property
    def lanes(self) -> int:
        """Threads per warp."""
        return LANES

    @property
    def warps(self) -> int:
        """Warps that hold the tile."""
        return self.atom.in_size("warp")

    @property
    def threads(self) -> int:
        """Threads that hold the tile."""
        return self.lanes * self.warps

    # -- coordinates ----------------------------------------------------------------------------------------------
    def coordinate(self, thread: int, register: int) -> tuple[int, ...]:
        """The logical coordinate that ``thread`` holds in ``register`` (LAY005 outside)."""
        if not (0 <= thread < self.threads and 0 <= register < self.registers):
            fail(
                "LAY005",
                found=f"thread {thread}, register {register}",
                required=f"0 <= thread < {self.threads} and 0 <= register < {self.registers}",
                help="ask for a place that the layout has",
            )
        bits = self.atom.in_axis_bits("register")
        result = list(self.atom.unpack(self.atom((register & (self.atom_registers - 1)) | thread << bits)))
        rest = register >> bits
        for repeat in self.repeats:
            rest, digit = divmod(rest, repeat.count)
            result[repeat.dim] += digit * repeat.stride
        return tuple(result)

    def coordinates(self, thread: Expr | int, register: Expr | int) -> tuple[Expr, ...]:
        """Coordinates as expressions of ``thread`` (warp*32+lane) and ``register``, for 0 <= thread < threads and
        0 <= register < registers.

        Only ``//``, ``%``, ``+``, ``*``, and ``xor`` where several input bits meet in one output bit.
        """
        key = (expr(thread), expr(register))
        if key not in self._coordinates:
            self._coordinates[key] = self._coordinates_at(*key)
        return self._coordinates[key]

    @cached_property
    def _coordinates(self) -> dict[tuple[Expr, Expr], tuple[Expr, ...]]:
        """A cache of coordinate expressions: passes ask for the same few again and again."""
        return {}

    def _coordinates_at(self, thread: Expr, register: Expr) -> tuple[Expr, ...]:
        bits = self.atom.in_axis_bits("register")
        whole = not prod(r.count for r in self.repeats) > 1
        fields = (
            BitField(register, bits, bounded=whole),
            BitField(thread, self.atom.in_bits - bits, bounded=True),
        )
        offsets: list[Expr] = [expr(0)] * self.rank
        rest = register // self.atom_registers
        for index, repeat in enumerate(self.repeats):
            last = all(r.count == 1 for r in self.repeats[index + 1 :])
            digit = rest if last else rest % repeat.count
            offsets[repeat.dim] = offsets[repeat.dim] + digit * repeat.stride
            rest = rest // repeat.count
        bounds: dict[str, Interval] = {}
        for value, size in ((thread, self.threads), (register, self.registers)):
            if isinstance(value, Sym):
                bounds[value.name] = (0, size - 1)
        shifts = [sum(b for _, b in self.atom.outs[:d]) for d in range(self.rank)]
        result: list[Expr] = []
        for (_, n), shift, offset in zip(self.atom.outs, shifts, offsets, strict=True):
            columns = [(c >> shift) & ((1 << n) - 1) for c in self.atom.columns]
            result.append(simplify(linear_expr(columns, fields) + offset, bounds))
        return tuple(result)

    # -- replication ----------------------------------------------------------------------------------------------
    @cached_property
    def replication(self) -> Replication:
        """The thread bits, register bits and repeats that only select a copy."""
        free = self.atom.free_variable_masks()
        lane_bits = self.atom.in_axis_bits("lane")
        return Replication(
            free_thread_mask=free["lane"] | free["warp"] << lane_bits,
            free_register_mask=free["register"],
            free_repeats=tuple(i for i, r in enumerate(self.repeats) if r.stride == 0 and r.count > 1),
        )

    def owner_predicate(self, thread: Expr | int) -> Expr:
        """True for the threads that together hold every element exactly once (with the free registers left out)."""
        thread = expr(thread)
        mask = self.replication.free_thread_mask
        parts: list[Expr] = []
        for start, length in _runs(mask):
            field = thread // (1 << start)
            if start + length < self.threads.bit_length() - 1:
                field = field % (1 << length)
            parts.append(field.eq(0))
        return all_of(parts)

    # -- derived layouts ------------------------------------------------------------------------------------------
    def slice(self, dim: int) -> RegisterLayout:
        """The layout of the tile with dimension ``dim`` reduced away: the dimension is dropped, and with it the
        registers that would hold the same element twice."""
        self.check_dim(dim)
        reduced = self.atom.sublayout(self.atom.in_names, [n for d, n in enumerate(self.atom.out_names) if d != dim])
        registers = reduced.axis_columns("register")
        pivots = gf2_vectors.eliminate(registers).pivots
        kept = tuple(c for i, c in enumerate(registers) if pivots >> i & 1)
        names = tuple((f"dim{d}", b) for d, (_, b) in enumerate(reduced.outs))
        atom = F2Layout(
            (("register", len(kept)), *reduced.ins[1:]),
            names,
            kept + reduced.axis_columns("lane") + reduced.axis_columns("warp"),
        )
        repeats = tuple(
            Repeat(r.dim - (r.dim > dim), r.count, r.stride) for r in self.repeats if r.dim != dim and r.stride
        )
        return RegisterLayout(self.shape[:dim] + self.shape[dim + 1 :], atom, repeats)

    def expand(self, dim: int) -> RegisterLayout:
        """The same elements with a new dimension of extent 1 at position ``dim``."""
        if not 0 <= dim <= self.rank:
            self._refuse_dim(dim)
        names = [f"dim{d + (d >= dim)}" for d in range(self.rank)]
        outs = [(n, b) for n, (_, b) in zip(names, self.atom.outs, strict=True)]
        outs.insert(dim, (f"dim{dim}", 0))
        return RegisterLayout(
            (*self.shape[:dim], 1, *self.shape[dim:]),
            F2Layout(self.atom.ins, tuple(outs), self.atom.columns),
            tuple(Repeat(r.dim + (r.dim >= dim), r.count, r.stride) for r in self.repeats),
        )

    def transpose(self, perm: Sequence[int]) -> RegisterLayout:
        """The same registers, with dimensions permuted: dimension ``d`` of the result is this one's ``perm[d]``."""
        if sorted(perm) != list(range(self.rank)):
            fail(
                "LAY002",
                title="not a permutation of the dimensions",
                found=str(tuple(perm)),
                required=f"each of 0..{self.rank - 1} once",
                help="name every dimension once",
            )
        moved = self.atom.transpose_outs([f"dim{d}" for d in perm])
        atom = F2Layout(moved.ins, tuple((f"dim{d}", b) for d, (_, b) in enumerate(moved.outs)), moved.columns)
        where = {old: new for new, old in enumerate(perm)}
        return RegisterLayout(
            tuple(self.shape[d] for d in perm),
            atom,
            tuple(Repeat(where[r.dim], r.count, r.stride) for r in self.repeats),
        )

    def contiguous_registers(self, dim: int) -> int:
        """The largest power of two r such that registers k*r .. k*r+r-1 of every thread are consecutive, r-aligned
        coordinates along ``dim`` (and equal along the others): the vector width."""
        self.check_dim(dim)
        shift = sum(b for _, b in self.atom.outs[:dim])
        field = ((1 << self.atom.outs[dim][1]) - 1) << shift
        registers = self.atom.axis_columns("register")
        run = 0
        while run < len(registers) and registers[run] == 1 << (shift + run) and registers[run] & field:
            run += 1
        others = [c & field for c in self.atom.columns[run:]]
        strides = [r.stride for r in self.repeats if r.dim == dim and r.count > 1]
        while run and (any((c >> shift) & ((1 << run) - 1) for c in others) or any(s % (1 << run) for s in strides)):
            run -= 1
        width = 1 << run
        if run < len(registers):
            return width
        return width * self._contiguous_repeats(dim, width, [c >> shift for c in others])

    def _contiguous_repeats(self, dim: int, width: int, others: Iterable[int]) -> int:
        """How far a run that covers all registers of the atom continues through the first repeats."""
        factor, others = 1, list(others)
        for index, repeat in enumerate(self.repeats):
            if repeat.count == 1:
                continue
            if repeat.dim != dim or repeat.stride != width * factor:
                break
            grow = repeat.count & -repeat.count
            later = [r.stride for r in self.repeats[index + 1 :] if r.dim == dim and r.count > 1]
            while grow > 1 and any(x % (width * factor * grow) for x in (*others, *later)):
                grow //= 2
            factor *= grow
            if grow != repeat.count:
                break
        return factor

    def check_dim(self, dim: int) -> None:
        """Refuse a dimension that the tile does not have (LAY002)."""
        if not 0 <= dim < self.rank:
            self._refuse_dim(dim)

    def _refuse_dim(self, dim: int) -> None:
        fail(
            "LAY002",
            title="no such dimension",
            found=str(dim),
            required=f"a dimension of the {self.rank}-dimensional tile {self.shape}",
            help="count dimensions from 0",
        )

    @staticmethod
    def blocked(
        shape: Sequence[int],
        *,
        vector: Sequence[int],
        lanes: Sequence[int],
        warps: Sequence[int],
        order: Sequence[int],
    ) -> RegisterLayout:
        """Vectors of elements per thread, dealt to lanes, then warps, then repeated over the tile.

        ``vector``, ``lanes`` and ``warps`` give a power of two per dimension (lanes multiply to 32); ``order`` lists
        the dimensions, fastest first. A dimension smaller than its share is replicated; an extent that is no multiple
        of one wrap is rounded up (read ``shape`` of the result).
        """
        rank = len(shape)
        _check_blocked(rank, vector, lanes, warps, order)
        atom = F2Layout.empty()
        names = [f"dim{d}" for d in range(rank)]
        for axis in ("register", "lane", "warp"):
            atom = atom * F2Layout.zeros(1, axis, names[0])
        for name in names:
            atom = atom * F2Layout(((("register"), 0),), ((name, 0),), ())
        covered = [1] * rank
        need = [1 << (extent(s, f"extent of dim{d}") - 1).bit_length() for d, s in enumerate(shape)]
        for axis, shares in (("register", vector), ("lane", lanes), ("warp", warps)):
            for dim in order:
                share = shares[dim]
                used = min(share, need[dim] // covered[dim])
                atom = atom * F2Layout.identity(used, axis, names[dim])
                if axis != "register":
                    atom = atom * F2Layout.zeros(share // used, axis, names[dim])
                covered[dim] *= used
        counts = [-(-shape[d] // covered[d]) for d in range(rank)]
        repeats = tuple(Repeat(d, counts[d], covered[d]) for d in order if counts[d] > 1)
        return RegisterLayout(tuple(covered[d] * counts[d] for d in range(rank)), atom, repeats)


def _runs(mask: int) -> list[tuple[int, int]]:
    """Runs of set bits as (start, length), lowest first."""
    runs: list[tuple[int, int]] = []
    for bit in gf2_vectors.bits(mask):
        if runs and sum(runs[-1]) == bit:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((bit, 1))
    return runs


def _refuse_axes(atom: F2Layout) -> None:
    fail(
        "LAY002",
        title="not the atom of a register layout",
        found=str(atom),
        required=f"axes register, lane ({LANES}), warp onto dim0, dim1, ... of the tile",
        help="name the axes so, and give every lane bit a basis (0 where lanes hold copies)",
    )


def _check_blocked(
    rank: int, vector: Sequence[int], lanes: Sequence[int], warps: Sequence[int], order: Sequence[int]
) -> None:
    for name, shares in (("vector", vector), ("lanes", lanes), ("warps", warps)):
        if len(shares) != rank:
            fail(
                "LAY002",
                title=f"{name} has the wrong rank",
                found=str(tuple(shares)),
                required=f"one number for each of the {rank} dimensions",
                help="write 1 for dimensions that are not split",
            )
        for share in shares:
            log2_size(share, name)
    if prod(lanes) != LANES:
        fail(
            "LAY002",
            title="lanes do not multiply to a warp",
            found=f"{tuple(lanes)}: {prod(lanes)}",
            required=str(LANES),
            help="deal all 32 lanes; a dimension smaller than its share is replicated",
        )
    if sorted(order) != list(range(rank)):
        fail(
            "LAY002",
            title="order is not a permutation of the dimensions",
            found=str(tuple(order)),
            required=f"each of 0..{rank - 1} once",
            help="list every dimension once, fastest first",
        )

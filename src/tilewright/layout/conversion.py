"""Choosing a conversion between two register layouts of one tile.

Nothing, register moves, lane shuffles, or a round trip through shared memory (by ldmatrix and stmatrix where the
fragments allow), whichever is estimated cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NoReturn

from tilewright.base.expr import Expr, expr
from tilewright.diag import fail
from tilewright.layout import gf2_vectors
from tilewright.layout.bit_expr import BitField, linear_expr
from tilewright.layout.checks import log2_size
from tilewright.layout.conversion_plan import (
    THREAD,
    ConversionCost,
    ConversionPlan,
    Pick,
    PlanKind,
    RegisterPlan,
    Round,
    ShufflePlan,
)
from tilewright.layout.refine import Refined, common_box, refine, steps
from tilewright.layout.register import RegisterLayout
from tilewright.layout.shuffle import Rounds, WarpMap, schedule, warp_map
from tilewright.layout.staging import shared_plan


def conversion_plan(
    source: RegisterLayout,
    target: RegisterLayout,
    element_bytes: int,
    *,
    shared: bool = True,
    ragged: bool = False,
    matrices: bool = True,
) -> ConversionPlan:
    """The cheapest plan that gives every register of ``target`` its element from ``source`` (LAY017 when the layouts
    hold different tiles or are held by different numbers of threads).

    ``element_bytes`` is 1, 2, 4 or 8. Without ``shared`` no memory is used (LAY019 when data must cross warps). With
    ``ragged`` the boxes that the two cover may differ: they round one tile up to what each can hold. Without
    ``matrices`` neither ldmatrix nor stmatrix is used.
    """
    log2_size(element_bytes, "element_bytes")
    same_rank = ragged and source.rank == target.rank
    if (source.shape != target.shape and not same_rank) or source.threads != target.threads:
        fail(
            "LAY017",
            found=f"{source.shape} in {source.threads} threads to {target.shape} in {target.threads} threads",
            required="one shape, one set of threads",
            help="pad both layouts to one shape, or replicate the smaller one over all threads",
        )
    move = _WarpConversion.of(source, target, element_bytes) if source.shape == target.shape else None
    if move is not None and move.within_thread:
        return move.register_plan()
    shuffled = None if move is None else move.shuffle_plan()
    if not shared:
        return shuffled or _needs_memory(source, target)
    staged = shared_plan(source, target, element_bytes, same_warp=move is not None, matrices=matrices)
    if shuffled is None or staged.cost.cycles < shuffled.cost.cycles:
        return staged
    return shuffled


def _needs_memory(source: RegisterLayout, target: RegisterLayout) -> NoReturn:
    fail(
        "LAY019",
        found=f"{source.atom} to {target.atom}",
        required="every element in the warp that wants it",
        help="allow shared memory, or choose layouts whose warps hold the same rows",
    )


class _WarpConversion:
    """A conversion that stays in each warp, on the common atoms."""

    def __init__(
        self, source: Refined, target: Refined, move: WarpMap, offsets: list[tuple[int, int]], packed: int
    ) -> None:
        self.source, self.target, self.move = source, target, move
        self.offsets, self.packed = offsets, packed
        self.element_bytes = 4

    @staticmethod
    def of(source: RegisterLayout, target: RegisterLayout, element_bytes: int) -> _WarpConversion | None:
        box = common_box(source, target)
        if any(s % b for s, b in zip(source.shape, box, strict=True)):
            return None
        a, b = refine(source, box), refine(target, box)
        if a is None or b is None:
            return None
        move = warp_map(a.atom, b.atom)
        if move is None:
            return None
        offsets = [(a.step(p), b.step(p)) for p in steps(source.shape, box)]
        result = _WarpConversion(a, b, move, offsets, 0)
        result.element_bytes = element_bytes
        result.packed = result._packed_bits()
        return result

    def _packed_bits(self) -> int:
        """The number of low register bits that keep their place, so that narrow elements share a 32-bit register."""
        bits = 0
        limit = max(0, (4 // self.element_bytes).bit_length() - 1)
        while bits < min(limit, self.move.registers):
            own = 1 << bits
            elsewhere = [c for i, c in enumerate(self.move.register) if i != bits]
            if self.move.register[bits] != own or self.move.lane[bits] or any(c & own for c in elsewhere):
                break
            weights = (self.source.weights[bits : bits + 1], self.target.weights[bits : bits + 1])
            if weights != ((own,), (own,)):
                break
            bits += 1
        return bits

    @property
    def within_thread(self) -> bool:
        """Whether every element is already in the thread that needs it."""
        home = tuple(1 << i for i in range(self.move.lanes))
        here = self.move.part(self.move.lane, "lane") == home
        return here and not any(self.move.part(self.move.lane, "register") + self.move.part(self.move.lane, "warp"))

    def _pick(self, base: int, thread_columns: Sequence[int], name: Refined | None, offset: int) -> Pick:
        """Word ``base`` xor a linear function of the thread bits, as choices and an index."""
        span = gf2_vectors.eliminate(thread_columns)
        basis = [thread_columns[i] for i in gf2_vectors.bits(span.pivots)]
        index_columns = gf2_vectors.solve(basis, thread_columns)
        assert not isinstance(index_columns, int), "columns lie in their own span"
        choices = [base ^ gf2_vectors.apply(basis, k) for k in range(1 << len(basis))]
        numbers = [c if name is None else name.register(c) + offset for c in choices]
        field = BitField(expr(THREAD), len(thread_columns), bounded=True)
        return Pick(tuple(numbers), linear_expr(index_columns, (field,)))

    def _groups(self) -> range:
        """First words of the groups of an atom's registers."""
        return range(0, 1 << self.move.registers, 1 << self.packed)

    def register_plan(self) -> ConversionPlan:
        """Moves within threads."""
        by_thread = self.move.part(self.move.register, "lane") + self.move.part(self.move.register, "warp")
        by_register = self.move.part(self.move.register, "register")
        results: dict[int, Pick] = {}
        for from_, to in self.offsets:
            for word in self._groups():
                pick = self._pick(gf2_vectors.apply(by_register, word), by_thread, self.source, from_)
                for copy in self.target.copies:
                    results[to + self.target.register(word) + copy] = pick
        ordered = tuple(results[r] for r in sorted(results))
        elements = 1 << self.packed
        if all(p.is_constant for p in ordered):
            same = all(p.choices[0] == i * elements for i, p in enumerate(ordered))
            kind = PlanKind.NOTHING if same else PlanKind.PERMUTE
            steps_ = None if same else RegisterPlan(elements, ordered)
            return ConversionPlan(kind, self.element_bytes, steps_, ConversionCost(moves=0 if same else len(ordered)))
        cost = ConversionCost(moves=len(ordered), selects=sum(len(p.choices) - 1 for p in ordered) * self._words)
        return ConversionPlan(PlanKind.SELECT, self.element_bytes, RegisterPlan(elements, ordered), cost)

    @property
    def _words(self) -> int:
        """32-bit words of one group."""
        return max(1, (self.element_bytes << self.packed) // 4)

    def shuffle_plan(self) -> ConversionPlan | None:
        """Rounds of shuffles; None when copies in the source leave no schedule."""
        found = schedule(self.move)
        if found is None or any(column & ((1 << self.packed) - 1) for column in found.spread):
            return None
        rounds: list[Round] = []
        results: dict[int, Pick] = {}
        no_warps = (0,) * self.move.warps
        for from_, to in self.offsets:
            first = len(rounds)
            rounds += [self._round(found, k, from_) for k in self._groups()]
            for word in self._groups():
                pick = self._pick(word, found.spread + no_warps, None, 0)
                numbered = Pick(tuple(first + (c >> self.packed) for c in pick.choices), pick.index)
                for copy in self.target.copies:
                    results[to + self.target.register(word) + copy] = numbered
        plan = ShufflePlan(1 << self.packed, tuple(rounds), tuple(results[r] for r in sorted(results)))
        picks = [r.send for r in plan.rounds] + list(plan.results)
        cost = ConversionCost(
            moves=len(plan.results),
            selects=sum(len(p.choices) - 1 for p in picks) * self._words,
            shuffles=plan.shuffles * self._words,
        )
        return ConversionPlan(PlanKind.SHUFFLE, self.element_bytes, plan, cost)

    def _round(self, found: Rounds, k: int, offset: int) -> Round:
        """Round k: lane l receives its register k + T l (see ``shuffle``)."""
        move = self.move
        part = move.part
        gather = [
            gf2_vectors.apply(part(move.register, "register"), t) ^ c
            for t, c in zip(found.spread, part(move.register, "lane"), strict=True)
        ]
        inverse = gf2_vectors.eliminate(found.lane)
        # who reads lane l: l -> M^-1 (l + L_r k + L_w w), and what that reader wants
        reader = [inverse.reduce(1 << i)[1] for i in range(move.lanes)]
        wanted = gf2_vectors.multiply(gather, reader)
        shift = gf2_vectors.apply(part(move.lane, "register"), k)
        by_warp = [
            gf2_vectors.apply(wanted, lane) ^ register
            for lane, register in zip(part(move.lane, "warp"), part(move.register, "warp"), strict=True)
        ]
        base = gf2_vectors.apply(wanted, shift) ^ gf2_vectors.apply(part(move.register, "register"), k)
        send = self._pick(base, [*wanted, *by_warp], self.source, offset)
        lanes = [*found.lane, *part(move.lane, "warp")]
        if all(c == 1 << i for i, c in enumerate(found.lane)) and not any(part(move.lane, "warp")):
            return Round(send, self._lane(lanes, shift), shift)
        return Round(send, self._lane(lanes, shift), None)

    def _lane(self, columns: list[int], shift: int) -> Expr:
        field = BitField(expr(THREAD), len(columns), bounded=True)
        parts: list[Expr] = [linear_expr(columns, (field,))]
        if shift:
            parts.append(expr(shift))
        return reduce(lambda a, b: a ^ b, parts)

"""The events of the PTX against those of the IR, region by region.

Every synchronising instruction and every access to memory of the PTX is one that the IR says, for the same threads and
arguments, with equal operands and in the IR's order; and all that the IR says is there. Loads may be left out, merged
and moved where what they give is proved equal (the contents of memory they see are an operand).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tilewright.validate.alignment import Alignment
from tilewright.validate.bounds import Bound, BoundRead
from tilewright.validate.cases import Condition
from tilewright.validate.closed_loops import LoopCall
from tilewright.validate.equality import Equality
from tilewright.validate.memory import SHARED
from tilewright.validate.needs import Prover
from tilewright.validate.polynomials import Poly
from tilewright.validate.ptx_program import PtxProgram
from tilewright.validate.regions import ElementAccess, Event, LoopBody, Need, Operand, VectorAccess
from tilewright.validate.signed_quotients import Negative
from tilewright.validate.transport_ir.plan import Plan
from tilewright.validate.values import Choice, Value
from tilewright.validate.warps import Warps

MOST_LOOKS = 4
"""Times that two stored values are compared, each without cases that were found to be none; and cases of a place, one
in another, in which a load is looked for."""


_NO_SYNC = ("needs", "a read outside of ")
"""Events besides accesses that order nothing: proof needs, and reads that must not happen."""


@dataclass(frozen=True)
class Difference:
    """A place where the PTX is not shown to implement the IR: its lines in both, and the difference. ``refuted``: an
    execution shows a different result; otherwise the question is undecided."""

    ptx: str
    ir: str
    what: str
    refuted: bool = False

    def __str__(self) -> str:
        return f"{self.what}; PTX {self.ptx}; IR {self.ir}"


class _Enough(Exception):
    """Raised when as many differences as requested were found."""


class Matcher:
    """Compares ``plan`` with ``program``, both evaluated."""

    def __init__(
        self,
        plan: Plan,
        program: PtxProgram,
        root: LoopBody,
        provers: Mapping[str, Prover],
        alignment: Alignment,
        loops: Mapping[str, Sequence[LoopCall]],
        most: int,
    ):
        self.plan, self.program, self.root, self.most = plan, program, root, most
        self.values, self.cases, self.terms = plan.values, plan.cases, plan.terms
        self.alignment, self.loops = alignment, loops
        self.provers, self.prover = provers, provers[plan.region.name]
        self.warps = Warps(plan.values)
        self.differences: list[Difference] = []
        self.partners: dict[int, Event] = {}  # by id of a PTX event
        self.sources: dict[int, Event] = {}  # by id of a load of the PTX: one of the IR's loads of the same place
        self.latest: dict[int, int] = {}  # by order of a store of the IR: the last instruction that carries it out
        self.assumed: dict[tuple[str, int, int], str] = {}
        self._stored_at: dict[tuple[str, int], list[ElementAccess]] = {}
        """Elements of shared memory that instructions and ops access, by where these stand and their order."""
        self._last_stores: dict[bool, dict[int, list[ElementAccess]]] = {}
        """By side and order: stores to tensors outside of loops, behind all that synchronises."""
        self.sequences: dict[str, list[tuple[int, int, Condition, str]]] = {}
        ours, theirs = dict(regions_of(plan.region)), dict(regions_of(root))
        parents = {child.name: region.name for region in ours.values() for child in region.loops}
        self.care: dict[str, Condition] = {"kernel": plan.conditions.get("kernel", self.cases.true)}
        for name, region in ours.items():
            if name != "kernel":
                inside = self.cases.both(plan.conditions[name], self.cases.threads(region.entry))
                self.care[name] = self.cases.both(self.care[parents[name]], self.cases.both(region.entry, inside))
        self.equality = Equality(
            self.values,
            ours,
            theirs,
            self.care,
            program.instructions.shuffles,
            self._same_event,
            lambda condition: self.prover.impossible(condition),
            lambda p, q, care: self.prover.equal(p, q, care),
            parents,
            tuple(plan.branches),
            self._but_for_stores_beside,
        )

    def run(self) -> tuple[Difference, ...]:
        """The first ``most`` differences."""
        with suppress(_Enough):
            self._synchronise(self.plan.region, self.root)
            self._access(self.plan.region, self.root)
            for (kind, mine, theirs), where in self.assumed.items():
                if not self._matched(kind, mine, theirs):
                    self.differ(where, self.plan.marks[mine].where, f"{kind} stands for another instruction")
        return tuple(self.differences)

    def _enter(self, region: LoopBody) -> Condition:
        """Starts the comparison of a region."""
        self.prover = self.provers[region.name]
        self.equality.scope = self.care[region.name]
        return self.equality.scope

    def differ(self, ptx: str, ir: str, what: str) -> None:
        """Records a difference; ends the comparison after as many as requested."""
        self.differences.append(Difference(ptx, ir, what))
        if len(self.differences) >= self.most:
            raise _Enough

    def same(self, a: Condition, b: Condition, care: Condition) -> bool:
        """Two conditions agree where ``care`` holds."""
        if a is b or a == b:
            return True
        apart = self.cases.both(self.cases.differ(a, b), care)
        return apart == 0 or self.prover.impossible(apart)

    def inside(self, a: Condition, b: Condition, care: Condition) -> bool:
        """``a`` implies ``b`` where ``care`` holds."""
        if a is b or a == b:
            return True
        outside = self.cases.without(self.cases.both(a, care), b)
        return outside == 0 or self.prover.impossible(outside)

    # -- regions --------------------------------------------------------------------------------------------------
    def _synchronise(self, ir: LoopBody, ptx: LoopBody) -> None:
        """Loops and synchronising instructions, in the order of the PTX."""
        care = self._enter(ir)
        ours = {loop.name: loop for loop in ir.loops}
        events = [e for e in ptx.events if not isinstance(e, ElementAccess) and e.kind != "needs"]
        wanted = [e for e in ir.events if not isinstance(e, ElementAccess)]
        open_ = {id(e): self.cases.both(e.condition, care) for e in wanted}
        by_kind: dict[str, list[Event]] = {}
        for event in wanted:
            by_kind.setdefault(event.kind, []).append(event)
        for item in sorted([*events, *ptx.loops], key=lambda item: item.order):
            if isinstance(item, Event):
                self._match(item, by_kind.get(item.kind, ()), open_, care)
                continue
            loop = ours.pop(item.name, None)
            if loop is None:
                self.differ(item.where, "nowhere", "a loop that the IR has not")
                continue
            self._heads(loop, item, care)
            self._synchronise(loop, item)
            self._enter(ir)
        for loop in ours.values():
            if self.cases.both(loop.entry, care) != 0:
                self.differ("nowhere", loop.where, "a loop is missing")
        for event in wanted:
            left = open_[id(event)]
            if left != 0 and not self.prover.impossible(left):
                self.differ("nowhere", event.where, f"{event.kind} is missing where {self.cases.text(left)}")
        self._ordered(ir, ptx, [e for e in events if id(e) in self.partners], care)

    def _access(self, ir: LoopBody, ptx: LoopBody) -> None:
        """Loads and stores, and what all rests on."""
        care = self._enter(ir)
        self._stores(ir, ptx, care)
        self._loads(ir, ptx, care)
        self._bounds(ptx, care)
        self._vectors(ptx, care)
        self._calls(ptx, care)
        for holds, where in ptx.whole.items():
            runs = self.cases.both(holds, care)
            if not self.same(runs, self.warps.of_first_lanes(runs), self.cases.true):
                self.differ(where, ir.where, "lanes of one warp, of which not all run the instruction")
        for event in ptx.events:
            needs = self.prover.unproved(event.needs, self.cases.both(event.condition, care), care)
            need = next(needs, None)
            if need is not None:
                self._divide_with_signs([need, *needs] if need.low == 0 else [])
                at_most = "" if need.high is None else f" and at most {need.high}"
                what = f"{self.terms.text(need.value)} is not shown to be at least {need.low}{at_most}"
                self.differ(event.where, ir.where, f"{event.kind}: {what}")
        theirs = {loop.name: loop for loop in ptx.loops}
        for loop in ir.loops:
            if loop.name in theirs:
                self._access(loop, theirs[loop.name])

    def _divide_with_signs(self, needs: Iterable[Need]) -> None:
        """Raises ``Negative`` where needs are that what is divided by a reciprocal is not negative."""
        quotients = self.program.arithmetic.signed_quotients
        lines = {line for need in needs for line in quotients.lines_of.get(need.value, ()) if need.low == 0}
        if lines - quotients.lines:
            raise Negative(lines)

    def _heads(self, ir: LoopBody, ptx: LoopBody, care: Condition) -> None:
        entry = ir.around if ptx.top_tested else ir.entry
        if not self.same(ptx.entry, entry, care):
            what = f"the loop runs where {self.cases.text(ptx.entry)}, not where {self.cases.text(entry)}"
            self.differ(ptx.where, ir.where, what)
        body = self.care[ir.name]
        if ptx.top_tested:
            again, expected, body = ptx.again, self.plan.conditions[ir.name], self.cases.threads(ir.entry)
        else:
            again, expected = ptx.again, ir.again
        if not self.same(again, expected, body):
            what = f"the loop goes on where {self.cases.text(again)}, not where {self.cases.text(expected)}"
            self.differ(ptx.where, ir.where, what)

    # -- synchronisation ------------------------------------------------------------------------------------------
    def _match(self, event: Event, candidates: Sequence[Event], open_: dict[int, Condition], care: Condition) -> None:
        """Finds the op that an instruction carries out."""
        holds = self.cases.both(event.condition, care)
        if holds == 0 or (not candidates and self.prover.impossible(holds)):
            return
        why, best = partial(str, "no such op"), -2
        for candidate in candidates:
            if not self.inside(holds, open_[id(candidate)], care):
                if best == -2:
                    why = partial(self._runs_elsewhere, candidate, open_[id(candidate)])
                continue
            wrong = self._other_operand(candidate, event, holds)
            if wrong is None:
                open_[id(candidate)] = self.cases.without(open_[id(candidate)], holds)
                self.partners[id(event)] = candidate
                return
            if wrong > best:
                why, best = partial(self._wrong_operand, candidate, event, wrong), wrong
        self.differ(event.where, why(), f"{event.kind} where {self.cases.text(holds)}")

    def _runs_elsewhere(self, ir: Event, left: Condition) -> str:
        return f"{ir.where} runs where {self.cases.text(left)}"

    def _wrong_operand(self, ir: Event, ptx: Event, k: int) -> str:
        if k < 0:
            return f"{ir.where}: {len(ptx.operands)} operands instead of {len(ir.operands)}"
        found, wanted = self._text(ptx.operands[k]), self._text(ir.operands[k])
        return f"{ir.where}: operand {k} is {found} instead of {wanted}"

    def _other_operand(self, ir: Event, ptx: Event, holds: Condition) -> int | None:
        """The first operand that differs, -1 for another number of them; None if none does."""
        if len(ir.operands) != len(ptx.operands):
            return -1
        for k, (x, y) in enumerate(zip(ir.operands, ptx.operands, strict=True)):
            care = holds
            if ir.kind == "cp.async" and k == 1:  # an address from which nothing is read may be any
                read = ir.operands[3]
                assert isinstance(read, Poly | Choice)
                care = self.cases.without(holds, self.values.test(self.cases.zero, self.values.resize(read, 0)))
            if not self._same_operand(x, y, care):
                return k
        return None

    def _same_operand(self, x: Operand, y: Operand, care: Condition) -> bool:
        if isinstance(x, Poly | Choice) and isinstance(y, Poly | Choice):
            return self.equality.equal(x, y, care)
        return x == y

    def _text(self, x: Operand) -> str:
        return self.values.text(x) if isinstance(x, Poly | Choice) else str(x)

    def _ordered(self, ir: LoopBody, ptx: LoopBody, theirs: list[Event], care: Condition) -> None:
        items = [(e.order, self.partners[id(e)].order, e.condition, e.where) for e in theirs]
        ours = {loop.name: loop.order for loop in ir.loops}
        items += [(loop.order, ours[loop.name], loop.entry, loop.where) for loop in ptx.loops if loop.name in ours]
        items.sort()
        self.sequences[ir.name] = items
        highest = -1
        for j, (_, order, condition, where) in enumerate(items):
            if order < highest:
                for _, earlier, other, place in items[:j]:
                    if earlier > order and self.cases.both(self.cases.both(condition, other), care) != 0:
                        self.differ(where, "the other order", f"comes after what is at {place}")
                        break
            highest = max(highest, order)

    def _same_event(self, kind: str, ir: tuple[object, ...], ptx: tuple[object, ...]) -> bool:
        """Whether marks belong to an op and the instruction that implements it; unmatched ones are checked at the
        end."""
        mine, theirs = int(str(ir[1])), int(str(ptx[1]))
        first, second = self.plan.marks.get(mine), self.program.instructions.marks.get(theirs)
        if first is None or second is None or ir[2:] != ptx[2:] or first.kind != second.kind:
            return False
        if kind != "stored" and id(second) in self.partners:
            return self.partners[id(second)] is first
        self.assumed.setdefault((kind, mine, theirs), second.where)
        return True

    def _matched(self, kind: str, mine: int, theirs: int) -> bool:
        first, second = self.plan.marks[mine], self.program.instructions.marks[theirs]
        if kind != "stored" or not isinstance(first, ElementAccess):
            return self.partners.get(id(second)) is first
        partner = self.partners.get(id(second))
        return partner is not None and partner.order == first.order and self.latest.get(first.order) == second.order

    # -- accesses -------------------------------------------------------------------------------------------------
    def _stores(self, ir: LoopBody, ptx: LoopBody, care: Condition) -> None:
        ours = [e for e in ir.events if isinstance(e, ElementAccess) and not e.kind.startswith("ld.")]
        theirs = [e for e in ptx.events if isinstance(e, ElementAccess) and not e.kind.startswith("ld.")]
        index: dict[tuple[str, object, object, int], list[ElementAccess]] = {}
        for event in ours:
            index.setdefault((event.kind, event.operands[0], event.operands[1], event.bytes), []).append(event)
        open_ = {id(e): self.cases.both(e.condition, care) for e in ours}
        for event in theirs:
            holds = self.equality.in_common_terms(event.condition, (e.condition for e in ours), care)
            if holds == 0:
                continue
            found = index.get((event.kind, event.operands[0], event.operands[1], event.bytes)) or self._near(
                index, event, holds
            )
            why = partial(self._no_store, event)
            for candidate in found or ():
                part = self.cases.both(holds, open_[id(candidate)])
                if part == 0:
                    continue
                if not self._same_value(candidate, event, part):
                    why = partial(self._other_value, candidate, event, part)
                    continue
                open_[id(candidate)] = self.cases.without(open_[id(candidate)], part)
                holds = self.cases.without(holds, part)
                self.partners[id(event)] = candidate
                self.latest[candidate.order] = max(self.latest.get(candidate.order, 0), event.order)
                self._placed(ir.name, event, candidate, care)
                if holds == 0:
                    break
            if holds != 0 and not self.prover.impossible(holds):
                self.differ(event.where, why(), f"{event.kind} where {self.cases.text(holds)}")
        for event in ours:
            left = open_[id(event)]
            if left != 0 and not self.prover.impossible(left):
                at = self._text(event.operands[1])
                self.differ("nowhere", event.where, f"{event.kind} at {at} is missing where {self.cases.text(left)}")

    def _same_value(self, ir: ElementAccess, ptx: ElementAccess, care: Condition) -> bool:
        """Two stores of equal values, where arguments of the class can have it: what differs is looked at again
        without the cases that none have, as a guard of a vector's load may have them in a branch that rules them out.
        """
        x, y = self._stored(ir), self._stored(ptx)
        for _ in range(MOST_LOOKS):
            if self.equality.equal(x, y, care):
                return True
            _, _, there = self.equality.apart(x, y, care)
            never = self.prover.never(there)
            if never == 0:
                return False
            care = self.cases.without(care, never)
        return False

    def _no_store(self, event: ElementAccess) -> str:
        return f"no store of {event.bytes} bytes at {self._text(event.operands[1])}"

    def _other_value(self, ir: ElementAccess, ptx: ElementAccess, care: Condition) -> str:
        x, y, there = self.equality.apart(self._stored(ir), self._stored(ptx), care)
        return f"another value: {self._text(y)} instead of {self._text(x)} where {self.cases.text(there)}"

    def _stored(self, event: ElementAccess) -> Value:
        value = event.operands[2]
        assert isinstance(value, Poly | Choice)
        return value

    def _near(
        self, index: dict[tuple[str, object, object, int], list[ElementAccess]], event: ElementAccess, holds: Condition
    ) -> list[ElementAccess]:
        """Stores at addresses that are equal where the instruction runs."""
        return [
            e
            for (kind, tensor, at, size), events in index.items()
            if (kind, tensor, size) == (event.kind, event.operands[0], event.bytes)
            and isinstance(at, Poly)
            and isinstance(event.operands[1], Poly)
            and (self.equality.equal(at, event.operands[1], holds) or self.prover.equal(at, event.operands[1], holds))
            for e in events
        ]

    def _placed(self, region: str, event: ElementAccess, partner: ElementAccess, care: Condition) -> None:
        """A store lies between the same synchronising instructions and loops as in the IR."""
        for order, other, condition, where in self.sequences[region]:
            moved = (order < event.order) != (other < partner.order)
            if moved and self.cases.both(self.cases.both(condition, event.condition), care) != 0:
                self.differ(event.where, partner.where, f"{event.kind} on the other side of {where}")
                return

    def _bounds(self, ptx: LoopBody, care: Condition) -> None:
        """What was taken for an integer that the IR names is read where the IR reads it, of the same contents."""
        for read in ptx.bounds:
            holds = self.cases.both(read.holds, care)
            if not self.inside(holds, read.bound.holds, care):
                self.differ(read.where, read.bound.where, "a bound is read elsewhere")
            elif not self._same_contents(read, holds):
                self.differ(read.where, read.bound.where, "a bound is read of other contents of shared memory")

    def _same_contents(self, read: BoundRead, holds: Condition) -> bool:
        """An instruction reads a bound where shared memory holds there what it holds for the IR."""
        ir = self._contents(read.bound.state, read.bound, holds, self.plan.marks, self.plan.before)
        instructions = self.program.instructions
        ptx = self._contents(read.state, read.bound, holds, instructions.marks, instructions.before)
        return self.equality.equal(ir, ptx, holds)

    def _contents(
        self, state: Value, bound: Bound, holds: Condition, marks: Mapping[int, Event], before: Mapping[int, Value]
    ) -> Value:
        """What stands for the contents of a bound's place: stores beside it do not change them."""
        while True:
            state = self.values.restrict(state, holds)
            atom = self.terms.single(state) if isinstance(state, Poly) else None
            if atom is None or atom.kind != "stored":
                return state
            mark = int(str(atom.args[1]))
            if not self._beside(marks[mark], bound):
                return state
            state = before[mark]

    def _beside(self, store: Event, bound: Bound) -> bool:
        """No element that an instruction, or an op, stores is part of a bound."""
        if not self._stored_at:
            for region in (*self.equality.plan.values(), *self.equality.program.values()):
                for event in region.events:
                    if isinstance(event, ElementAccess) and event.operands[0] == SHARED:
                        self._stored_at.setdefault((event.where, event.order), []).append(event)
        listed = self._stored_at.get((store.where, store.order), ())
        for event in listed:
            at = event.operands[1]
            assert isinstance(at, Poly | Choice)
            apart = self.values.number(self.values.sub(at, bound.place))
            if apart is None or -event.bytes < apart < bound.bytes:
                return False
        return bool(listed)

    def _but_for_stores_beside(self, tensor: str, at: Poly, size: int, state: Value, holds: Condition) -> Value:
        """The contents of an element, without plain stores by the same thread to other elements. They run once, after
        all synchronisation: a load moved across them stays in its interval, in which no other thread writes what it
        reads, because the IR has no data races."""
        while True:
            inside = self.values.restrict(state, holds)
            atom = self.terms.single(inside) if isinstance(inside, Poly) else None
            if atom is None or atom.kind != "stored":
                return state
            mark, by_ir = int(str(atom.args[1])), atom.args[0] == "ir"
            marks = self.plan.marks if by_ir else self.program.instructions.marks
            before = self.plan.before if by_ir else self.program.instructions.before
            if not self._stores_beside(by_ir, marks[mark], tensor, at, size):
                return state
            if mark not in before:
                return state
            state = before[mark]

    def _stores_beside(self, by_ir: bool, store: Event, tensor: str, at: Poly, size: int) -> bool:
        if by_ir not in self._last_stores:
            root = self.plan.region if by_ir else self.root
            events = [e for _, region in regions_of(root) for e in region.events]
            others = (e for e in events if not isinstance(e, ElementAccess) and not e.kind.startswith(_NO_SYNC))
            last = max((e.order for e in others), default=-1)
            found = self._last_stores[by_ir] = {}
            for event in root.events:
                if isinstance(event, ElementAccess) and event.kind == "st.global" and event.order > last:
                    found.setdefault(event.order, []).append(event)
        listed = self._last_stores[by_ir].get(store.order, ())
        for event in listed:
            place = event.operands[1]
            assert isinstance(place, Poly)
            apart = self.values.number(self.values.sub(place, at))
            if event.operands[0] != tensor or apart is None or -event.bytes < apart < size:
                return False
        return bool(listed)

    def _calls(self, ptx: LoopBody, care: Condition) -> None:
        """A loop that is a function of the library's ends, as it does there: wherever the PTX runs it, a function that
        the IR names runs it on equal operands."""
        for call in ptx.calls:
            known = self.loops[call.loop.text]
            left = self.equality.in_common_terms(call.entry, (x.entry for x in known), care)
            for other in known:
                part = self.cases.both(left, other.entry)
                pairs = zip(other.operands, call.operands, strict=True)
                if part != 0 and all(self.equality.equal(x, y, part) for x, y in pairs):
                    left = self.cases.without(left, part)
            if left != 0 and not self.prover.impossible(left):
                self.differ(call.where, ptx.where, "a loop of a library function that the IR does not call so")

    def _vectors(self, ptx: LoopBody, care: Condition) -> None:
        """What moves several elements at once moves what the IR does, or begins at a multiple of its bytes."""
        for access in ptx.vectors:
            holds = self.cases.both(access.holds, care)
            if holds == 0 or self._moved(access, holds) or self.prover.impossible(holds):
                continue
            if not self.alignment.multiple(access.tensor, access.offset, holds) % access.bytes:
                continue
            if not self._moved_nearby(access, holds):
                what = f"{access.bytes} bytes of {access.tensor} at {self._text(access.offset)} may not be aligned"
                self.differ(access.where, "nowhere", what)

    def _moved(self, access: VectorAccess, holds: Condition) -> bool:
        """The IR moves as much from there."""
        if self.plan.vectors.get((access.tensor, access.offset), 0) >= access.bytes:
            return True
        return any(
            tensor == access.tensor and size >= access.bytes and self.equality.equal(at, access.offset, holds)
            for (tensor, at), size in self.plan.vectors.items()
            if [m for m, _ in at.terms] == [m for m, _ in access.offset.terms]
        )

    def _moved_nearby(self, access: VectorAccess, holds: Condition) -> bool:
        """The same, of a place that is another sum."""
        places = (
            at for (name, at), size in self.plan.vectors.items() if name == access.tensor and size >= access.bytes
        )
        return any(self.prover.equal(at, access.offset, holds) for at in places)

    def _loads(self, ir: LoopBody, ptx: LoopBody, care: Condition) -> None:
        index: dict[tuple[object, object, int], Condition] = {}
        listed: dict[tuple[object, object, int], Event] = {}
        for _, region in regions_of(ir):
            for event in region.events:
                if isinstance(event, ElementAccess) and event.kind.startswith("ld."):
                    key = (event.operands[0], event.operands[1], event.bytes)
                    condition = event.condition if region is ir else self.cases.true
                    index[key] = self.cases.either(index.get(key, 0), condition)
                    listed.setdefault(key, event)
        alike: dict[tuple[object, ...], list[tuple[Poly, Condition]]] = {}
        for (tensor, place, size), allowed in index.items():
            if isinstance(place, Poly):
                alike.setdefault((tensor, size, *(m for m, _ in place.terms)), []).append((place, allowed))
        for event in ptx.events:
            if not isinstance(event, ElementAccess) or not event.kind.startswith("ld."):
                continue
            holds = self.cases.both(event.condition, care)
            key = (event.operands[0], event.operands[1], event.bytes)
            allowed = index.get(key, 0)
            if key in listed:
                self.sources[id(event)] = listed[key]
            at = event.operands[1]
            assert isinstance(at, Poly)
            outside = self.cases.without(holds, allowed)
            if outside != 0:
                outside = self._unread(alike, (event.operands[0], event.bytes), at, outside)
            if outside == 0 or self.prover.impossible(outside):
                continue
            if self.prover.readable(str(event.operands[0]), at, event.bytes, outside):
                continue
            others = ((place, when) for (name, place, size), when in index.items() if (name, size) == key[::2])
            outside = self._elsewhere([(p, when) for p, when in others if isinstance(p, Poly)], at, outside)
            if outside == 0 or self.prover.impossible(outside):
                continue
            what = f"reads {event.operands[0]} at {self._text(at)} where {self.cases.text(outside)}"
            self.differ(event.where, "nowhere", what)

    def _unread(
        self,
        alike: Mapping[tuple[object, ...], Sequence[tuple[Poly, Condition]]],
        what: tuple[object, int],
        at: Poly,
        outside: Condition,
        depth: int = MOST_LOOKS,
    ) -> Condition:
        """Where the IR reads no such element: none of that form, and none of what the place is case by case where it is
        computed from one of several words."""
        outside = self._elsewhere(alike.get((*what, *(m for m, _ in at.terms)), ()), at, outside)
        whole = self.equality.expanded(at) if outside != 0 and depth else at
        if whole is at:
            return outside
        total = self.cases.without(outside, self.values.anywhere(self.values.parts(whole)))
        for condition, place in self.values.parts(whole):
            part = self.cases.both(outside, condition)
            if part != 0:
                total = self.cases.either(total, self._unread(alike, what, place, part, depth - 1))
        return total

    def _elsewhere(self, loads: Sequence[tuple[Poly, Condition]], at: Poly, outside: Condition) -> Condition:
        """Where none of the IR's loads, by place and condition, is of a place that is equal there, though written in
        another way."""
        for place, allowed in loads:
            part = self.cases.both(outside, allowed)
            if part == 0:
                continue
            apart = self.terms.per_thread(self.terms.sub(place, at))
            if apart is not None:  # a number for each thread: there they are equal where it is 0
                part = self.cases.both(part, self.cases.threads_where(apart == 0))
            if part != 0 and (apart is not None or self.equality.equal(place, at, part)):
                outside = self.cases.without(outside, part)
        return outside


def regions_of(region: LoopBody) -> Iterator[tuple[str, LoopBody]]:
    """A region and the loops inside, by name."""
    yield region.name, region
    for loop in region.loops:
        yield from regions_of(loop)

"""Random cache programs: mostly right, with the mistakes that people make."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tilewright.diag import Location
from tilewright.pages.programs import ops as o

STREAMS = ("main", "main", "side")


@dataclass
class Names:
    """What a body may name; handles that were consumed stay, for mistakes."""

    live: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    conditions: list[int] = field(default_factory=list)


class Maker:
    """Makes one program of about ``size`` ops; ``mistakes`` is the chance of a wrong choice."""

    def __init__(self, seed: int, size: int, mistakes: float) -> None:
        self.random = random.Random(seed)
        self.left, self.mistakes = size, mistakes
        self.count = self.line = 0
        self.tables: set[int] = set()
        self.in_each = False
        self.places = [o.Place("cell", False), o.Place("slots", True), o.Place("others", True)]
        self.kinds = {place.name: self.random.random() < 0.4 for place in self.places}

    def program(self) -> o.CacheProgram:
        names = Names()
        ops = self.body(names, 0)
        ops += self.emptied(names)
        return o.CacheProgram("random", tuple(ops), self.where(), self.where())

    def where(self) -> Location:
        self.line += 1
        return Location("random.py", self.line)

    def number(self) -> int:
        self.count += 1
        return self.count

    def slips(self) -> bool:
        return self.random.random() < self.mistakes

    def body(self, outer: Names, depth: int) -> list[o.PageOp]:
        """Ops; what they make is released at the end, mostly. What they consume of ``outer`` is dead there."""
        own = len(outer.live)
        made: list[o.PageOp] = []
        names = Names(list(outer.live), list(outer.dead), list(outer.events), list(outer.conditions))
        for _ in range(self.random.randint(1, 6) if depth else self.left):
            if self.left > 0:
                self.left -= 1
                made += self.op(names, depth)
        fresh = [h for h in names.live if h not in outer.live[:own]]
        if fresh:
            made += self.released(names, fresh)
        for handle in list(outer.live):
            if handle not in names.live:
                outer.live.remove(handle)
                outer.dead.append(handle)
        return made

    def released(self, names: Names, handles: list[int]) -> list[o.PageOp]:
        made: list[o.PageOp] = [] if self.slips() else [o.HostFence(self.where(), None)]
        for handle in handles:
            if not self.slips():
                made.append(o.ReleasePages(self.where(), handle, None))
        return made

    def emptied(self, names: Names) -> list[o.PageOp]:
        """The end of a program: places are emptied."""
        made: list[o.PageOp] = [o.HostFence(self.where(), None)]
        made += self.flush(self.places[0])
        inner = [op for place in self.places[1:] for op in self.flush(place)]
        return [*made, o.RepeatLoop(self.where(), "requests", True, tuple(inner))]

    def flush(self, place: o.Place) -> list[o.PageOp]:
        if self.slips():
            return []
        condition, handle = self.number(), self.number()
        ask = o.AskPlace(self.where(), condition, place)
        then = (o.TakeFromPlace(self.where(), handle, place), o.ReleasePages(self.where(), handle, None))
        return [ask, o.WhenBranch(self.where(), condition, "full", then, ())]

    def pick(self, names: Names) -> int | None:
        if names.dead and self.slips():
            return self.random.choice(names.dead)
        return self.random.choice(names.live) if names.live else None

    def op(self, names: Names, depth: int) -> list[o.PageOp]:
        kinds = ["take", "take", "append", "append", "launch", "launch", "share", "fork", "release", "release"]
        kinds += ["record", "wait", "fence", "reuse", "slide", "put", "place", "place", "flag"]
        if depth < 3:
            kinds += ["when", "when", "repeat"] + ["each"] * (not self.in_each)
        return getattr(self, self.random.choice(kinds))(names, depth)

    # -- handles ------------------------------------------------------------------------------------------------------
    def take(self, names: Names, _: int) -> list[o.PageOp]:
        handle, table = self.number(), self.random.random() < 0.4
        if table:
            self.tables.add(handle)
        names.live.append(handle)
        return [o.TakePage(self.where(), handle, table, matched=table and self.random.random() < 0.5)]

    def again(self, names: Names, cow: bool) -> list[o.PageOp]:
        of = self.pick(names)
        if of is None:
            return []
        handle = self.number()
        if of in self.tables:
            self.tables.add(handle)
        names.live.append(handle)
        return [o.SharePage(self.where(), handle, of, cow)]

    def share(self, names: Names, _: int) -> list[o.PageOp]:
        return self.again(names, False)

    def fork(self, names: Names, _: int) -> list[o.PageOp]:
        return self.again(names, True)

    def consumed(self, names: Names, handle: int) -> None:
        if handle in names.live:
            names.live.remove(handle)
            names.dead.append(handle)

    def reuse(self, names: Names, _: int) -> list[o.PageOp]:
        of = self.pick(names)
        if of is None or of in self.tables:
            return []
        self.consumed(names, of)
        handle = self.number()
        names.live.append(handle)
        return [o.ReusePage(self.where(), handle, of)]

    def release(self, names: Names, _: int) -> list[o.PageOp]:
        of = self.pick(names)
        if of is None:
            return []
        self.consumed(names, of)
        if names.events and self.random.random() < 0.3:
            return [o.ReleasePages(self.where(), of, self.random.choice(names.events))]
        made: list[o.PageOp] = [] if self.slips() else [o.HostFence(self.where(), None)]
        return [*made, o.ReleasePages(self.where(), of, None)]

    def slide(self, names: Names, _: int) -> list[o.PageOp]:
        of = self.pick(names)
        after = self.random.choice(names.events) if names.events and self.random.random() < 0.5 else None
        return [] if of not in self.tables else [o.SlideWindow(self.where(), of, after)]

    # -- launches -----------------------------------------------------------------------------------------------------
    def append(self, names: Names, _: int) -> list[o.PageOp]:
        of = self.pick(names)
        return [] if of is None else [o.AppendTokens(self.where(), of, self.random.choice(STREAMS))]

    def launch(self, names: Names, _: int) -> list[o.PageOp]:
        of = self.pick(names)
        if of is None:
            return []
        reads, writes = ((of,), ()) if self.random.random() < 0.7 else ((), (of,))
        return [o.LaunchKernel(self.where(), "kernel", reads, writes, self.random.choice(STREAMS))]

    def record(self, names: Names, _: int) -> list[o.PageOp]:
        event = self.number()
        names.events.append(event)
        return [o.RecordEvent(self.where(), event, self.random.choice(STREAMS))]

    def wait(self, names: Names, _: int) -> list[o.PageOp]:
        if not names.events:
            return []
        return [o.StreamWait(self.where(), self.random.choice(STREAMS), self.random.choice(names.events))]

    def fence(self, names: Names, _: int) -> list[o.PageOp]:
        event = self.random.choice(names.events) if names.events and self.random.random() < 0.5 else None
        return [o.HostFence(self.where(), event)]

    # -- places and control -------------------------------------------------------------------------------------------
    def place(self, names: Names, _: int) -> list[o.PageOp]:
        """What a place holds is taken out, or something put in, mostly under the question whether it is full."""
        place = self.random.choice(self.places[:3] if self.in_each else self.places[:1])
        handle, condition = self.number(), self.number()
        if self.kinds[place.name]:
            self.tables.add(handle)
        inner = Names([handle], [], list(names.events), list(names.conditions))
        then: list[o.PageOp] = [o.TakeFromPlace(self.where(), handle, place)]
        then += self.append(inner, 0) + self.launch(inner, 0)
        if self.random.random() < 0.6:
            then.append(o.PutPage(self.where(), place, handle))
        else:
            then += self.released(inner, [handle])
        if self.slips():
            return then
        ask = o.AskPlace(self.where(), condition, place)
        return [ask, o.WhenBranch(self.where(), condition, "full", tuple(then), ())]

    def put(self, names: Names, _: int) -> list[o.PageOp]:
        place = self.random.choice(self.places[:3] if self.in_each else self.places[:1])
        fitting = [h for h in names.live if (h in self.tables) == self.kinds[place.name]]
        if not fitting:
            return []
        of, condition = self.random.choice(fitting), self.number()
        self.consumed(names, of)
        put = o.PutPage(self.where(), place, of)
        if self.slips():
            return [put]
        full = (o.HostFence(self.where(), None), o.ReleasePages(self.where(), of, None))
        ask = o.AskPlace(self.where(), condition, place)
        return [ask, o.WhenBranch(self.where(), condition, "full", full, (put,))]

    def flag(self, names: Names, _: int) -> list[o.PageOp]:
        condition = self.number()
        names.conditions.append(condition)
        return [o.ChooseFlag(self.where(), condition, f"c{condition}")]

    def when(self, names: Names, depth: int) -> list[o.PageOp]:
        made: list[o.PageOp] = []
        if not names.conditions or self.random.random() < 0.4:
            made = self.flag(names, depth)
        condition = self.random.choice(names.conditions)
        kept = list(names.live)
        then, other = self.body(names, depth + 1), []
        gone = [h for h in kept if h not in names.live]
        for handle in gone:  # consumed in one branch: mostly in the other, too
            if not self.slips():
                other += [o.HostFence(self.where(), None), o.ReleasePages(self.where(), handle, None)]
        if self.random.random() < 0.5:
            inner = Names(list(names.live), list(names.dead), list(names.events), list(names.conditions))
            other += self.body(inner, depth + 1)
            later = [h for h in names.live if h not in inner.live]
            for handle in later:
                self.consumed(names, handle)
                if not self.slips():
                    then += [o.HostFence(self.where(), None), o.ReleasePages(self.where(), handle, None)]
        return [*made, o.WhenBranch(self.where(), condition, f"c{condition}", tuple(then), tuple(other))]

    def repeat(self, names: Names, depth: int) -> list[o.PageOp]:
        return self.loop(names, depth, False)

    def each(self, names: Names, depth: int) -> list[o.PageOp]:
        return self.loop(names, depth, True)

    def loop(self, names: Names, depth: int, each: bool) -> list[o.PageOp]:
        """Outer handles are used in it, but mostly not consumed."""
        before = (list(names.live), list(names.dead))
        outer, self.in_each = self.in_each, self.in_each or each
        body = self.body(names, depth + 1)
        self.in_each = outer
        gone = [h for h in before[0] if h not in names.live]
        if gone and not self.slips():
            names.live[:], names.dead[:] = before
            return []
        return [o.RepeatLoop(self.where(), "loop", each, tuple(body))]


def random_program(seed: int, size: int = 18, mistakes: float = 0.04) -> o.CacheProgram:
    """The program of a seed."""
    return Maker(seed, size, mistakes).program()

"""The synchronising instructions of a PTX text, per role: only branches are interpreted, nothing else.

A role is a range of threads. The branches on ``%tid.x`` give the threads that reach a basic block; a block belongs to
the role whose range contains them all. Within a role the order of instructions follows the paths through its blocks.
(PTX ISA 9.1, 9.7.12 control flow, 10.1 %tid.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tilewright.codegen.sync_flow import SyncFlow, SyncInstruction
from tilewright.codegen.sync_in_ir import ALL, WHOLE_CTA
from tilewright.hw.spaces import WARP_THREADS

_SYNCHRONISING = (
    "mbarrier.",
    "barrier.",
    "bar.",
    "cp.async.",
    "fence.",
    "wgmma.",
    "setmaxnreg",
    "griddepcontrol.",
    "stmatrix",
    "ldmatrix",
)
_JUMPS, _RETURNS, _STOPS, _CALLS = ("bra", "bra.uni"), ("ret", "ret.uni", "exit"), ("trap",), ("call", "call.uni")
_BEGINS = (*_SYNCHRONISING, "bra", "brx", "ret", "exit", "trap", "call", "@", "{")

_COMPARED = re.compile(r"\s*setp\.(?P<how>lt|le|gt|ge)\.[us]32\s+(?P<predicate>%p\d+), %r\d+, (?P<number>\d+);")
"""Equality picks a thread of a role, not a role."""
_SHIFTED = re.compile(r"\s*shr\.[us]32\s+(?P<to>%r\d+), %r\d+, 5;")
_OF_WARP = re.compile(r"\s*shfl\.sync\.idx\.b32\s+(?P<to>%r\d+)\|%p\d+, %r\d+, %r\d+, %r\d+, %r\d+;")
"""The warp index of a thread, broadcast from one of its lanes: the same value."""

_CLOSES = re.compile(r"\n\}\n(?!\s*// end inline asm)")
_MOVED = re.compile(r"\s*mov\.[ubs]32\s+%r\d+, (\d+);")
_SIZED = ("mbarrier.init", "mbarrier.arrive.expect_tx", "bar.", "barrier.")
"""Instructions whose last operand is a size."""

Threads = tuple[int, int]
"""The first and the last of some threads."""


class UnreadablePtxError(Exception):
    """The text has a construct that this parser does not support, at a line."""


@dataclass
class _BasicBlock:
    """A basic block: its instructions by line, its successors with the predicate of each, and whether the kernel may
    end here."""

    instructions: list[int] = field(default_factory=list[int])
    successors: list[tuple[str | int, str]] = field(default_factory=list[tuple["str | int", str]])
    ends: bool = False


def ptx_flows(ptx: str, threads: int, roles: Mapping[str, Threads]) -> dict[str, SyncFlow]:
    """The instructions and their order, for each role and for the code around the roles."""
    text = _Text(ptx)
    owners = [_role_of(reach, roles) for reach in text.reached(threads)]
    return {label: text.flow(label, owners) for label in (ALL, *roles)}


def _role_of(reach: Threads | None, roles: Mapping[str, Threads]) -> str:
    """The role that contains all threads that reach the block; empty if none do."""
    if reach is None:
        return ""
    holding = (label for label, (first, last) in roles.items() if first <= reach[0] and reach[1] <= last)
    return next(holding, ALL)


class _Text:
    """The basic blocks of one kernel."""

    def __init__(self, ptx: str):
        self.ptx = ptx
        self.lines: list[tuple[str, str]] = []  # words and operands of the instructions
        self.places: list[int] = []
        self.blocks = [_BasicBlock()]
        self.labels: dict[str, int] = {}
        self.read()
        self.constants = self.moved({_last(operands) for word, operands in self.lines if word.startswith(_SIZED)})
        self.instructions = [self.instruction(word, operands) for word, operands in self.lines]

    # -- lines ----------------------------------------------------------------------------------------------------
    def read(self) -> None:
        """Splits the text into blocks at its labels and branches."""
        lines = self.ptx.split("\n")
        first, after = self.body()
        for text in map(str.strip, (*lines[:first], *lines[after:])):
            if text.startswith(_SYNCHRONISING):
                raise UnreadablePtxError(f"outside of the kernel: {text}")
        falls = True  # control, out of the last block
        for number, line in enumerate(lines[first:after], first + 1):
            text = line.strip()
            if text.endswith(":"):
                self.begin(falls)
                falls = True
                self.labels[text[:-1]] = len(self.blocks) - 1
            elif text.startswith(_BEGINS):
                falls = self.line(number, text.lstrip("{ \t"), falls)

    def body(self) -> tuple[int, int]:
        """The number of lines before the kernel's body, and before the text after it."""
        head = self.ptx.find(".entry")
        if head < 0 or self.ptx.find(".entry", head + 1) >= 0:
            raise UnreadablePtxError("a text of not one kernel")
        begin, end = self.ptx.find("\n{", head), _CLOSES.search(self.ptx, head)
        return self.ptx.count("\n", 0, begin) + 1, self.ptx.count("\n", 0, end.start() if end else None) + 1

    def begin(self, falls: bool, unless: str = "") -> None:
        """A new block; ``falls``: control comes from the one before, where ``unless`` does not hold."""
        if falls:
            self.blocks[-1].successors.append((len(self.blocks), f"!{unless}" if unless else ""))
        self.blocks.append(_BasicBlock())

    def line(self, number: int, text: str, falls: bool) -> bool:
        """Takes one line in; whether control may fall out of it."""
        guard = ""
        if text.startswith("@"):
            guard, _, text = text[1:].partition(" ")
            text = text.lstrip()
        word, _, operands = text.rstrip(";").partition("\t" if "\t" in text else " ")
        word, here = word.strip(), self.blocks[-1]
        if word.startswith(_SYNCHRONISING):
            if guard:
                raise UnreadablePtxError(f"line {number} runs by a predicate: @{guard} {text}")
            here.instructions.append(len(self.lines))
            self.lines.append((word, operands.strip()))
            self.places.append(number)
            return falls
        if word in _JUMPS:
            here.successors.append((operands.strip(), guard))
        elif word in _RETURNS:
            here.ends = True
        elif word in _CALLS and not guard:  # what is called returns, and synchronises nothing, or the text is refused
            return falls
        elif word in _STOPS:
            pass
        elif word.startswith(_BEGINS):
            raise UnreadablePtxError(f"line {number}: {text}")
        else:
            return falls
        self.begin(bool(guard), guard)
        return bool(guard)

    def instruction(self, word: str, operands: str) -> SyncInstruction:
        """An instruction under the name that the IR's has."""
        match word.split("."):
            case ["mbarrier", what, *more] if "relaxed" in more:  # the IR's release and acquire
                return SyncInstruction(f"mbarrier.{what}.relaxed")
            case ["mbarrier", "init", *_]:
                return SyncInstruction("mbarrier.init", self.number(operands))
            case ["mbarrier", "arrive", "expect_tx", *_]:
                return SyncInstruction("mbarrier.arrive.expect_tx", self.number(operands))
            case ["mbarrier", "arrive", "shared::cluster", *_]:
                return SyncInstruction("mbarrier.arrive.shared::cluster")
            case ["mbarrier", "arrive" | "try_wait" as what, *_]:
                return SyncInstruction(f"mbarrier.{what}")
            case ["barrier", "cluster", what, *_]:
                return SyncInstruction(f"barrier.cluster.{what}")
            case ["bar", "warp", "sync"]:
                return SyncInstruction("bar.warp.sync")
            case ["bar" | "barrier", "sync" | "arrive" as what, *_]:
                return SyncInstruction(f"bar.{what}", self.number(operands) if "," in operands else WHOLE_CTA)
            case ["bar" | "barrier", "red", *_]:
                return SyncInstruction("bar.red", WHOLE_CTA if operands.count(",") == 2 else None)
            case ["cp", "async", "ca" | "cg", *_]:
                return SyncInstruction("cp.async", operands.split(",")[2].strip())
            case ["cp", "async", "mbarrier", *_]:
                return SyncInstruction("cp.async.mbarrier.arrive")
            case ["cp", "async", "bulk", "tensor", rank, space, *more]:
                form = (
                    "multicast" if "multicast::cluster" in more else "load" if space == "shared::cluster" else "store"
                )
                return SyncInstruction(f"cp.async.bulk.tensor.{form}", rank)
            case ["cp", "async", "bulk", "wait_group", *read]:
                return SyncInstruction(".".join(["cp.async.bulk.wait_group", *read]), operands)
            case ["fence", "proxy" | "mbarrier_init" as what, *more]:
                return SyncInstruction(".".join(["fence", what, *more[: what == "proxy"]]))
            case ["wgmma", "mma_async", "sync", "aligned", *shape]:
                return SyncInstruction("wgmma.mma_async", ".".join(shape))
            case ["wgmma", "wait_group", *_]:
                return SyncInstruction("wgmma.wait_group", operands)
            case ["wgmma", what, *_]:
                return SyncInstruction(f"wgmma.{what}")
            case ["setmaxnreg", direction, *_]:
                return SyncInstruction(f"setmaxnreg.{direction}", operands)
            case ["stmatrix" | "ldmatrix" as name, *parts]:
                count = next((p for p in parts if p in ("x1", "x2", "x4")), None)
                return SyncInstruction(name, f"{count}.trans" if "trans" in parts else count)
            case _:
                return SyncInstruction(word)

    def number(self, operands: str) -> str | None:
        """The number that the last operand is; None where the text does not show it."""
        operand = _last(operands)
        return operand if operand.isdigit() else self.constants.get(operand)

    def moved(self, operands: set[str]) -> dict[str, str | None]:
        """The numbers in registers that are set once, to a number; None for others."""
        found: dict[str, str | None] = {}
        names = sorted(re.escape(o) for o in operands if o.startswith("%"))
        for match in re.finditer(rf"\t({'|'.join(names)}), ", self.ptx) if names else ():
            line = self.ptx[self.ptx.rfind("\n", 0, match.start()) + 1 : self.ptx.find("\n", match.end())]
            moved = _MOVED.fullmatch(line)
            once = match[1] not in found and moved is not None
            found[match[1]] = moved[1] if once and moved is not None else None
        return found

    # -- threads --------------------------------------------------------------------------------------------------
    def reached(self, threads: int) -> list[Threads | None]:
        """For each block the range of threads that may reach it; None if none can."""
        tests = self.tests()
        found: list[Threads | None] = [None] * len(self.blocks)
        found[0] = (0, threads - 1)
        pending = [0]
        while pending:
            number = pending.pop()
            here = found[number]
            assert here is not None
            for target, guard in self.blocks[number].successors:
                then = _narrowed(here, tests.get(guard.lstrip("!")), holds=not guard.startswith("!"))
                if then is None:
                    continue
                to = self.target(target)
                before = found[to]
                after = then if before is None else (min(before[0], then[0]), max(before[1], then[1]))
                if after != before:
                    found[to] = after
                    pending.append(to)
        return found

    def target(self, target: str | int) -> int:
        """A block by its label or number."""
        if isinstance(target, int):
            return target
        if target not in self.labels:
            raise UnreadablePtxError(f"a branch to {target}, which is no label")
        return self.labels[target]

    def tests(self) -> dict[str, tuple[str, int]]:
        """Predicates that compare ``%tid.x``, or the index of the thread's warp, with a number."""
        own = {
            line.split()[1].rstrip(",") for line in self.lines_with("%tid.x;") if line.lstrip().startswith("mov.u32")
        }
        halved = self.made(_SHIFTED, own)
        found = {m["predicate"]: (m["how"], int(m["number"])) for m in self.matches(_COMPARED, own)}
        for m in self.matches(_COMPARED, self.made(_OF_WARP, halved)):
            least = int(m["number"]) + (m["how"] in ("le", "gt"))  # whole warps
            found[m["predicate"]] = "lt" if m["how"] in ("lt", "le") else "ge", least * WARP_THREADS
        return found

    def made(self, how: re.Pattern[str], sources: set[str]) -> set[str]:
        """The registers that this pattern sets from one of ``sources``."""
        return {m["to"] for m in self.matches(how, sources)}

    def matches(self, how: re.Pattern[str], registers: set[str]) -> Iterator[re.Match[str]]:
        """Lines of one form with one of these registers as their first source."""
        found = (how.fullmatch(line) for register in registers for line in self.lines_with(f" {register}, "))
        return (m for m in found if m is not None)

    def lines_with(self, text: str) -> Iterator[str]:
        """The lines in which a text occurs."""
        at = self.ptx.find(text)
        while at >= 0:
            end = self.ptx.find("\n", at)
            yield self.ptx[self.ptx.rfind("\n", 0, at) + 1 : end]
            at = self.ptx.find(text, end)

    # -- order ----------------------------------------------------------------------------------------------------
    def flow(self, label: str, owners: list[str]) -> SyncFlow:
        """The instructions of one owner's blocks; blocks of other owners count as empty."""
        mine = [i for b, block in enumerate(self.blocks) if owners[b] == label for i in block.instructions]
        number = {i: n for n, i in enumerate(mine)}
        if label == ALL:
            starts = {0}
        else:
            starts = {
                self.target(to)
                for b, block in enumerate(self.blocks)
                if owners[b] not in ("", label)
                for to, _ in block.successors
                if owners[self.target(to)] == label
            }
        follow: list[frozenset[int]] = [frozenset()] * len(mine)
        last: set[int] = set()
        for b, block in enumerate(self.blocks):
            if owners[b] != label or not block.instructions:
                continue
            inner = block.instructions
            for one, other in pairwise(inner):
                follow[number[one]] = frozenset((number[other],))
            after, ends = self.heads((self.target(to) for to, _ in block.successors), label, owners)
            follow[number[inner[-1]]] = frozenset(number[i] for i in after)
            if ends or block.ends:
                last.add(number[inner[-1]])
        first, empty = self.heads(iter(starts), label, owners)
        return SyncFlow(
            tuple(self.instructions[i] for i in mine),
            frozenset(number[i] for i in first),
            frozenset(last),
            tuple(follow),
            empty,
            places=tuple(self.places[i] for i in mine),
        )

    def heads(self, blocks: Iterator[int], label: str, owners: list[str]) -> tuple[set[int], bool]:
        """The first instructions of an owner from the beginnings of some blocks on, and whether there may be none."""
        found: set[int] = set()
        ends, seen, pending = False, set[int](), list(blocks)
        while pending:
            number = pending.pop()
            if number in seen:
                continue
            seen.add(number)
            block, own = self.blocks[number], owners[number] == label
            if not own and label != ALL:
                ends = True
                continue
            if own and block.instructions:
                found.add(block.instructions[0])
                continue
            ends = ends or block.ends
            pending += (self.target(to) for to, _ in block.successors)
        return found, ends


def _last(operands: str) -> str:
    """The last of an instruction's operands."""
    return operands.rpartition(",")[2].strip()


def _narrowed(threads: Threads, test: tuple[str, int] | None, *, holds: bool) -> Threads | None:
    """The threads of a range for which a comparison with a number holds, or doesn't; None where there are none."""
    if test is None:
        return threads
    how, number = test
    if not holds:
        how = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}[how]
    first, last = threads
    match how:
        case "lt":
            last = min(last, number - 1)
        case "le":
            last = min(last, number)
        case "gt":
            first = max(first, number + 1)
        case _:
            first = max(first, number)
    return (first, last) if first <= last else None

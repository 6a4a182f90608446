"""Lifetime analysis of a cache program: the pool's peak, reuse of pages, and the page size that fits given lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.diag import Location, fail, shown
from tilewright.pages.programs.checker import CheckedProgram
from tilewright.pages.programs.ops import (
    AppendTokens,
    Body,
    CacheProgram,
    PageOp,
    ReleasePages,
    RepeatLoop,
    SlideWindow,
    TakePage,
    bodies,
)

SLOWER = {1: 0.25, 8: 0.08, 16: 0.03, 32: 0.03, 64: 0.03, 128: 0.03, 256: 0.03}
"""How much longer decode takes than over a contiguous cache, by page size: bounds that our kernels are to keep, until
somebody hands in what they measured."""


@dataclass(frozen=True)
class PoolPlan:
    """Pages that a pool must have, by phase ("" outside of them), for a number of requests and a length each.

    Pages whose release is deferred come on top until their events pass.
    """

    pages: int
    by_phase: Mapping[str, int]


def plan(checked: CheckedProgram, *, requests: int, tokens: int, page_tokens: int) -> PoolPlan:
    """The peak of each phase for ``requests`` requests, each table of up to ``tokens`` tokens.

    An upper bound: the checker's peaks are those of its states, each of which some execution reaches.
    """
    if min(requests, tokens) < 0 or page_tokens < 1:
        _wrong(f"{requests} requests, {tokens} tokens, pages of {page_tokens}", "at least 0 requests and tokens")
    table = -(-tokens // page_tokens)
    by_phase = {
        phase: peak.pages
        + peak.tables * table
        + max(requests - 1, 0) * (peak.pages_per_request + peak.tables_per_request * table)
        for phase, peak in checked.peaks.items()
    }
    return PoolPlan(max(by_phase.values(), default=0), by_phase)


@dataclass(frozen=True)
class ReuseWindow:
    """Pages that are given back at ``released`` may serve what is taken at ``taken``, the next places on some path."""

    released: Location
    taken: tuple[Location, ...]


def reuse_windows(program: CacheProgram) -> list[ReuseWindow]:
    """For each place that gives pages back, where pages are taken next, also around loops."""
    found: dict[Location, set[Location]] = {}
    _scan(program.body, set(), found)
    return [ReuseWindow(at, tuple(sorted(next_, key=_order))) for at, next_ in found.items()]


def _scan(body: Body, behind: set[Location], found: dict[Location, set[Location]]) -> set[Location]:
    """Walk backwards with the takes that come next; those in front of ``body``."""
    following = set(behind)
    for op in reversed(body):
        if isinstance(op, RepeatLoop):
            around = set(following)
            while True:  # until what comes next at the back edge does not grow
                entry = _scan(op.body, around, found)
                if entry <= around:
                    break
                around |= entry
            following |= around
        elif bodies(op):
            following = set[Location]().union(*(_scan(inner, following, found) for inner in bodies(op)))
        else:
            if isinstance(op, ReleasePages | SlideWindow):
                found.setdefault(op.where, set()).update(following)
            following = _before(op, following)
    return following


def _before(op: PageOp, following: set[Location]) -> set[Location]:
    if isinstance(op, TakePage) and not op.given and not op.table:
        return {op.where}  # surely takes a page
    if isinstance(op, AppendTokens):
        return following | {op.where}  # takes one where a table's last page is full, or a copy is made
    return following


def _order(where: Location) -> tuple[str, int]:
    return where.file, where.line


# -- page size --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SizeChoice:
    """What a page size costs for a distribution of lengths: the share of pages' bytes that is wasted, the bytes of
    tables beside them, and how much longer decode takes; ``cost`` is their sum."""

    page_tokens: int
    waste: float
    tables: float
    slower: float

    @property
    def cost(self) -> float:
        """The lower, the more tokens a second and byte."""
        return self.waste + self.tables + self.slower


def choose_page_size(
    lengths: Sequence[int], *, token_bytes: int, slower: Mapping[int, float] = SLOWER
) -> tuple[SizeChoice, list[SizeChoice]]:
    """The page size with the least cost for ``lengths`` (a sample of what a decode step sees: a request weighs as much
    as its output is long), and what each costs. ``token_bytes``: of keys and values of a token, all layers. The page
    sizes of ``slower`` (see ``SLOWER``) are tried."""
    if not lengths or min(lengths) < 1 or token_bytes < 1:
        _wrong(
            f"lengths {shown(list(lengths))}, {token_bytes} bytes a token", "at least one length, of 1 token or more"
        )
    choices = list(_choices(lengths, token_bytes, slower))
    return min(choices, key=lambda c: (c.cost, c.page_tokens)), choices


def _choices(lengths: Sequence[int], token_bytes: int, slower: Mapping[int, float]) -> Iterator[SizeChoice]:
    total = sum(lengths)
    for size, longer in slower.items():
        count = sum(-(-n // size) for n in lengths)
        taken = count * size
        yield SizeChoice(size, (taken - total) / taken, 4 * count / (taken * token_bytes), longer)


def _wrong(found: str, required: str) -> None:
    fail("PAG026", found=found, required=required)

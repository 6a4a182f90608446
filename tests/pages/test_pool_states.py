"""The pool under random operations, beside a model of sets and counters that shares nothing with it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tilewright import pages
from tilewright.diag import TilewrightError
from tilewright.pages.pool import PagePool
from tilewright.pages.size_class import SizeClass

PAGES = 24
PAGE = 4


class Signal:
    """An event that passes when it is told to, or when somebody waits."""

    def __init__(self) -> None:
        self.passed = False
        self.waited = False

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        self.passed = self.waited = True


class PoolMachine(RuleBasedStateMachine):
    """Owners are counted by handle; of pages without owners the model knows whether they may be handed out."""

    LOGGED = True
    held = Bundle("held")
    dead = Bundle("dead")

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[int] = []
        self.pool = pages.PagePool(PAGES, page_tokens=PAGE, log=self.LOGGED, on_evict=self.note)
        self.owners: Counter[int] = Counter()
        self.page_of: dict[int, int] = {}
        self.busy: dict[int, list[Signal]] = {}  # pages without owners, or with, and events that guard them
        self.cached: dict[int, tuple[int, ...]] = {}  # published pages and the tokens up to their end
        self.signals: list[Signal] = []

    def note(self, evicted: np.ndarray, keys: list[bytes]) -> None:
        assert len(evicted) == len(keys)
        self.evicted += evicted.tolist()
        for page in evicted.tolist():
            assert self.owners_of(page) == 0

    def owners_of(self, page: int) -> int:
        return sum(n for h, n in self.owners.items() if n and self.page_of[h] == page)

    def free_now(self) -> int:
        """Pages that a take can get."""
        return sum(self.owners_of(p) == 0 for p in range(PAGES))

    def taken(self, handles: np.ndarray) -> None:
        numbers = self.pool.pages_of(handles).tolist()
        assert len(set(numbers)) == len(numbers)
        for handle, page in zip(handles.tolist(), numbers, strict=True):
            assert self.owners_of(page) == 0, "a page with owners was handed out"
            assert all(s.passed for s in self.busy.pop(page, [])), "a page was handed out before its event"
            assert handle not in self.page_of, "a handle came twice"
            self.cached.pop(page, None)
            self.owners[handle] += 1
            self.page_of[handle] = page

    @initialize(target=held)
    def begin(self):
        taken = self.take_some(8)
        return multiple(*taken.values, *(self.share(h) for h in taken.values[:3]))

    @rule(target=held, number=st.integers(0, 7))
    def take(self, number: int):
        return self.take_some(number)

    def take_some(self, number: int):
        if number > self.free_now():
            before = self.pool.state()
            with pytest.raises(TilewrightError, match="PAG021"):
                self.pool.take(number)
            assert self.pool.state() == before
            return multiple()
        handles = self.pool.take(number)
        self.forget_evicted()
        self.taken(handles)
        return multiple(*handles.tolist())

    @rule(target=held)
    def take_one(self):
        if not self.free_now():
            return multiple()
        handle = self.pool.take_one()
        self.forget_evicted()
        self.taken(np.array([handle]))
        return handle

    def forget_evicted(self) -> None:
        """Evicted pages are told of; pages below them in the tree lose their place, which a match shows."""
        assert set(self.evicted) <= self.cached.keys()
        prefixes = [self.cached[page] for page in self.evicted]
        for page, tokens in list(self.cached.items()):
            if any(tokens[: len(prefix)] == prefix for prefix in prefixes):
                del self.cached[page]
        self.evicted = []

    @rule(target=held, handle=held)
    def share(self, handle: int):
        if not self.owners[handle]:
            with pytest.raises(TilewrightError, match="PAG020"):
                self.pool.share(handle)
            return multiple()
        assert self.pool.share_one(handle) == handle
        self.owners[handle] += 1
        return handle

    @rule(target=dead, handle=consumes(held), deferred=st.booleans(), single=st.booleans())
    def release(self, handle: int, deferred: bool, single: bool):
        if not self.owners[handle]:
            return handle  # by release_many
        signal = Signal() if deferred and not single else None
        if signal is not None:
            self.signals.append(signal)
            self.busy.setdefault(self.page_of[handle], []).append(signal)
        if single:
            self.pool.release_one(handle)
        else:
            self.pool.release(handle, after=signal)
        self.owners[handle] -= 1
        return handle

    @rule(handles=st.lists(held, max_size=6))
    def release_many(self, handles: list[int]) -> None:
        """All or nothing: one handle too often refuses all."""
        wanted = Counter(handles)
        if all(self.owners[h] >= n for h, n in wanted.items()):
            self.pool.release(np.array(handles, np.int64))
            self.owners.subtract(wanted)
        else:
            before = self.pool.state()
            with pytest.raises(TilewrightError, match="PAG020"):
                self.pool.release(np.array(handles, np.int64))
            assert self.pool.state() == before

    @rule(handle=dead)
    def release_again(self, handle: int) -> None:
        page = self.page_of[handle]
        if self.owners[handle] == 0 and page not in self.cached:
            with pytest.raises(TilewrightError, match="PAG020"):
                self.pool.release(handle)

    @precondition(lambda self: self.signals)
    @rule(which=st.integers(0, 50))
    def pass_event(self, which: int) -> None:
        self.signals.pop(which % len(self.signals)).passed = True
        self.pool.poll()

    @rule(handles=st.lists(held, max_size=3, unique=True), words=st.lists(st.integers(0, 1), min_size=3, max_size=3))
    def publish(self, handles: list[int], words: list[int]) -> None:
        if not handles or any(not self.owners[h] for h in handles):
            return
        tokens = tuple(w for w in words[: len(handles)] for _ in range(PAGE))
        found = self.pool.match(tokens)  # who publishes has asked before
        known = len(found)
        if known:
            self.pool.release(found)
        if any(self.page_of[h] in self.cached for h in handles[known:]):
            return
        count = self.pool.publish(np.array(handles, np.int64), tokens)
        assert count == len(handles)
        for i in range(known, len(handles)):
            self.cached[self.page_of[handles[i]]] = tokens[: (i + 1) * PAGE]

    @precondition(lambda self: self.cached)
    @rule(target=held, words=st.lists(st.integers(0, 1), min_size=1, max_size=3), tail=st.integers(0, PAGE - 1))
    def match(self, words: list[int], tail: int):
        tokens = tuple(w for w in words for _ in range(PAGE)) + (0,) * tail
        handles = self.pool.match(tokens)
        expected = [t for n in range(1, len(tokens) // PAGE + 1) for t in [tokens[: n * PAGE]]]
        numbers = self.pool.pages_of(handles).tolist()
        assert [self.cached.get(p) for p in numbers] == expected[: len(numbers)]
        if len(numbers) < len(expected):
            assert expected[len(numbers)] not in self.cached.values()
        for handle, page in zip(handles.tolist(), numbers, strict=True):
            self.owners[handle] += 1
            self.page_of[handle] = page
        return multiple(*handles.tolist())

    @precondition(lambda self: self.cached)
    @rule(number=st.integers(1, 5))
    def evict(self, number: int) -> None:
        self.pool.evict(number)
        self.forget_evicted()

    @rule(handle=held)
    def write(self, handle: int) -> None:
        page = self.page_of[handle]
        if not self.owners[handle]:
            return
        if self.owners[handle] == 1 and page not in self.cached:
            assert self.pool.writable(handle) == page
        else:
            with pytest.raises(TilewrightError, match="PAG022"):
                self.pool.writable(handle)

    @invariant()
    def no_page_is_lost(self) -> None:
        stats = self.pool.stats()
        held = sum(self.owners_of(p) > 0 for p in range(PAGES))
        assert stats.held == held
        assert stats.free + stats.held + stats.cached + stats.deferred == PAGES

    @invariant()
    def the_log_replays(self) -> None:
        assert (self.pool.log is not None) == self.LOGGED
        if self.pool.log is not None:
            assert pages.replay(self.pool.log) == self.pool.state()


class QuickMachine(PoolMachine):
    """Without a log, single calls take their short way."""

    LOGGED = False


TestQuickPool = QuickMachine.TestCase
TestQuickPool.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPool = pytest.mark.slow(PoolMachine.TestCase)
TestPool.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


PLANTED = {
    "events of earlier owners are forgotten": (PagePool, "_guarded", lambda *_: None),
    "pages keep their generation": (SizeClass, "retag", lambda *_: None),
    "frees are not deferred": (PagePool, "_freed", lambda self, size, free, _: self._push(size, free)),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[bug])
    # it ends with the first example that notices: 150 did not hold one of every bug
    enough = settings(TestPool.settings, max_examples=2000, phases=[Phase.generate])
    with pytest.raises((AssertionError, pytest.fail.Exception, TilewrightError)):
        run_state_machine_as_test(QuickMachine, settings=enough)

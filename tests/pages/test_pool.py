"""The pool at run time: who may hold, write and free a page, and when it is handed out again."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import pages
from tilewright.diag import TilewrightError
from tilewright.pages.handles import GENERATION, PAGE

pytestmark = pytest.mark.sample(1)


class Signal:
    def __init__(self, passed: bool = False) -> None:
        self.passed = passed
        self.waits = 0

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        self.waits += 1
        self.passed = True


def refused(code: str, call: Callable[[], object]) -> str:
    with pytest.raises(TilewrightError) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


# -- handles ----------------------------------------------------------------------------------------------------------
def test_a_handle_is_dead_once_it_is_released() -> None:
    pool = pages.PagePool(4)
    handle = pool.take_one()
    pool.release_one(handle)
    again = pool.take_one()
    assert (handle & PAGE, handle + GENERATION) == (again & PAGE, again)
    for call in (pool.release, pool.release_one, pool.share, pool.own, pool.writable, pool.pages_of):
        refused("PAG020", lambda call=call: call(handle))
    pool.release_one(again)


@pytest.mark.parametrize("handle", [-1, 4, 1 << 40, (1 << 63) - 1, 1 << 28])
def test_foreign_handles_are_refused(handle: int) -> None:
    pool = pages.PagePool(4)
    refused("PAG020", lambda: pool.release(handle))
    refused("PAG020", lambda: pool.release_one(handle))


def test_a_batch_is_refused_whole() -> None:
    pool = pages.PagePool(8)
    handles = pool.take(3)
    before = pool.state()
    refused("PAG020", lambda: pool.release([*handles, handles[0]]))
    assert pool.state() == before
    pool.share(handles[0])
    pool.release([*handles, handles[0]])
    assert pool.stats().free == 8


def test_generations_wrap() -> None:
    pool = pages.PagePool(1)
    pool._sizes[0].handles_array += GENERATION * ((1 << 31) - 1)
    last = pool.take_one()
    pool.release_one(last)
    first = pool.take_one()
    assert (last >> 32, first >> 32) == ((1 << 31) - 1, 0)
    pool.release(first)
    assert pool.generations().tolist() == [1]


def test_an_exhausted_pool_changes_nothing() -> None:
    pool = pages.PagePool(4)
    pool.take(3)
    before = pool.state()
    assert "1 of 4 free, 3 held" in refused("PAG021", lambda: pool.take(2))
    assert pool.state() == before
    pool.take(1)
    refused("PAG021", pool.take_one)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pages.PagePool(0),
        lambda: pages.PagePool(4, page_tokens=0),
        lambda: pages.PagePool(1 << 28),
        lambda: pages.PagePool({}),
        lambda: pages.PagePool(4).take(-1),
        lambda: pages.PagePool(4).take(1, page_tokens=32),
    ],
)
def test_arguments_out_of_range(make: Callable[[], object]) -> None:
    refused("PAG026", make)


def test_each_size_has_its_own_free_list() -> None:
    pool = pages.PagePool({16: 4, 64: 2})
    small, large = pool.take(4), pool.take(2, page_tokens=64)
    refused("PAG021", lambda: pool.take(1))
    pool.release([*small[:1], *large])
    assert (pool.stats(16).free, pool.stats(64).free) == (1, 2)
    assert pool.pages_of(pool.take(2, page_tokens=64), page_tokens=64).tolist() == [1, 0]


# -- writing ----------------------------------------------------------------------------------------------------------
def test_copy_on_write() -> None:
    pool = pages.PagePool(4)
    handle = pool.take_one()
    assert pool.own(handle) == (handle, None)
    pool.share(handle)
    assert "1 other owners" in refused("PAG022", lambda: pool.writable(handle))
    mine, source = pool.own(handle)
    assert source == handle != mine
    assert pool.stats().held == 2, "the source is held until its copy has run"
    pool.release(source)
    assert pool.own(handle) == (handle, None)


def test_published_pages_are_not_written() -> None:
    pool = pages.PagePool(4, page_tokens=2)
    handle = pool.take_one()
    pool.publish(handle, [1, 2])
    assert "prefix cache" in refused("PAG022", lambda: pool.writable(handle))
    assert pool.own(handle)[1] == handle


# -- events -----------------------------------------------------------------------------------------------------------
def test_a_deferred_page_is_not_handed_out_before_its_event() -> None:
    pool, signal = pages.PagePool(2), Signal()
    first, second = pool.take(2).tolist()
    pool.release(first, after=signal)
    refused("PAG021", lambda: pool.take(1, wait=False))
    refused("PAG020", lambda: pool.release(first))
    pool.release(second)
    assert pool.take_one() & PAGE == second & PAGE
    assert pool.poll() == 1
    signal.passed = True
    assert pool.poll() == 0
    assert pool.take_one() & PAGE == first & PAGE


def test_deferred_frees_do_not_starve_a_take() -> None:
    """Preemption that frees pages behind events frees something: the take waits for them (vllm#49674)."""
    pool, signals = pages.PagePool(8), [Signal() for _ in range(4)]
    handles = pool.take(8)
    for i, signal in enumerate(signals):
        pool.release(handles[2 * i : 2 * i + 2], after=signal)
    assert len(pool.take(3)) == 3
    assert [s.waits for s in signals] == [1, 1, 0, 0]
    refused("PAG021", lambda: pool.take(6))
    assert [s.waits for s in signals] == [1, 1, 0, 0], "who can't be served waits for nothing"


def test_events_of_all_owners_guard_a_page() -> None:
    """The first owner's launch may run longer than the last one's."""
    pool, slow = pages.PagePool(1), Signal()
    handle = pool.take_one()
    pool.share(handle)
    pool.release(handle, after=slow)
    pool.release(handle)
    assert pool.stats().deferred == 1
    assert pool.take_one() >= 0
    assert slow.waits == 1


def test_a_large_take_is_not_starved_by_small_ones() -> None:
    pool, slow = pages.PagePool(4), threading.Event()

    class Late:
        def query(self) -> bool:
            return slow.is_set()

        def synchronize(self) -> None:
            slow.wait(10)

    handles = pool.take(4)
    pool.release(handles[:3], after=Late())
    got: list[int] = []
    large = threading.Thread(target=lambda: got.extend(pool.take(3).tolist()))
    large.start()
    while not pool._waiting:
        pass
    pool.release(handles[3])
    refused("PAG021", lambda: pool.take(1, wait=False))
    slow.set()
    large.join(10)
    assert len(got) == 3
    assert pool.take_one() >= 0


# -- prefixes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("salt", [None, b"salt"])
def test_full_pages_of_a_prefix_are_found(salt: bytes | None) -> None:
    pool = pages.PagePool(16, page_tokens=4, salt=salt)
    tokens = np.arange(14)
    handles = pool.take(4)
    assert pool.publish(handles, tokens) == 3
    found = pool.match(tokens)
    assert found.tolist() == handles[:3].tolist()
    assert pool.match([*tokens[:8], 99, 99, 99, 99]).tolist() == handles[:2].tolist()
    assert len(pool.match(tokens[4:])) == 0
    assert len(pool.match(tokens, extra=b"adapter")) == 0
    assert len(pool.match(tokens[:3])) == 0
    pool.release([*found, *handles[:2], *handles])
    assert (pool.stats().cached, pool.stats().free) == (3, 13)
    assert pool.match(tokens).tolist() == handles[:3].tolist(), "cached pages keep their handles"


def test_extra_is_no_prefix_of_tokens() -> None:
    pool = pages.PagePool(4, page_tokens=1)
    pool.publish(pool.take(1), [5], extra=b"")
    words = np.array([5], np.int64).tobytes()
    assert len(pool.match([5, 7])) == 1
    for salted in (None, b"s"):
        other = pages.PagePool(4, page_tokens=2, salt=salted)
        other.publish(other.take(1), [5, 6], extra=words)
        assert len(other.match([5, 5], extra=b"")) == 0


def test_the_prefix_used_longest_ago_is_evicted_from_its_end() -> None:
    evicted: list[int] = []
    pool = pages.PagePool(6, page_tokens=1, on_evict=lambda p, keys: evicted.extend(p.tolist()))
    old, new = pool.take(3), pool.take(3)
    pool.publish(old, [1, 2, 3])
    pool.publish(new, [7, 8, 9])
    pool.release(old)
    pool.release(new)
    assert len(pool.take(2)) == 2
    assert evicted == [int(h) & PAGE for h in (old[2], old[1])]
    assert len(pool.match([1, 2, 3])) == 1
    assert len(pool.match([7, 8, 9])) == 3


def test_pages_that_are_copied_out_are_free_behind_the_copy() -> None:
    signal = Signal()
    pool = pages.PagePool(1, page_tokens=1, on_evict=lambda p, keys: signal)
    handle = pool.take_one()
    pool.publish(handle, [1])
    pool.release(handle)
    pool.take_one()
    assert signal.waits == 1


def test_a_hook_that_fails_loses_no_page() -> None:
    def fails(evicted: object, keys: object) -> None:
        raise OSError("disk full")

    pool = pages.PagePool(1, page_tokens=1, on_evict=fails)
    handle = pool.take_one()
    pool.publish(handle, [1])
    pool.release(handle)
    with pytest.raises(OSError, match="disk full"):
        pool.take_one()
    assert pool.stats().free == 1


# -- debug mode, logs -------------------------------------------------------------------------------------------------
def test_a_write_to_a_free_page_is_seen() -> None:
    memory = np.zeros((4, 16, 8), np.float16)
    pool = pages.PagePool(4, guard=pages.HostPoison(memory))
    handle = pool.take_one()
    page = pool.writable(handle)
    memory[page] = 1
    pool.release(handle)
    assert np.isnan(memory).all()
    memory[page, 3, 2] = 0
    assert f"first {page}" in refused("PAG023", lambda: pool.take(1))


def test_a_log_is_stored_and_replays(tmp_path: Path) -> None:
    pool = pages.PagePool({4: 32, 8: 8}, log=True)
    source, held = random.Random(5), list[int]()
    for _ in range(300):
        if held and source.random() < 0.5:
            pool.release(held.pop(source.randrange(len(held))), after=Signal(source.random() < 0.5))
        elif pool.stats(4).free > 3 and pool.stats(8).free:
            held += pool.take(source.randrange(3), page_tokens=4).tolist()
            held += pool.take(1, page_tokens=8).tolist()
    log = pool.log
    assert log is not None
    log.save(tmp_path / "log.npz")
    assert pages.replay(pages.OperationLog.load(tmp_path / "log.npz")) == pool.state()


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_altered_log_does_not_replay(at: int) -> None:
    pool = pages.PagePool(8, log=True)
    pool.release(pool.take(3))
    assert pool.log is not None
    assert len(pool.log) == 3
    pool.log._values[at] = pool.log._values[at] + 1
    refused("PAG025", lambda: pages.replay(pool.log))


# -- threads ----------------------------------------------------------------------------------------------------------
def test_threads_do_not_get_each_others_pages() -> None:
    pool = pages.PagePool(64, page_tokens=1)
    owner: list[int | None] = [None] * 64
    wrong: list[str] = []

    def work(me: int) -> None:
        source, held = random.Random(me), list[int]()
        for _ in range(3000):
            if len(held) > 6 or (held and source.random() < 0.5):
                handle = held.pop(source.randrange(len(held)))
                if owner[handle & PAGE] != me:
                    wrong.append(f"page {handle & PAGE} of {me} is {owner[handle & PAGE]}'s")
                owner[handle & PAGE] = None
                if source.random() < 0.5:
                    pool.release_one(handle)
                else:
                    pool.release(handle, after=Signal(source.random() < 0.5))
            else:
                taken = [pool.take_one()] if source.random() < 0.5 else pool.take(2).tolist()
                for handle in taken:
                    if owner[handle & PAGE] is not None:
                        wrong.append(f"page {handle & PAGE} twice")
                    owner[handle & PAGE] = me
                held += taken
        for handle in held:
            owner[handle & PAGE] = None
        pool.release(held)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.take(64)
    assert wrong == []
    assert pool.stats().held == 64


PROMPTS = [np.array([i, i, i * 7 % 5, 1, 2, 3, i % 3, 9]) for i in range(12)]


class Server:
    """A thread's requests over prompts that others have, too: bursts, forks, evictions; and what pages should hold."""

    def __init__(self, pool: pages.PagePool, content: list[Any], seed: int) -> None:
        self.pool, self.content, self.source = pool, content, random.Random(seed)
        self.held, self.wrong = list[int](), list[str]()

    def serve(self) -> None:
        for _ in range(500):
            try:
                self.source.choices((self.leave, self.arrive, self.fork, self.write, self.evict), (7, 7, 3, 2, 1))[0]()
            except TilewrightError as error:  # no page is left for now
                if error.code != "PAG021":
                    raise
                self.leave()
        while self.held:
            self.leave()

    def leave(self) -> None:
        if self.held:
            handle, event = self.held.pop(self.source.randrange(len(self.held))), Signal(self.source.random() < 0.6)
            self.pool.release(handle, after=self.source.choice((None, event)))

    def arrive(self) -> None:
        if len(self.held) > 10:
            return self.leave()
        tokens = self.source.choice(PROMPTS)
        found = self.pool.match(tokens).tolist()
        self.held += found
        for i, handle in enumerate(found):
            if self.content[handle & PAGE] != (wanted := tuple(tokens[: 2 * i + 2])):
                self.wrong.append(f"page {handle & PAGE} holds {self.content[handle & PAGE]}, not {wanted}")
        fresh = self.pool.take(4 - len(found)).tolist()
        for i, handle in enumerate(fresh, len(found)):
            self.content[handle & PAGE] = tuple(tokens[: 2 * i + 2])
        self.held += fresh
        self.pool.publish(found + fresh, tokens)

    def fork(self) -> None:
        if self.held:
            self.held.append(self.pool.share_one(self.source.choice(self.held)))

    def write(self) -> None:
        if self.held:
            at = self.source.randrange(len(self.held))
            handle, copied = self.pool.own(self.held[at])
            self.content[handle & PAGE] = None
            if copied is not None:
                self.held[at] = handle
                self.pool.release_one(copied)

    def evict(self) -> None:
        self.pool.evict(self.source.randrange(4))


@pytest.mark.parametrize("seed", range(4))
def test_threads_find_prefixes_as_they_were_written(seed: int) -> None:
    copied_out = (lambda evicted, keys: None) if seed % 2 else None
    pool, before = pages.PagePool(48, page_tokens=2, on_evict=copied_out), sys.getswitchinterval()
    content: list[Any] = [None] * 48
    servers = [Server(pool, content, 10 * seed + i) for i in range(6)]
    threads = [threading.Thread(target=server.serve) for server in servers]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert [wrong for server in servers for wrong in server.wrong] == []
    assert not any(server.held for server in servers)
    assert len(pool.take(48)) == 48


def test_what_is_no_integer_is_refused_and_changes_nothing() -> None:
    pool = pages.PagePool(8)
    handle = pool.take_one()
    refused("PAG026", lambda: pool.take(2.5))  # pyright: ignore[reportArgumentType] - of a stranger
    refused("PAG026", lambda: pages.PagePool(2.5))  # pyright: ignore[reportArgumentType] - of a stranger
    for wrong in (handle + 0.7, 2**70, None):
        refused("PAG020", lambda wrong=wrong: pool.release(wrong))  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        pool.release(handle, after=5)  # pyright: ignore[reportArgumentType] - of a stranger
    pool.release(handle)
    assert pool.stats().free == 8


def test_a_window_is_not_negative() -> None:
    sequence = pages.PageSequence(pages.PagePool(8, page_tokens=4))
    sequence.append(6)
    refused("PAG026", lambda: sequence.slide(-5))
    assert sequence.append(1).slots.slots.tolist() == [6]


NO_INTEGERS = [
    None,
    "x",
    1.5,
    b"ab",
    object(),
    [1.5],
    ["a"],
    [None],
    [[1, 2]],
    {},
    np.array([1.5]),
    float("nan"),
    [10**30],
]


@pytest.mark.parametrize("given", NO_INTEGERS, ids=lambda given: type(given).__name__)
@pytest.mark.parametrize(
    "name", ["evict", "match", "release_one", "share_one", "sole_owner", "release", "share", "take"]
)
def test_what_is_no_integer_is_refused_and_loses_nothing(name: str, given: Any) -> None:
    pool = pages.PagePool(8, page_tokens=4)
    pool.publish(pool.take(2), np.arange(8))
    before = pool.state()
    if name == "sole_owner" and given == {}:
        given = None
    with pytest.raises(TilewrightError) as error:
        getattr(pool, name)(given)
    assert error.value.diagnostics[0].code in ("PAG020", "PAG026")
    assert pool.state() == before


@pytest.mark.parametrize("given", [-1, True, *NO_INTEGERS], ids=lambda given: type(given).__name__)
def test_what_is_no_number_of_pages_is_refused(given: Any) -> None:
    pool = pages.PagePool(8, page_tokens=4)
    sequence = pages.PageSequence(pool)
    for call in (lambda: pool.evict(given), lambda: pool.stats(given or "x"), lambda: sequence.publish(given)):
        with pytest.raises(TilewrightError):
            call()
    with pytest.raises(TilewrightError):
        pages.PageSequence(given)


def test_a_hook_may_take_pages() -> None:
    """It runs in the take that evicts: what the hook takes is evicted in its turn, and no thread waits for itself."""
    told: list[int] = []

    def hook(evicted: Any, keys: list[bytes]) -> None:
        told.extend(evicted.tolist())
        if len(told) == 2:
            pool.release(pool.take(1))

    pool = pages.PagePool(4, page_tokens=2, on_evict=hook)
    handles = pool.take(4)
    pool.publish(handles, np.arange(8))
    pool.release(handles)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(pool.take(2)), daemon=True)
    thread.start()
    thread.join(20)
    assert [len(taken) for taken in found] == [2]
    assert len(told) == len(set(told)) == 3
    assert (pool.stats().held, pool.stats().free, pool.stats().cached) == (2, 1, 1)


class Failing:
    """An event of a device that is lost."""

    failed = False

    def query(self) -> bool:
        if self.failed:
            raise RuntimeError("the device is lost")
        return False

    synchronize = query


def test_an_event_that_fails_later_loses_no_page() -> None:
    pool, event = pages.PagePool(2, page_tokens=2), Failing()
    handle = pool.take_one()
    pool.share_one(handle)
    pool.release(handle, after=event)
    event.failed = True
    pool.release(handle)
    assert (pool.poll(), pool.stats().free) == (1, 1)
    assert len(pool.take(1)) == 1
    with pytest.raises(RuntimeError, match="lost"):
        pool.take(1)

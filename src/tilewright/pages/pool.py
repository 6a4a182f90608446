"""The pool at run time: who holds which page of the cache, in microseconds and under threads.

A *handle* is an integer of int64: the page's generation, its size class and its number. It is alive until it is
released as often as it was taken and shared; then the page gets the next generation, and the old handle is refused
(PAG020). A page is free, held by n owners, cached (held by nobody, findable by its prefix) or deferred (released, but
an event behind its launches has not passed).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.diag import fail, shown
from tilewright.pages.handles import GENERATION, GENERATION_BITS, PAGE, PAGE_BITS, SIZE
from tilewright.pages.oplog import OperationLog, Primitive
from tilewright.pages.poison import PageGuard
from tilewright.pages.prefix import PrefixTree
from tilewright.pages.size_class import Handles, Pages, SizeClass, longest_run


class PassingEvent(Protocol):
    """What orders a release behind launches: an event of the runtime, of PyTorch, or of the caller's."""

    def query(self) -> bool:
        """Whether it has passed."""
        ...

    def synchronize(self) -> object:
        """Wait until it has."""
        ...


Evict = Callable[[Pages, list[bytes]], "PassingEvent | None"]
"""Told of cached pages and their keys before they are free, to copy them out: the pages are free behind the event."""


@dataclass(frozen=True)
class PoolStats:
    """Pages of one size by state; ``fragmentation`` is 1 - (longest run of free neighbours) / (free pages)."""

    page_tokens: int
    pages: int
    free: int
    held: int
    cached: int
    deferred: int
    peak: int
    shared: int
    fragmentation: float


@dataclass(eq=False)
class _Deferred:
    size: SizeClass
    pages: Pages
    events: tuple[PassingEvent, ...]


class PagePool:
    """Pages of a cache.

    ``pages``: how many, of ``page_tokens`` tokens each; or a mapping from page sizes to numbers, a free list each (the
    first is what calls without ``page_tokens`` mean). ``salt``: match prefixes by SHA-256 with this salt instead of by
    tokens. ``on_evict``: see ``Evict``. ``guard``: debug mode. ``log``: keep the operations for ``replay``.

    Safe under threads: a lock is held for microseconds, never while an event is waited for or a hook runs.
    """

    def __init__(
        self,
        pages: int | Mapping[int, int],
        *,
        page_tokens: int = 16,
        salt: bytes | None = None,
        on_evict: Evict | None = None,
        guard: PageGuard | None = None,
        log: bool = False,
    ) -> None:
        sizes = dict(pages) if isinstance(pages, Mapping) else {page_tokens: pages}
        for tokens, count in sizes.items():
            counted(tokens, "tokens a page")
            counted(count, "pages")
            if not (tokens >= 1 and 1 <= count <= PAGE) or len(sizes) > SIZE:
                _out_of_range(f"{shown(count)} pages of {shown(tokens)} tokens", f"1 to {PAGE} pages, {SIZE} sizes")
        if not sizes:
            _out_of_range("no pages", "at least one")
        self._lock = threading.Lock()
        self._slow = threading.RLock()  # a hook may take pages, too
        self._waiting = 0
        self._sizes = [SizeClass(i, tokens, count) for i, (tokens, count) in enumerate(sizes.items())]
        self._by_tokens = {size.tokens: size for size in self._sizes}
        self._trees = [PrefixTree(size.tokens, salt) for size in self._sizes]
        self._evictable: list[OrderedDict[int, None]] = [OrderedDict() for _ in self._sizes]
        self._guards: dict[tuple[int, int], list[PassingEvent]] = {}
        self._deferred: OrderedDict[int, _Deferred] = OrderedDict()
        self._entries = 0
        self._on_evict = on_evict
        self._guard = guard
        self.log = OperationLog(sizes) if log else None
        self._plain = guard is None and not log

    # -- taking -------------------------------------------------------------------------------------------------------
    def take_one(self) -> int:
        """The handle of one page of the first size; PAG021 where none can be had."""
        with self._lock:
            size = self._sizes[0]
            if self._plain and size.top and not self._waiting:
                size.top = top = size.top - 1
                if top < size.least_free:
                    size.least_free = top
                page = size.free[top]
                size.refs[page] = 1
                return size.handles[page]
        return int(self.take(1)[0])

    def take(self, number: int, *, page_tokens: int | None = None, wait: bool = True) -> Handles:
        """Handles of ``number`` pages, all or none; PAG021 where they can't be had.

        First from the free list, then from deferred pages whose events have passed, then cached pages are evicted, then
        the oldest events are waited for (not with ``wait=False``): a take fails only if pages are held by owners.
        """
        size = self._size(page_tokens)
        if counted(number, "pages") < 0:
            _out_of_range(f"{shown(number)} pages", "at least 0")
        with self._lock:
            if size.top >= number and not self._waiting:
                return self._popped(size, number)
            self._waiting += 1
        try:
            if not self._slow.acquire(blocking=wait):  # one at a time: a large take is not starved by small ones
                self._exhausted(size, number, 0)
            try:
                return self._take_slowly(size, number, wait)
            finally:
                self._slow.release()
        finally:
            with self._lock:
                self._waiting -= 1

    def _take_slowly(self, size: SizeClass, number: int, wait: bool) -> Handles:
        while True:
            with self._lock:
                self._retire()
                if size.top >= number:
                    return self._popped(size, number)
                evictable, entry = self._evictable[size.number], self._oldest(size)
                deferred = sum(len(d.pages) for d in self._deferred.values() if d.size is size)
                if size.top + len(evictable) + deferred < number or (entry is not None and not wait and not evictable):
                    self._exhausted(size, number, deferred)
                victims = self._unpublish(size, min(len(evictable), number - size.top)) if evictable else None
            if victims is not None:
                self._evict(size, *victims)
            elif entry is not None:
                for event in entry.events:
                    event.synchronize()

    def _popped(self, size: SizeClass, number: int) -> Handles:
        handles = size.pop(number)
        if self._guard is not None and number:
            pages = (handles & PAGE).astype(np.int32)
            whole = self._guard.intact(size.tokens, pages)
            if not whole.all():
                _written_while_free(pages[~whole])
        self._note(Primitive.TAKE, size, handles)
        return handles

    def _oldest(self, size: SizeClass) -> _Deferred | None:
        return next((d for d in self._deferred.values() if d.size is size), None)

    # -- sharing ------------------------------------------------------------------------------------------------------
    def share_one(self, handle: int) -> int:
        """Another owner; returns the same handle."""
        page = _page(handle)
        with self._lock:
            size = self._sizes[0]
            if self._plain and page < size.count and size.handles[page] == handle and size.refs[page]:
                size.refs[page] += 1
                return handle
        return int(self.share(handle)[0])

    def share(self, handles: ArrayLike) -> Handles:
        """Another owner for each; returns the same handles."""
        given = _handles(handles)
        with self._lock:
            for size, mine in self._split(given):
                pages = self._alive(size, mine)
                np.add.at(size.refs_array, pages, 1)
                self._note(Primitive.SHARE, size, mine)
        return given

    def writable(self, handle: int) -> int:
        """The page's number, where this owner may write it; PAG022 where it is shared or cached."""
        with self._lock:
            size, page = self._one(handle)
            if size.refs[page] != 1 or page in self._trees[size.number].nodes:
                others = size.refs[page] - 1
                fail(
                    "PAG022",
                    found=f"page {page} has {others} other owners" if others else f"page {page} is in the prefix cache",
                    required="one owner, and nothing that is published",
                )
            return page

    def own(self, handle: int, *, leaving: int = 0) -> tuple[int, int | None]:
        """Copy on write: a handle whose page may be written, and the handle to copy from.

        The second is None, and the first is ``handle``, where the page may be written as it is. Otherwise the caller
        copies the page, and then releases the second ``after`` an event behind the copy: it is still theirs.
        ``leaving``: owners that copy the page before this one writes it.
        """
        with self._lock:
            size, page = self._one(handle)
            if size.refs[page] == 1 + leaving and page not in self._trees[size.number].nodes:
                return handle, None
        return int(self.take(1, page_tokens=size.tokens)[0]), handle

    # -- releasing ----------------------------------------------------------------------------------------------------
    def release_one(self, handle: int) -> None:
        """Release one handle whose launches have ended."""
        page = _page(handle)
        with self._lock:
            size = self._sizes[0]
            if self._plain and page < size.count and size.handles[page] == handle and size.refs[page]:
                owners = size.refs[page] - 1
                if owners:
                    size.refs[page] = owners
                    return
                if not self._guards and page not in self._trees[0].nodes:
                    size.refs[page] = 0
                    tag = handle + GENERATION
                    size.handles[page] = tag if tag >> 63 == 0 else handle & (GENERATION - 1)
                    size.free[size.top] = page
                    size.top += 1
                    return
        self.release(handle)

    def release(self, handles: ArrayLike, *, after: PassingEvent | None = None) -> None:
        """One owner less for each; a handle may stand in it as often as it is owned. PAG020: one is not alive.

        Pages without owners are free at once, or with ``after`` when that event has passed (and those that earlier
        owners gave); cached ones can be found until they are evicted. Nothing is released where one handle is refused.
        """
        given = _handles(handles)
        with self._lock:
            parts = self._split(given)
            for size, mine in parts:
                self._releasable(size, mine)
            if after is not None:
                after.query()  # what raises does so before an owner is gone
            for size, mine in parts:
                self._release(size, mine, after)

    def _releasable(self, size: SizeClass, handles: Handles) -> None:
        pages = self._alive(size, handles)
        if size.distinct(pages):
            return
        numbers, counts = np.unique(pages, return_counts=True)
        over = numbers[counts > size.refs_array[numbers]]
        if len(over):
            page, times = int(over[0]), int(counts[numbers == over[0]][0])
            found = f"page {page} released {times} times, owned {size.refs_array[page]} times"
            fail("PAG020", found=found, required="each handle released once by each owner")

    def _release(self, size: SizeClass, handles: Handles, after: PassingEvent | None) -> None:
        pages = (handles & PAGE).astype(np.int32)
        if size.distinct(pages):
            size.refs_array[pages] -= 1
        else:
            np.subtract.at(size.refs_array, pages, 1)
        self._note(Primitive.RELEASE, size, handles)
        left = size.refs_array[pages]
        if after is not None:
            for page in pages[left > 0].tolist():
                self._guarded(size, page, after)
        free = pages[left == 0]
        if not size.distinct(free):  # all owners of a page at once
            free = np.unique(free).astype(np.int32)
        tree = self._trees[size.number]
        if tree.nodes:
            cached = np.fromiter((p in tree.nodes for p in free.tolist()), bool, len(free))
            self._cache(size, free[cached], after)
            free = free[~cached]
        if len(free):
            self._freed(size, free, () if after is None else (after,))

    def _guarded(self, size: SizeClass, page: int, after: PassingEvent) -> None:
        """A page that others hold is not free before this owner's launches have ended, either."""
        kept = [e for e in self._guards.get((size.number, page), ()) if not _has_passed(e)]
        self._guards[size.number, page] = [*kept, after]

    def _cache(self, size: SizeClass, pages: Pages, after: PassingEvent | None) -> None:
        for page in pages[::-1].tolist():  # of one prefix the last page is evicted first
            if after is not None:
                self._guarded(size, page, after)
            self._evictable[size.number][page] = None

    def _freed(self, size: SizeClass, pages: Pages, events: Sequence[PassingEvent]) -> None:
        """Pages without owners: deferred by ``events`` and by what their earlier owners gave, else free."""
        size.retag(pages)
        if self._guards:
            own = [p for p in pages.tolist() if (size.number, p) in self._guards]
            for page in own:
                self._defer_or_push(size, np.array([page], np.int32), (*self._guards.pop((size.number, page)), *events))
            pages = pages[~np.isin(pages, own)]
        self._defer_or_push(size, pages, events)

    def _defer_or_push(self, size: SizeClass, pages: Pages, events: Sequence[PassingEvent]) -> None:
        open_ = tuple(e for e in events if not _has_passed(e))
        if open_ and len(pages):
            self._entries += 1
            self._deferred[self._entries] = _Deferred(size, pages, open_)
            self._note(Primitive.DEFER, size, pages, self._entries)
        elif len(pages):
            self._push(size, pages)
            self._note(Primitive.FREE, size, pages)

    def _push(self, size: SizeClass, pages: Pages) -> None:
        if self._guard is not None:
            self._guard.poison(size.tokens, pages)
        size.push(pages)

    def poll(self) -> int:
        """Free what was deferred and whose events have passed; how many pages still wait."""
        with self._lock:
            self._retire()
            return sum(len(d.pages) for d in self._deferred.values())

    def _retire(self) -> None:
        passed = [n for n, d in self._deferred.items() if all(map(_has_passed, d.events))]
        for entry in passed:
            deferred = self._deferred.pop(entry)
            self._push(deferred.size, deferred.pages)
            self._note(Primitive.RETIRE, deferred.size, deferred.pages, entry)

    # -- prefixes -----------------------------------------------------------------------------------------------------
    def publish(
        self, handles: ArrayLike, tokens: ArrayLike, *, extra: bytes = b"", page_tokens: int | None = None
    ) -> int:
        """Let others find the full pages of ``tokens``, which ``handles`` hold; how many are cached now.

        They are not written any more (PAG022). Where a prefix is cached already, its older page stays the one to find.
        """
        size = self._size(page_tokens)
        tree = self._trees[size.number]
        with self._lock:
            pages = self._alive(size, _handles(handles)).tolist()
            node, count = tree.root, 0
            for page, key in zip(pages, tree.keys(tokens, extra), strict=False):
                found = node.children.get(key)
                if found is None:
                    if page in tree.nodes:
                        break  # published under other tokens: the caller's mistake must not become another's tokens
                    found = tree.add(node, key, page)
                    self._note(Primitive.PUBLISH, size, np.array([page], np.int32))
                node, count = found, count + 1
            return count

    def match(self, tokens: ArrayLike, *, extra: bytes = b"", page_tokens: int | None = None) -> Handles:
        """Handles, shared, of the cached pages of the longest prefix of ``tokens``: full pages only."""
        size = self._size(page_tokens)
        with self._lock:
            pages = np.fromiter((n.page for n in self._trees[size.number].walk(tokens, extra)), np.int32)
            size.refs_array[pages] += 1
            for page in pages.tolist():
                self._evictable[size.number].pop(page, None)
            handles = size.handles_array[pages]
            self._note(Primitive.SHARE, size, handles)
            return handles

    def _unpublish(self, size: SizeClass, number: int) -> tuple[Pages, list[bytes]]:
        """Take the ``number`` pages that were used longest ago, and what is below them, out of the cache."""
        tree, lru = self._trees[size.number], self._evictable[size.number]
        pages, keys = list[int](), list[bytes]()
        while len(pages) < number and lru:
            oldest = next(iter(lru))
            below = {p: tree.nodes[p].key for p in [oldest, *self._below(tree, oldest)]}
            gone = tree.remove(oldest)
            self._note(Primitive.UNPUBLISH, size, np.array(gone, np.int32))
            for page in gone:
                if page in lru:  # others are held: they lose their place in the cache only
                    del lru[page]
                    pages.append(page)
                    keys.append(below[page])
        return np.array(pages, np.int32), keys

    def _below(self, tree: PrefixTree, page: int) -> list[int]:
        found, open_ = list[int](), list(tree.nodes[page].children.values())
        while open_:
            node = open_.pop()
            found.append(node.page)
            open_.extend(node.children.values())
        return found

    def _evict(self, size: SizeClass, pages: Pages, keys: list[bytes]) -> None:
        event = None
        try:
            event = self._on_evict(pages, keys) if self._on_evict is not None else None
        finally:
            with self._lock:
                self._freed(size, pages, () if event is None else (event,))

    def sole_owner(self, handles: Sequence[int]) -> bool:
        """Whether each page has one owner and is not published."""
        with self._lock:
            found = [self._one(handle) for handle in _handles(handles).tolist()]
            return all(s.refs[page] == 1 and page not in self._trees[s.number].nodes for s, page in found)

    def evict(self, number: int, *, page_tokens: int | None = None) -> int:
        """Free up to ``number`` cached pages without owners; returns how many."""
        size = self._size(page_tokens)
        if counted(number, "pages") < 0:
            _out_of_range(f"{shown(number)} pages", "at least 0")
        with self._slow:
            with self._lock:
                pages, keys = self._unpublish(size, number)
            self._evict(size, pages, keys)
        return len(pages)

    # -- what is told -------------------------------------------------------------------------------------------------
    def stats(self, page_tokens: int | None = None) -> PoolStats:
        """Pages by state, and the peak."""
        size = self._size(page_tokens)
        with self._lock:
            free = np.sort(size.free_array[: size.top])
            deferred = sum(len(d.pages) for d in self._deferred.values() if d.size is size)
            cached = len(self._evictable[size.number])
            held = int((size.refs_array > 0).sum())
            shared = int((size.refs_array > 1).sum())
            longest = longest_run(free)
            apart = 1 - longest / len(free) if len(free) else 0.0
            return PoolStats(
                size.tokens, size.count, size.top, held, cached, deferred, size.peak, shared, round(apart, 4)
            )

    def pages_of(self, handles: ArrayLike, *, page_tokens: int | None = None) -> Pages:
        """The numbers of the pages, for tables; PAG020 where a handle is not alive."""
        size = self._size(page_tokens)
        with self._lock:
            return self._alive(size, _handles(handles))

    def generations(self, page_tokens: int | None = None) -> NDArray[np.int32]:
        """The generation of every page now, to be copied to the device in debug mode."""
        with self._lock:
            return (self._size(page_tokens).handles_array >> GENERATION_BITS).astype(np.int32)

    @property
    def page_tokens(self) -> int:
        """The first page size."""
        return self._sizes[0].tokens

    def pages(self, page_tokens: int | None = None) -> int:
        """The number of pages of a size."""
        return self._size(page_tokens).count

    def state(self) -> dict[str, Any]:
        """Everything that decides what later calls return, for comparisons with a replay."""
        with self._lock:
            return {
                str(size.tokens): {
                    "free": size.free_array[: size.top].tolist(),
                    "refs": size.refs_array.tolist(),
                    "handles": size.handles_array.tolist(),
                    "published": sorted(self._trees[size.number].nodes),
                    "deferred": {n: d.pages.tolist() for n, d in self._deferred.items() if d.size is size},
                }
                for size in self._sizes
            }

    # -- handles ------------------------------------------------------------------------------------------------------
    def _size(self, page_tokens: int | None) -> SizeClass:
        if page_tokens is None:
            return self._sizes[0]
        if counted(page_tokens, "tokens a page") not in self._by_tokens:
            _out_of_range(f"pages of {shown(page_tokens)} tokens", f"one of {sorted(self._by_tokens)}")
        return self._by_tokens[page_tokens]

    def _split(self, handles: Handles) -> list[tuple[SizeClass, Handles]]:
        """By size class; PAG020 for classes that are not there."""
        if len(self._sizes) == 1:
            return [(self._sizes[0], handles)]
        numbers = (handles >> PAGE_BITS) & SIZE
        if len(handles) and int(numbers.max()) >= len(self._sizes):
            _dead(int(handles[numbers.argmax()]))
        return [(self._sizes[n], handles[numbers == n]) for n in np.unique(numbers).tolist()]

    def _alive(self, size: SizeClass, handles: Handles) -> Pages:
        pages = (handles & PAGE).astype(np.int32)
        inside = pages < size.count
        if not inside.all():
            _dead(int(handles[~inside][0]))
        right = (size.handles_array[pages] == handles) & (size.refs_array[pages] > 0)
        if not right.all():
            _dead(int(handles[~right][0]))
        return pages

    def _one(self, handle: int) -> tuple[SizeClass, int]:
        ((size, given),) = self._split(_handles(handle))
        return size, int(self._alive(size, given)[0])

    def _note(self, what: Primitive, size: SizeClass, values: NDArray[Any], entry: int = 0) -> None:
        if self.log is not None:
            self.log.add(what, size.tokens, values, entry)

    def _exhausted(self, size: SizeClass, number: int, deferred: int) -> NoReturn:
        held = int((size.refs_array > 0).sum())
        fail(
            "PAG021",
            found=f"{number} pages of {size.tokens} tokens: {size.top} of {size.count} free, {held} held, "
            f"{len(self._evictable[size.number])} cached, {deferred} deferred",
            required=f"{number} that are free, cached or deferred",
        )


def _has_passed(event: PassingEvent) -> bool:
    """Whether an event has completed. If the query raises, it has not: the pages stay deferred, and the next caller
    that has to wait for them gets the error."""
    try:
        return event.query()
    except Exception:
        return False


def counted(number: object, what: str) -> int:
    """A number of pages or tokens that a caller gave; PAG026 where it is no integer."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        _out_of_range(f"{shown(number)} {what}", "an integer")
    return int(number)  # pyright: ignore[reportUnknownArgumentType] - of any width


def _page(handle: int) -> int:
    """The page of one handle; PAG020 where it is no integer."""
    try:
        return handle & PAGE
    except TypeError:
        fail("PAG020", found=shown(handle), required="a handle: an integer that this pool gave out")


def _handles(given: ArrayLike) -> Handles:
    """What a caller gave for handles; PAG020 where it is not of integers, of which no fraction may be cut off."""
    array = np.atleast_1d(np.asarray(given))
    if array.size and array.dtype.kind not in "iu":
        fail("PAG020", found=shown(given), required="handles: integers that this pool gave out")
    return array.astype(np.int64, copy=False)


def _dead(handle: int) -> NoReturn:
    generation, page = handle >> GENERATION_BITS, handle & PAGE
    fail("PAG020", found=f"page {page}, generation {generation}", required="a handle that its owner has not released")


def _written_while_free(pages: Pages) -> NoReturn:
    fail("PAG023", found=f"{len(pages)} of the pages, first {pages[0]}", required="the pattern of freed pages")


def _out_of_range(found: str, required: str) -> NoReturn:
    fail("PAG026", found=found, required=required)

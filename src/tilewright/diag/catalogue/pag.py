"""PAG: pages of a cache: programs that own them, tables of them, and the pool at run time."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_RULES = "docs/paged.md, rules of cache programs"
_POOL = "docs/paged.md, the pool"
_TABLES = "docs/paged.md, tables and lengths"

CODES: tuple[Code, ...] = (
    Code(
        "PAG001",
        "a page is released twice",
        "A page that is in the free list twice is given to two sequences: each overwrites the other's keys and values.",
        bad="page.release(); page.release()",
        good="page.release()",
        source=_RULES,
        help="release it once on every path; a second owner takes a handle of its own with page.share()",
    ),
    Code(
        "PAG002",
        "a page is used after its handle was consumed",
        "A released page may belong to another sequence by now: reads return its tokens, writes destroy them.",
        bad="page.release(); page.append()",
        good="page.append(); kv_cache.fence(); page.release()",
        source=_RULES,
        help="use it before it is released, moved or reused; reuse() returns the handle to go on with",
    ),
    Code(
        "PAG003",
        "a page leaks",
        "A page whose last handle is forgotten is never free again: the pool runs empty while nobody uses it.",
        bad="page = pool.take()",
        good="page = pool.take(); page.release()",
        source=_RULES,
        help="release it on every path, put it into a cell or slot, or return it",
    ),
    Code(
        "PAG004",
        "a shared page is written",
        "Another sequence reads the same page; its tokens would change under it.",
        bad="other = page.share(); page.append()",
        good="other = page.fork(); page.append()",
        source=_RULES,
        help="fork() instead of share(): the append then copies; or release the other handles before",
    ),
    Code(
        "PAG005",
        "a page is released while a launch may still use it",
        "Launches, copies and replays of graphs run on after the call returns. The next owner of the page would write "
        "what they read (vllm#45357, vllm#52360).",
        bad="kv_cache.launch('decode', page); page.release()",
        good="kv_cache.launch('decode', page); page.release(after=kv_cache.record('main'))",
        source=_RULES,
        help="kv_cache.fence() before it, or release(after=event) with an event that was recorded behind the launch",
    ),
    Code(
        "PAG006",
        "accesses of two streams to a page are not ordered",
        "Streams run beside each other: a copy may read half of what an append on another stream writes.",
        bad="page.append(stream='main'); kv_cache.launch('out', page, stream='copies')",
        good="page.append(); kv_cache.wait('copies', kv_cache.record('main')); "
        "kv_cache.launch('out', page, stream='copies')",
        source=_RULES,
        help="kv_cache.wait(stream, event), with an event recorded behind the other access",
    ),
    Code(
        "PAG007",
        "a name is used outside of the body that made it",
        "The body of a loop may run many times or never, a branch may not be taken: which page the name means is open.",
        bad="with kv_cache.when(hit): page = pool.take()\npage.release()",
        good="with kv_cache.when(hit):\n    page = pool.take()\n    page.release()",
        source=_RULES,
        help="move it with kv_cache.cell() or kv_cache.slots(requests), which know whether they are full",
    ),
    Code(
        "PAG008",
        "a place is empty where it must be full, or full where it must be empty",
        "A cell or slot holds one handle: what is put over it leaks, and from an empty one nothing can be taken.",
        bad="cell.put(pool.take()); cell.put(pool.take())",
        good="cell.put(pool.take()); cell.take().release(); cell.put(pool.take())",
        source=_RULES,
        help="ask with kv_cache.when(cell.has())",
    ),
    Code(
        "PAG009",
        "no cache program",
        "A program is traced once, with symbolic requests and conditions: if, break and return of Python are not seen.",
        bad="if page: ...",
        good="with kv_cache.when(kv_cache.flag('end of text')): ...",
        source=_RULES,
        help="kv_cache.each and repeat are the loops of a program, kv_cache.when and otherwise its branches",
    ),
    Code(
        "PAG010",
        "whether the program is right is not decided",
        "The checker follows every combination of conditions that a later branch asks for again, and of pages in "
        "cells; beyond a bound it gives up. The program may be right or wrong.",
        bad="ten conditions, all asked again behind the branches of all",
        good="branches that follow a condition put under the branch that asks for it",
        source=_RULES,
        help="ask for a condition once, and put what depends on it into that branch; split the program",
    ),
    Code(
        "PAG020",
        "a handle is not alive",
        "Each page has a generation, which changes when it is freed; a handle of an older one was released already.",
        bad="pool.release(handle); pool.release(handle)",
        good="pool.release(handle)",
        source=_POOL,
        help="release each handle once; pool.share(handle) makes another owner",
    ),
    Code(
        "PAG021",
        "the pool is exhausted",
        "All pages are held: none is free, none waits for an event, and no cached one may be evicted.",
        bad="pool.take(2000) of PagePool(1024)",
        good="pool.take(1000), and preempt a sequence when it fails",
        source=_POOL,
        help="release a sequence and take again, or make the pool larger; pool.stats() says who holds what",
    ),
    Code(
        "PAG022",
        "a page is written that is shared or cached",
        "Others read the page: sequences that forked it, or whoever finds its prefix in the cache.",
        bad="pool.writable(handle) after pool.share(handle)",
        good="handle, source = pool.own(handle); copy source to handle",
        source=_POOL,
        help="pool.own(handle) gives a page of its own and says what to copy",
    ),
    Code(
        "PAG023",
        "a freed page was written",
        "Freed pages of a pool in debug mode hold a pattern; it was changed when the page was taken again, so a "
        "kernel or a copy still wrote to a page that was free.",
        bad="release(handle) right after a launch that writes it",
        good="release(handle, after=event)",
        source=_POOL,
        help="release(after=event) with an event recorded behind the last launch that uses the page",
    ),
    Code(
        "PAG024",
        "a table of pages is not well-formed",
        "Kernels read ceil(length / page) entries of a row: each must name a page of the cache, and lengths must fit.",
        bad="seq_lens [40] with pages of 16 and block_table [[3, 7]]",
        good="block_table [[3, 7, 1]]",
        source=_TABLES,
        help="block_table [B, max_pages] int32 and seq_lens [B] int32; entries behind the length may be anything",
    ),
    Code(
        "PAG025",
        "a log does not replay",
        "The same operations on a fresh pool gave other pages: the log was altered, or belongs to another pool.",
        bad="replay(log) of a pool with other sizes",
        good="replay(pool.log)",
        source=_POOL,
        help="replay the log as it was written",
    ),
    Code(
        "PAG026",
        "an argument of the pool is out of range",
        "Sizes count tokens and pages, from 1; handles are integers of int64.",
        bad="PagePool(0)",
        good="PagePool(1024, page_tokens=16)",
        source=_POOL,
    ),
)

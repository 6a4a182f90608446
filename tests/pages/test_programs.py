"""Every rule of cache programs: wrong programs are refused at their line, right ones are not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.page_cases import Case, cases
from support.page_oracle import all_runs, random_runs
from tilewright import pages
from tilewright.diag import TilewrightError, render
from tilewright.pages.programs.checker import check
from tilewright.pages.programs.language import trace

pytestmark = pytest.mark.sample(1)

ROOT = Path(__file__).parents[2]
WRONG, RIGHT = list(cases("wrong")), list(cases("right"))


def ids(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", WRONG, ids=ids)
def test_a_wrong_program_is_refused_at_its_line(case: Case) -> None:
    with pytest.raises(TilewrightError) as caught:
        pages.program(case.function()).check()
    found = [d for d in caught.value.diagnostics if d.code == case.code]
    assert found, str(caught.value)
    where = found[0].where
    assert where is not None
    if case.line is not None:
        assert where.line == case.line, render(found[0])


@pytest.mark.parametrize("case", RIGHT, ids=ids)
def test_a_right_program_is_not_refused(case: Case) -> None:
    program = pages.program(case.function()).check()
    assert list(random_runs(program.traced, 40, 1)) == []


@pytest.mark.parametrize("case", [c for c in WRONG if c.code not in ("PAG007", "PAG009")], ids=ids)
def test_an_execution_of_a_wrong_program_does_wrong(case: Case) -> None:
    traced = pages.program(case.function()).traced
    found = {w.code for w in random_runs(traced, 60, 1)}
    assert case.code in found | {w.code for w in all_runs(traced, 3000) if w is not None}


def test_there_are_enough_of_both() -> None:
    alone = [c.name for c in (*WRONG, *RIGHT) if c.name.endswith(", alone")]
    assert len(alone) > 120
    assert (len(WRONG) > 300, len(RIGHT) > 250) == (True, True)
    assert {c.code for c in WRONG} == {f"PAG00{n}" for n in range(1, 10)}


def in_a_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("what", ["release", "append", "launch", "fence"])
def test_a_construct_in_a_thread_of_the_program_is_refused(what: str) -> None:
    """Where the thread stands in the order of the program, no trace tells; its error ends the thread alone."""

    def serve(pool: pages.Pool) -> None:
        page = pool.take()
        call = {"launch": lambda: pages.launch("decode", page), "fence": pages.fence}
        in_a_thread(call[what] if what in call else getattr(page, what))
        page.release()

    with pytest.raises(TilewrightError, match="in another thread") as caught:
        pages.program(serve).check()
    assert [d.code for d in caught.value.diagnostics] == ["PAG009"]


def test_programs_are_traced_in_several_threads_at_once() -> None:
    both, found = threading.Barrier(2), dict[str, object]()

    def serve(pool: pages.Pool) -> None:
        page = pool.take()
        both.wait(10)
        page.append()
        both.wait(10)
        pages.fence()
        page.release()

    def checked(name: str) -> None:
        found[name] = check(trace(serve)).diagnostics

    threads = [threading.Thread(target=checked, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": (), "b": ()}


@pytest.mark.parametrize("what", ["pool", "cell", "handle"])
def test_what_another_program_made_is_refused_in_both(what: str) -> None:
    """A program that traces another, and lends it what is its own."""

    def outer(pool: pages.Pool) -> None:
        cell, page = pages.cell(), pool.take()

        def inner(pool_of_inner: pages.Pool) -> None:
            match what:
                case "pool":
                    pool.take()
                case "cell":
                    cell.put(pool_of_inner.take())
                case _:
                    page.release()

        with contextlib.suppress(TilewrightError):
            pages.program(inner).check()
        page.release()

    with pytest.raises(TilewrightError, match="PAG009"):
        pages.program(outer).check()


def test_what_a_program_made_does_nothing_behind_it() -> None:
    kept: list[pages.Pool] = []

    def serve(pool: pages.Pool) -> None:
        kept.append(pool)

    assert not pages.program(serve).checked.diagnostics
    with pytest.raises(TilewrightError, match="PAG009"):
        kept[-1].take()


def joined(lines: int) -> Case:
    """Right programs behind each other."""
    bodies = [c.source.split('pages.slots(requests, "others")\n', 1)[1] for c in RIGHT if c.name.endswith(", alone")]
    text = ""
    for body in bodies:
        text += body if len(text.splitlines()) < lines else ""
    head = RIGHT[0].source.split("    page = ", 1)[0]
    return Case("joined", head + text)


def test_three_hundred_lines_are_checked_in_a_tenth_of_a_second() -> None:
    function = joined(300).function()
    seconds: list[float] = []
    for _ in range(8):
        program = pages.program(function)
        begin = time.process_time()
        program.check()
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.1


SAID = """
import tilewright as tw
from support.page_cases import cases
from tilewright import pages
for case in list(cases("wrong"))[::7]:
    try:
        pages.program(case.function()).check()
    except tw.TilewrightError as error:
        print(error)
"""


def test_the_same_program_gets_the_same_words() -> None:
    said: set[str] = set()
    for seed in ("1", "2"):
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, "-c", SAID]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        said.add(done.stdout)
    assert len(said) == 1
    assert len(said.pop()) > 10000


def swapped_out(device: pages.Pool, host: pages.Pool) -> None:
    page, kept = device.take(), host.take()
    page.append()
    pages.wait("copies", pages.record())
    pages.copy(kept, page, stream="copies")
    page.release(after=pages.record("copies"))
    pages.fence()
    kept.release()


def swapped_out_early(device: pages.Pool, host: pages.Pool) -> None:
    page, kept = device.take(), host.take()
    pages.copy(kept, page, stream="copies")
    page.release()
    pages.fence()
    kept.release()


def copied_on_another_stream(device: pages.Pool, host: pages.Pool) -> None:
    page, kept = device.take(), host.take()
    page.append()
    pages.copy(kept, page, stream="copies")
    pages.fence()
    page.release()
    kept.release()


def forgotten_in_one_pool(device: pages.Pool, host: pages.Pool) -> None:
    cell = pages.cell()
    with pages.when(pages.flag("long")):
        cell.put(host.take())
    with pages.otherwise():
        cell.put(device.take())
    pages.launch("decode", device.take())
    pages.fence()
    cell.take().release()


@pytest.mark.parametrize(
    ("function", "code", "line"),
    [
        (swapped_out, None, 0),
        (swapped_out_early, "PAG005", 3),
        (copied_on_another_stream, "PAG006", 3),
        (forgotten_in_one_pool, "PAG003", 6),
    ],
)
def test_pages_of_two_pools(function: Callable[..., None], code: str | None, line: int) -> None:
    program = pages.program(function)
    found = program.checked.diagnostics
    assert [d.code for d in found] == ([] if code is None else [code])
    executed = {w.code for w in random_runs(program.traced, 60, 1)}
    if code is None:
        assert not executed
        assert pages.plan(program.checked, requests=1, tokens=16, page_tokens=16).pages == 2
    else:
        assert code in executed
        assert found[0].where is not None
        assert found[0].where.line == function.__code__.co_firstlineno + line


def test_tables_taken_before_any_was_put_cost_one_run_more() -> None:
    """However many places they come from: what is put there later in the text tells that they are tables."""
    runs: list[int] = []

    def serve(pool: pages.Pool, requests: pages.Requests) -> None:
        runs.append(1)
        for n in range(5):
            tables = pages.slots(requests, f"tables {n}")
            for _ in pages.repeat("steps"):
                for request in pages.each(requests):
                    with pages.when(tables[request].has()):
                        tables[request].take().release()
                    with pages.otherwise():
                        tables[request].put(pool.match())
            for request in pages.each(requests):
                with pages.when(tables[request].has()):
                    tables[request].take().release()

    pages.program(serve).check()
    assert len(runs) == 2


def test_pages_and_tables_in_one_place_are_refused_where_they_meet() -> None:
    def serve(pool: pages.Pool) -> None:
        first, second = pages.cell("first"), pages.cell("second")
        for _ in pages.repeat("steps"):
            for cell in (first, second):
                with pages.when(cell.has()):
                    cell.take().release()
            first.put(pool.table())
            second.put(pool.take())
            second.put(pool.table())

    with pytest.raises(TilewrightError, match="pages and tables in one place") as caught:
        pages.program(serve).check()
    where = caught.value.diagnostics[0].where
    assert where is not None
    assert where.line == serve.__code__.co_firstlineno + 7

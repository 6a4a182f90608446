"""Cases by number in several processes at once; one that hangs, or takes its process with it, ends no campaign."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

Judge = Callable[[int], Any]
"""What a case's number gives; anything that can be pickled."""


def _work(begin: Callable[..., Judge], arguments: tuple[Any, ...], inbox: Connection, answers: Connection) -> None:
    judge = begin(*arguments)
    answers.send(None)
    while (number := inbox.recv()) is not None:
        answers.send((number, judge(number)))


class _Worker:
    def __init__(self, begin: Callable[..., Judge], arguments: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        inbox, self.orders = context.Pipe(duplex=False)
        self.answers, outbox = context.Pipe(duplex=False)
        self.child = context.Process(target=_work, args=(begin, arguments, inbox, outbox))
        self.child.start()
        inbox.close()
        outbox.close()
        self.number: int | None = None
        self.since = math.inf  # until it has begun

    def take(self, number: int | None) -> None:
        """The next case; None ends the process."""
        self.number = number
        self.since = max(self.since, time.monotonic())
        self.orders.send(number)

    def end(self) -> None:
        self.child.kill()
        self.child.join()


def in_processes(
    begin: Callable[..., Judge],
    arguments: tuple[Any, ...],
    numbers: Sequence[int],
    jobs: int,
    patience: float,
    seconds: float = 0,
    lasts: Callable[[Any], bool] = lambda _: True,
) -> Iterator[tuple[int, Any]]:
    """(number, answer) of each case as they come. ``begin(*arguments)`` makes the judge, once in each process.

    A case that takes longer than ``patience`` seconds is answered "hung", one whose process dies "died"; the next one
    begins in a new process, as after an answer that is not one that ``lasts``. No case begins after ``seconds``.
    """
    begun, left = time.monotonic(), list(reversed(numbers))
    workers = [_Worker(begin, arguments) for _ in range(min(jobs, len(left)))]
    for worker in workers:
        worker.take(left.pop())
    while workers:
        wait([w.answers for w in workers], timeout=1)
        for i, worker in enumerate(workers):
            answer: Any = None
            try:
                if worker.answers.poll():
                    told = worker.answers.recv()
                    if told is None:
                        worker.since = time.monotonic()
                        continue
                    _, answer = told
                elif time.monotonic() - worker.since > patience:
                    answer = "hung"
            except EOFError:
                answer = "died"
            if answer is None or worker.number is None:
                continue
            yield worker.number, answer
            fresh = answer in ("hung", "died") or not lasts(answer)
            over = not left or (seconds and time.monotonic() - begun > seconds)
            if fresh or over:
                worker.end()
                worker.number = None
            if not over:
                workers[i] = worker = _Worker(begin, arguments) if fresh else worker
                worker.take(left.pop())
        workers = [w for w in workers if w.number is not None]

"""Several kernels through the assembler at once.

A kernel is emitted and assembled, what came out is judged, and perhaps another schedule is tried: a generator that
yields what is to be assembled and is sent what came of it. NVRTC takes most of the time, and since CUDA 11.5 compiles
programs of different handles in parallel ("Reducing Application Build Times Using CUDA C++ Compilation Aids", NVIDIA
2021; with NVRTC 13.0 two threads were both running in 92 % of samples), so that its calls go to threads. All else stays
in the caller's: nothing depends on how many threads there are or which of them ends first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeAlias, TypeVar

from tilewright.codegen.assemble import Assembled
from tilewright.compiler.timing import timed
from tilewright.diag import TilewrightError

T = TypeVar("T")

Attempts: TypeAlias = Generator[Callable[[], Assembled], Assembled, T]
"""Yields calls of the assembler, is sent what they return or raise, and returns what was good enough."""


def assemble_all(kernels: Sequence[Attempts[T]]) -> list[T | TilewrightError]:
    """What each of ``kernels`` comes to, in their order: its result, or why it is refused."""
    results: dict[int, T | TilewrightError] = {}
    with ThreadPoolExecutor(max(1, min(len(kernels), os.cpu_count() or 1))) as pool:
        running: dict[Future[Assembled], int] = {}
        ended: dict[int, Future[Assembled] | None] = dict.fromkeys(range(len(kernels)))
        while ended or running:
            calls: dict[int, Callable[[], Assembled]] = {}
            for number in sorted(ended):
                try:
                    calls[number] = _next_call(kernels[number], ended[number])
                except StopIteration as stop:
                    results[number] = stop.value
                except TilewrightError as error:
                    results[number] = error
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
            running |= {pool.submit(call): number for number, call in calls.items()}
            with timed("assemble"):
                done, _ = wait(running, return_when=FIRST_COMPLETED)
            ended = {running.pop(future): future for future in done}
    return [results[number] for number in range(len(kernels))]


def _next_call(kernel: Attempts[Any], ended: Future[Assembled] | None) -> Callable[[], Assembled]:
    """What ``kernel`` wants assembled first, or after the call that has ended."""
    if ended is None:
        return next(kernel)
    error = ended.exception()
    return kernel.send(ended.result()) if error is None else kernel.throw(error)

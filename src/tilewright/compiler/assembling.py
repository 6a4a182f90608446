"""Assembles several kernels in parallel.

A kernel is emitted and assembled, the result is checked, and another schedule may be tried: a generator that yields
assembler calls and is sent their results. NVRTC takes most of the time, and since CUDA 11.5 it compiles programs of
different handles in parallel ("Reducing Application Build Times Using CUDA C++ Compilation Aids", NVIDIA 2021; with
NVRTC 13.0 two threads were both running in 92 % of samples), so its calls run on a thread pool. Everything else runs in
the caller's thread: the result does not depend on the number of threads or on which call ends first.
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
"""Yields assembler calls, is sent their results or errors, and returns the accepted result."""


def assemble_all(kernels: Sequence[Attempts[T]]) -> list[T | TilewrightError]:
    """The result of each of ``kernels``, in order, or the error that refused it."""
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
    """The next assembler call of ``kernel``: the first one, or the one after the call that has ended."""
    if ended is None:
        return next(kernel)
    error = ended.exception()
    return kernel.send(ended.result()) if error is None else kernel.throw(error)

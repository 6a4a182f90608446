"""Which functions a product passes on its way to the GPU, in the order of their first calls."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ml_dtypes
import numpy as np

from support.products import nt
from support.ptx_driver import run_artifact

PACKAGE = str(Path(__file__).parents[2] / "src" / "tilewright") + "/"


def module(code: CodeType) -> str:
    return code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")


class Calls:
    """First calls of functions in their order, by all threads, and the modules that call ``legal`` from outside."""

    def __init__(self) -> None:
        self.order: dict[str, None] = {}
        self.askers: set[str] = set()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        self.order.setdefault(f"{module(code)}.{code.co_qualname}")
        caller = frame.f_back
        if module(code).startswith("legal.") and caller is not None and caller.f_code.co_filename.startswith(PACKAGE):
            self.askers.add(module(caller.f_code))


def watched(calls: Calls, work: Callable[[], object]) -> None:
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def record() -> None:
    """Prints, as JSON, the functions that a product passes which is compiled, validated, stored and launched on the PTX
    machine, and the modules that ask ``legal``."""
    found = Calls()
    a, b, c = (np.ones((64, 64), ml_dtypes.bfloat16) for _ in range(3))
    arrays: dict[str, Any] = {"a": a, "b": b, "c": c}
    watched(found, lambda: run_artifact(nt.compile(dtypes=dict.fromkeys("abc", "bf16")), arrays))
    assert (c == 64).all()
    print(json.dumps([list(found.order), sorted(found.askers)]))

"""Compiles probes in a process of their own, with a bug or without, and says what became of each."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planted.mutant import APART, Kind, Mutant, TooLongError

ROOT = Path(__file__).parents[2]
SECONDS = 90
"""For one probe; what takes longer is undecided."""
MEMORY_BYTES = 8 << 30

Row = dict[str, Any]


def apart(work: Callable[[], Any]) -> Any:
    """What ``work`` returns as JSON, from a fork; a dict with ``died`` where the process ends without an answer.

    The process that forks must not have imported the compiler.
    """
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            signal.signal(signal.SIGALRM, _stop)
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"died": f"status {status}"}


def _stop(*_: object) -> None:
    raise TooLongError


def base(names: list[str]) -> dict[str, Any]:
    """What leaves the compiler without a bug, for each probe."""
    from planted.code import as_json, code_of, compiled, differences, harm, lowered_wrong  # noqa: PLC0415
    from planted.probes import PROBES  # noqa: PLC0415

    found: dict[str, Any] = {}
    for name in names:
        artifact = compiled(name)
        compared = {image.symbol for image in artifact.kernels if not PROBES[name].unlowered}
        unlike = lowered_wrong(artifact, compared)
        assert not unlike, f"{name} without a bug: {unlike}"
        code = as_json(code_of(artifact))
        said = {} if PROBES[name].undecidable else differences(artifact, set(code["ptx"]))
        wrong = harm(name, artifact)
        assert not wrong, f"{name} without a bug: {wrong}"
        found[name] = {**code, "decided": [symbol for symbol, first in said.items() if not first]}
    return found


def judged(mutant: Mutant, bases: dict[str, Any]) -> list[Row]:
    """A row for each probe of the mutant."""
    from planted.plant import plant  # noqa: PLC0415

    plant(mutant)
    rows: list[Row] = []
    for name in mutant.probes:
        begun = time.monotonic()
        signal.alarm(SECONDS)
        try:
            row = _tested(name) if mutant.kind is Kind.PROVERS else _row(mutant, name, bases[name])
        except TooLongError:
            row = {"status": "undecided", "by": f"more than {SECONDS} s"}
        except MemoryError:
            row = {"status": "undecided", "by": "out of memory"}
        signal.alarm(0)
        if "why" in row:
            row["why"] = row["why"].replace(f"{ROOT}/", "")
        rows.append({"probe": name, **row, "seconds": round(time.monotonic() - begun, 1)})
    return rows


def _tested(path: str) -> Row:
    """The first test of a file that fails, slow ones among them."""
    import pytest  # noqa: PLC0415

    failed: list[str] = []

    class Reports:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid.rpartition("::")[2])

    with contextlib.redirect_stdout(io.StringIO()):
        status = pytest.main(["-q", "-x", "-m", "", "-p", "no:cacheprovider", str(ROOT / path)], plugins=[Reports()])
    return {"status": "caught", "by": next(iter(failed), "no test loads")} if status else {"status": "escaped"}


def _beside(mutant: Mutant, name: str, schedule: str) -> Row:
    """A bug that the compiler can't refuse: what independent eyes see of it."""
    from planted.code import compiled, harm, through_the_api, traced_wrong  # noqa: PLC0415

    if mutant.kind is Kind.TRACING:
        seen = traced_wrong(name)
        return {"status": "caught" if seen else "escaped", "by": seen}
    artifact = compiled(name, schedule)
    through_the_api()
    seen = harm(name, artifact)
    return {"status": "caught" if seen else "escaped", "by": seen}


def _row(mutant: Mutant, name: str, unchanged: Row) -> Row:
    try:
        from planted.code import (  # noqa: PLC0415
            Code,
            GivenUpError,
            code_of,
            compiled,
            differences,
            executed_wrong,
            harm,
            lowered_wrong,
            unchecked,
        )
        from planted.probes import PROBES  # noqa: PLC0415
    except Exception as error:  # the compiler does not load
        return {"status": "refused", **_refusal(error)}

    if mutant.kind in (Kind.TRACING, Kind.ENCODER):
        return _beside(mutant, name, unchanged["schedule"])
    before = Code.from_json(unchanged)
    try:
        artifact = compiled(name, before.schedule)
    except (TooLongError, MemoryError):
        raise
    except GivenUpError as error:
        return {"status": "refused", "by": "diagnostic", "why": str(error)[:200]}
    except Exception as error:
        return {"status": "refused", **_refusal(error)}
    after = code_of(artifact)
    unlike = {f for f in ("ptx", "cubins", "irs", "recipe") if getattr(after, f) != getattr(before, f)}
    if not unlike:
        return {"status": "same"}
    if unlike.isdisjoint(("cubins", "recipe")):
        return {"status": "equal", "by": "the machine code and its recipe are the same, byte for byte"}
    if unlike == {"cubins"} and not mutant.harmful:
        return {"status": "equal", "by": "the PTX and its recipe are the same, byte for byte; ptxas is trusted"}
    seen = unchecked(artifact)
    if seen:
        return {"status": "refused", "by": "test: promises", "why": seen}
    changed = {s for s in after.ptx if (after.ptx[s], after.irs[s]) != (before.ptx.get(s), before.irs.get(s))}
    compared = {s for s in changed if after.irs[s] != before.irs.get(s) and not PROBES[name].unlowered}
    lowered = lowered_wrong(artifact, compared)
    if lowered:
        return {"status": "refused", "by": "validate: Tile IR", "why": next(iter(lowered.values()))}
    open_ = changed - set(before.decided)
    said = {s: first for s, first in differences(artifact, changed - open_).items() if first}
    if said:
        return {"status": "refused", "by": "validate: PTX", "why": next(iter(said.values()))}
    executed = executed_wrong(artifact, open_)
    if executed:
        return {"status": "refused", "by": "test: PTX", "why": executed}
    if not open_ and unlike <= {"ptx", "cubins"} and "ptx" in unlike and not mutant.harmful:
        return {"status": "equal", "by": "another PTX, shown to do what the IR says"}
    by, seen = mutant.harmful or f"other {', '.join(sorted(unlike))}", harm(name, artifact)
    stored = all(s in compared for s in changed if after.irs[s] != before.irs.get(s))
    if not open_ and stored and unlike <= {"ptx", "cubins", "irs"} and not mutant.harmful and not seen:
        return {"status": "equal", "by": "another Transport IR, shown to store what the Tile IR says", "harm": seen}
    return {"status": "undecided" if open_ else "escaped", "by": by, "harm": seen}


def _refusal(error: Exception) -> Row:
    """By what an exception refuses, in the words of the table, and why."""
    code = getattr(error, "code", "")
    text = " ".join((str(error).split("found:", 1)[-1] if code else str(error)).split()).replace(f"{ROOT}/", "")
    why = f"{code} {text}"[:200] if code else f"{type(error).__name__} {text}"[:200]
    if not code:
        by = "assertion" if isinstance(error, AssertionError) else "crash"
    elif code == "CRT007":
        by = "validate: recipe"
    elif code == "CGN001":
        by = "NVRTC"
    elif "CGN004" in text:
        by = "guard"
    elif any(word in text for word in ("spill", "C75", "C76")):
        by = "ptxas"
    elif code.startswith(("ACC", "CRT")) or (code == "SCH001" and (" is wrong" in text or " is open" in text)):
        by = "proof"
    else:
        by = "diagnostic"
    return {"by": by, "why": why}


def verdict(mutant: Mutant, rows: list[Row]) -> str:
    """Of all probes together: refused, escaped, harmless, undecided or not exercised."""
    statuses = {row["status"] for row in rows} - {"same"}
    if mutant.kind in APART:
        return "caught" if statuses - {"escaped"} else "harmless" if mutant.harmless else "escaped"
    if not statuses:
        return "not exercised"
    if mutant.harmless and statuses <= {"escaped", "undecided", "equal"} and not any(row.get("harm") for row in rows):
        return "harmless"
    for worst in ("escaped", "undecided", "refused"):
        if worst in statuses:
            return worst
    return "harmless"

"""Command lines, layouts, bundles and arguments of calls, changed at random, bundles that are validated, and writers
killed: an answer or a diagnostic each time.

    python tools/fuzz_front_door.py commands|layouts|bundles|validate|arguments|writers
                                    [--count N] [--seed N] [--limit SECONDS] [--memory MB] [--json FILE]

What counts as wrong: an exception that is no diagnostic, exit status 70, more than ``--limit`` seconds of the
processor, more than ``--memory`` MB in all. Of bundles half have their digests made right again after the change.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import platform
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from front_door import arguments, bundles, commands, validated, writers
from tilewright.cli.process import ended
from tilewright.diag import TilewrightError


class TooSlow(BaseException):
    """An answer took too long; no handler for exceptions may take it for one."""


def lines(cases: Iterator[list[str]]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Command lines as cases: the answer is the exit status; 70 and a traceback raise."""
    for words in cases:
        yield " ".join(map(repr, words)), lambda words=words: _status(words)


def _status(words: list[str]) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = ended(words)
    told = out.getvalue() + err.getvalue()
    if status == 70 or "Traceback" in told:
        raise RuntimeError(err.getvalue()[-3000:])
    if "\x1b" in told:
        raise RuntimeError(f"an escape: {told!r}")
    return f"status {status}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("commands", "layouts", "bundles", "validate", "arguments", "writers"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds of the processor for one case")
    parser.add_argument("--memory", type=int, default=1024, help="MB of the process, NVRTC's with it")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    rng = Random(options.seed)
    signal.signal(signal.SIGPROF, _too_slow)
    counts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    slowest, begin = (0.0, ""), time.process_time()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        makers: dict[str, Callable[[], Iterator[tuple[str, Callable[[], str]]]]] = {
            "commands": lambda: lines(commands.command_lines(rng, options.count, Path(folder))),
            "layouts": lambda: lines(commands.layout_lines(rng, options.count)),
            "bundles": lambda: bundles.changed_bundles(rng, options.count, Path(folder)),
            "validate": lambda: lines(validated.validations(rng, options.count, Path(folder))),
            "arguments": lambda: arguments.calls(rng, options.count),
            "writers": lambda: writers.kills(rng, options.count, Path(folder)),
        }
        for what, run in makers[options.kind]():
            answer, seconds = _answer(run, options.limit)
            slowest = max(slowest, (seconds, what[:200]))
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if used > options.memory << 20 and not wrong["memory"]:
                answer = f"memory\n{used >> 20} MB"
            if "\n" in answer:
                told = answer.strip().splitlines()
                known = f"{told[0]}: {told[-1][:120]}"
                if not wrong[known]:
                    print(f"== {what[:400]}\n{answer}\n")
                wrong[known] += 1
            counts[answer.split("\n")[0]] += 1
    figures = {
        "command": " ".join(("python", "tools/fuzz_front_door.py", options.kind, "--count", str(options.count),
                             "--seed", str(options.seed))),
        "python": platform.python_version(),
        "cases": options.count,
        "answers": dict(counts.most_common()),
        "wrong": sum(wrong.values()),
        "slowest_seconds": round(slowest[0], 2),
        "most_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "processor_seconds": round(time.process_time() - begin, 1),
    }  # fmt: skip
    print(json.dumps(figures, indent=1), f"\nslowest: {slowest[1]}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if wrong else 0


def _answer(run: Callable[[], str], limit: float) -> tuple[str, float]:
    """What came of a case (a diagnostic by its code; what is wrong with its traceback below), and its seconds."""
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        answer = run()
    except TilewrightError as error:
        answer = error.code
        if "\x1b" in (told := str(error)):
            answer = f"an escape\n{told!r}"
    except TooSlow:
        answer = f"too slow\n{traceback.format_exc(limit=-6)}"
    except Exception:
        answer = f"exception\n{traceback.format_exc(limit=-8)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return answer, time.process_time() - begin


def _too_slow(*_: object) -> None:
    raise TooSlow


if __name__ == "__main__":
    sys.exit(main())

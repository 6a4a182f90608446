"""Protocol text, changed at random, goes through ``tilewright check``: an answer or a diagnostic, in bounded time.

    python tools/fuzz_text.py [--count N] [--seed N] [--seconds N] [--json FILE] [--texts FOLDER ...]

The texts are the hand-written, compiled and readers' protocols. A change moves, drops, doubles or swaps lines, puts
one word in the place of another, or a number at the edge of what is sensible in the place of a number. What counts as
wrong: an exception that is no diagnostic, and an answer that takes more than ``--limit`` seconds of the processor.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from campaign.corpus import everything
from tilewright.diag import TilewrightError
from tilewright.protocol import from_text, to_text
from tilewright.verify import verify

NUMBERS = (
    "0", "1", "2", "3", "-1", "31", "32", "255", "2**31", "1048576", "10**12", "4611686018427387904", "1.5", "True",
    "None", '"x"', "kt", "cta", "k", "(1, 2)", "[]", "-(-3)", "1 // 0", "k // 0", "5 % 0", "1e400", "0x10", "lambda: 0",
    "cta + kt", "9" * 5000,
)  # fmt: skip
WORDS = re.compile(r'"[^"]*"|\w+|[^\w\s]')


class TooSlow(Exception):
    """An answer took too long."""


def changed(text: str, rng: Random) -> str:
    """The text with one to three changes."""
    for _ in range(rng.randrange(1, 4)):
        text = rng.choice((_lines, _words, _numbers, _bytes))(text, rng)
    return text


def _lines(text: str, rng: Random) -> str:
    lines = text.split("\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            del lines[i]
        case 1:
            lines.insert(j, lines[i])
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case 3:
            lines[i] = " " * rng.randrange(0, 9) + lines[i].lstrip()
        case _:
            lines[i : i + 1] = [f"{' ' * (len(lines[i]) - len(lines[i].lstrip()))}if k < kt:", "    " + lines[i]]
    return "\n".join(lines)


def _words(text: str, rng: Random) -> str:
    found = list(WORDS.finditer(text))
    if not found:
        return text
    a, b = rng.choice(found), rng.choice(found)
    return text[: a.start()] + b.group() + text[a.end() :]


def _numbers(text: str, rng: Random) -> str:
    found = list(re.finditer(r"\b\d+\b", text))
    if not found:
        return text
    at = rng.choice(found)
    return text[: at.start()] + rng.choice(NUMBERS) + text[at.end() :]


def _bytes(text: str, rng: Random) -> str:
    at = rng.randrange(len(text) + 1)
    return (
        text[:at] + rng.choice(("\0", "\ufeff", "\ud800", "(", ")", ",", "é", "\t", "\r", '"', "#", "\\")) + text[at:]
    )


def texts(folders: list[Path]) -> Iterator[str]:
    """What is changed."""
    yield from (to_text(p) for p in everything().values())
    for folder in folders:
        yield from (path.read_text(errors="replace") for path in sorted(folder.glob("*.txt")))


def answer(text: str) -> str:
    """The checker's answer, or the code of the diagnostic that refuses the text."""
    try:
        return type(verify(from_text(text)).proof).__name__
    except TilewrightError as error:
        return error.code


def _late(*_: object) -> None:
    raise TooSlow


def main() -> None:
    """Prints what went wrong, and the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--texts", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    rng, pool = Random(args.seed), list(texts(args.texts))
    signal.signal(signal.SIGVTALRM, _late)
    answers: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    slowest, begun = 0.0, time.monotonic()
    for _ in range(args.count):
        text = changed(rng.choice(pool), rng)
        start = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, args.limit)
        try:
            answers[answer(text)] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {Path(at.filename).name}:{at.name}: {str(error)[:60]}"
            wrong[where.split(": ")[0]] += 1
            if wrong[where.split(": ")[0]] == 1:
                print(where, flush=True)
                Path(f"/tmp/fuzz_{len(wrong)}.txt").write_text(text, errors="replace")
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        slowest = max(slowest, time.process_time() - start)
        if args.seconds and time.monotonic() - begun > args.seconds:
            break
    n = answers.total() + wrong.total()
    print(n, "texts:", dict(answers), "wrong:", dict(wrong), f"slowest {slowest:.1f} s")
    if args.json:
        found = {
            "command": f"python tools/fuzz_text.py --count {args.count} --seed {args.seed}",
            "python": platform.python_version(),
            "texts": n,
            "answers": dict(sorted(answers.items())),
            "tracebacks": sum(v for k, v in wrong.items() if not k.startswith("TooSlow")),
            "over_the_limit": sum(v for k, v in wrong.items() if k.startswith("TooSlow")),
            "limit_s": args.limit,
            "slowest_s": round(slowest, 2),
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

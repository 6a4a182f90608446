"""Campaigns that test the protocol verifier against the model checker: mutants, and right variants.

    python tools/mutate.py mutants  --out FILE.jsonl [--limit N] [--seed N] [--states N] [--seconds N]
    python tools/mutate.py variants --out FILE.jsonl [...]
    python tools/mutate.py report MUTANTS.jsonl VARIANTS.jsonl --json benchmarks/results/contract_mutants.json
    python tools/mutate.py recheck FILE.jsonl --out FILE2.jsonl      the checker again, the judge's opinions kept

One line of JSON for each protocol, written at once: a campaign may be stopped and goes on where it was. The order is
drawn with the seed, ``--each`` limits the mutants drawn of one protocol. The judge is the model checker alone: every
interleaving of five instances (up to 5 steps, 2 tiles), or 200 adversarial runs where one can't be exhausted. A
refutation rests on the model checker too: it is reported with the schedule that the model checker found, so for refuted
mutants the judge is not asked again unless ``--all``. Times are of the processor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from agree import answers
from campaign.corpus import everything, small
from campaign.judge import opinion
from campaign.operators import mutants
from campaign.variants import kept, pipelines
from tilewright.base.verdict import Proved, Refuted
from tilewright.protocol import Protocol, to_text
from tilewright.protocol import ops as o
from tilewright.protocol.edit import spots
from tilewright.verify import check

corpus = small


def judged(protocol: Protocol, max_states: int) -> str:
    """The model checker's opinion alone."""
    return opinion(protocol, max_states, 0)[0]


def all_mutants(each: int = 0, seed: int = 0) -> Iterator[tuple[str, Protocol]]:
    """The mutants of all protocols, at most ``each`` of one (0: all); equal ones once."""
    seen: set[str] = set()
    for name, p in everything().items():
        found = list(mutants(name, p))
        if each and len(found) > each:
            found = Random(f"{name} {seed}").sample(found, each)
        for word, mutant in found:
            digest = hashlib.sha256(to_text(mutant).encode()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield word, mutant


def all_variants(seed: int) -> Iterator[tuple[str, Protocol]]:
    """Right protocols: pipelines by parameters, examples, twins, decoys, compiled kernels, and what is kept right."""
    bases: list[tuple[str, Protocol]] = [(f"pipeline {name}", p) for name, _, p in pipelines()]
    bases += [(name, p) for name, p in everything().items() if "bug" not in name]
    seen: set[str] = set()
    for base, p in bases:
        for name, variant in ((base, p), *kept(base, p, seed)):
            digest = hashlib.sha256(to_text(variant).encode()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield name, variant


def many_or_persistent(p: Protocol) -> bool:
    """Whether data comes by several rings, or tiles follow one another."""
    filled = {step.op.dst.buffer for _, step in spots(p) if isinstance(step.op, o.TmaLoad | o.CpAsync)}
    return len(filled) > 1 or any(
        s.per is not None or s.name in ("tiles", "groups", "programs", "$programs") for s in p.symbols
    )


def verdict_of(protocol: Protocol) -> tuple[str, str, float]:
    """The checker's answer, its code or reason, and the time in ms."""
    start = time.process_time()
    proof = check(protocol)
    spent = 1000 * (time.process_time() - start)
    match proof:
        case Proved():
            return "proved", "", spent
        case Refuted():
            return "refuted", proof.witness.code, spent
        case _:
            return "unknown", f"{proof.obligation}: {proof.reason}"[:200], spent


def row(name: str, protocol: Protocol, states: int, seed: int, ask: bool) -> dict[str, object]:
    """One line of a campaign."""
    verdict, why, spent = verdict_of(protocol)
    judge, how = ("bad", "the refutation's own schedule") if verdict == "refuted" and not ask else ("", "")
    begun = time.process_time()
    if not judge:
        judge, how = opinion(protocol, states, seed)
    line: dict[str, object] = {"name": name, "verdict": verdict, "judge": judge, "ms": round(spent, 1)}
    line |= {"how": how[:160], "judge_ms": round(1000 * (time.process_time() - begun))}
    if why:
        line["why"] = why
    if many_or_persistent(protocol):
        line["many"] = True
    return line


def run(pool: list[tuple[str, Protocol]], args: argparse.Namespace) -> None:
    """Goes through the pool in an order drawn by the seed, past what the file holds already."""
    Random(args.seed).shuffle(pool)
    pool = pool[: args.limit or None]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(x)["name"] for x in args.out.read_text().splitlines()} if args.out.exists() else set[str]()
    print(f"{len(pool)} protocols, {len(done)} done before, seed {args.seed}", flush=True)
    end = time.monotonic() + args.seconds if args.seconds else float("inf")
    with args.out.open("a") as file:
        for name, protocol in pool:
            if name in done:
                continue
            if time.monotonic() > end:
                break
            line = row(name, protocol, args.states, args.seed, args.all)
            file.write(json.dumps(line) + "\n")
            file.flush()
            if (line["verdict"], line["judge"]) == ("proved", "bad"):
                print(f"PROVED AND BAD: {name}: {line['how']}", flush=True)


def recheck(args: argparse.Namespace) -> None:
    """Asks the checker again about what the file holds, and keeps the judge's opinions."""
    rows = [json.loads(x) for x in args.file.read_text().splitlines()]
    pool = dict([*all_mutants(args.each, args.seed), *all_variants(args.seed)])
    done = {json.loads(x)["name"] for x in args.out.read_text().splitlines()} if args.out.exists() else set[str]()
    end = time.monotonic() + args.seconds if args.seconds else float("inf")
    with args.out.open("a") as file:
        for line in rows:
            if line["name"] in done or line["name"] not in pool:
                continue
            if time.monotonic() > end:
                break
            protocol = pool[line["name"]]
            if line["judge"] == "bad":
                # what the judge broke must not be proved either way; the rest of the answer is not asked again
                if any(answers(protocol)):
                    line["verdict"] = "proved"
            else:
                verdict, why, spent = verdict_of(protocol)
                line |= {"verdict": verdict, "ms": round(spent, 1), "why": why}
            file.write(json.dumps(line) + "\n")
            file.flush()
            if (line["verdict"], line["judge"]) == ("proved", "bad"):
                print(f"PROVED AND BAD: {line['name']}: {line['how']}", flush=True)


_NOTABLE = (("proved", "bad"), ("refuted", "good"), ("unknown", "good"))


def summary(path: Path) -> dict[str, object]:
    """Counts and shares of one campaign."""
    rows = [json.loads(x) for x in path.read_text().splitlines()]
    table = Counter((r["verdict"], r["judge"]) for r in rows)
    good = sum(n for (_, judge), n in table.items() if judge == "good")
    times = sorted(r["ms"] for r in rows)
    open_ = sum(n for (v, judge), n in table.items() if judge == "open" and v != "refuted")
    return {
        "protocols": len(rows),
        "table": [{"verdict": v, "judge": j, "count": n} for (v, j), n in sorted(table.items())],
        "bad_and_proved": table["proved", "bad"],
        "good": good,
        "good_and_refuted": table["refuted", "good"],
        "good_and_unknown": table["unknown", "good"],
        "share_of_good_unknown": round(table["unknown", "good"] / max(good, 1), 4),
        "neither_decides": table["unknown", "open"],
        "judge_open": open_,
        "several_rings_or_persistent": sum(1 for r in rows if r.get("many")),
        "check_ms": {
            "median": times[len(times) // 2],
            "p90": times[len(times) * 9 // 10],
            "most": times[-1],
        },
        "notable": [r for r in rows if (r["verdict"], r["judge"]) in _NOTABLE][:200],
    }


def report(args: argparse.Namespace) -> None:
    """Writes the figures of finished campaigns."""
    found = {
        "commands": [
            f"python tools/mutate.py mutants --each 48 --states 1500 --out ... --seed {args.seed}",
            f"python tools/mutate.py variants --limit 1750 --states 1000 --out ... --seed {args.seed}",
            "python tools/mutate.py recheck ... (verdicts of the checker as it is now)",
        ],
        "seed": args.seed,
        "python": platform.python_version(),
        "machine": "2 shared cores, no GPU; times under load",
        "mutants": summary(args.mutants),
        "variants": summary(args.variants),
    }
    args.json.write_text(json.dumps(found, indent=1) + "\n")
    for kind in ("mutants", "variants"):
        print(kind, {k: v for k, v in found[kind].items() if k != "notable"})


def main() -> None:
    """Runs one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("mutants", "variants", "recheck"):
        sub = commands.add_parser(name)
        if name == "recheck":
            sub.add_argument("file", type=Path)
        sub.add_argument("--out", type=Path, required=True)
        sub.add_argument("--limit", type=int, default=0, help="protocols drawn; 0: all")
        sub.add_argument("--each", type=int, default=0, help="mutants drawn of one protocol; 0: all")
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--states", type=int, default=3000, help="states the model checker may visit per instance")
        sub.add_argument("--seconds", type=float, default=0, help="stop after this long; 0: at the end")
        sub.add_argument("--all", action="store_true", help="ask the judge about refuted protocols too")
    sub = commands.add_parser("report")
    sub.add_argument("mutants", type=Path)
    sub.add_argument("variants", type=Path)
    sub.add_argument("--json", type=Path, required=True)
    sub.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    match args.command:
        case "mutants":
            run(list(all_mutants(args.each, args.seed)), args)
        case "variants":
            run(list(all_variants(args.seed)), args)
        case "recheck":
            recheck(args)
        case _:
            report(args)


if __name__ == "__main__":
    main()

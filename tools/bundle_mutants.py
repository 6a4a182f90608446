"""Bundles edited in one place, digests recomputed, and what ``tilewright validate`` answers.

    python tools/bundle_mutants.py BUNDLE... [--variant NAME] [--only CLASS] [--each N] [--seed N] [--json FILE]

Every field of the artifact in turn (``walked``): numbers one more, expressions one more or always true, enumerations
the next member, names another one, lists one item less, one twice, two exchanged; texts by ``TEXTS``; one bit of the
machine code; texts of one kernel in another (``exchanged``); and steps before a kernel that are others throughout, from
Tile IR to machine code (``replaced``). An edit that is answered 0 is printed: it changes
nothing that a launch does or the certificate says, or it is a hole. ``--variant`` keeps one variant with its kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tilewright.artifact.bundle import read, to_bytes
from tilewright.artifact.schema import Artifact, Launch
from tilewright.base.expr import TRUE, Const, Expr
from tilewright.cli.commands import app
from tilewright.codegen.assemble import assemble
from tilewright.codegen.cuda import emit_kernel
from tilewright.diag import TilewrightError
from tilewright.transport.text import transport_kernel

TEXTS = {
    "transport_ir": (
        (r"(?<=[ *+(])(\d+)(?=[ *)])", lambda n: str(int(n) + 1)),
        (r"(?<=builtin\.int<)(\d+)(?=>)", lambda n: str(int(n) + 1)),
        (r'(?<=guard = #tile\.expr<)"[^"]*"', lambda n: '"1"'),
        (r"<(add|mul|sub|max)>", lambda n: "min" if n != "min" else "max"),
        (r'(?<=cta = #tile\.expr<)"[^"]*"', lambda n: '"0"'),
        (r'(?<=index_registers = \[#tile\.expr<)"[^"]*"', lambda n: '"0"'),
        (r'(?<=live = #tile\.expr<)"1"', lambda n: '"$tid < 5"'),
        (r'"transport\.cluster_(arrive|wait)"\(\) : \(\) -> \(\)', lambda n: ""),
        (r"compare <(\w+)>", lambda n: "lt" if n != "lt" else "ge"),
    ),
    "tile_ir": (
        (r"(?<=[ *+(])(\d+)(?=[ *)])", lambda n: str(int(n) + 1)),
        (r"<(add|mul|sub|max)>", lambda n: "min"),
        (r'(?<=constant <")([^"]*)', lambda n: "7.0"),
        (r"#tile\.numerics<(\w+)>", lambda n: "strict" if n != "strict" else "fast"),
    ),
    "ptx": (
        (r"(?<=, )(\d+)(?=;)", lambda n: str(int(n) + 1)),
        (r"(?<=\+)(\d+)(?=\])", lambda n: str(int(n) + 2)),
        (r"@!?%p\d+", lambda n: n.replace("@", "@!") if "!" not in n else n.replace("!", "")),
        (r"barrier\.cluster\.[^;]*;", lambda n: ""),
        (r"mapa\.[^;]*, (%r\d+);", lambda n: "1"),
        (r"(?<=cp\.async\.cg\.shared\.global )[^;]*, (%r\d+);", lambda n: "16"),
        (r"(?<=setp\.)(lt|gt|le|ge|eq|ne)(?=\.)", lambda n: "ge" if n != "ge" else "lt"),
        (r"(?<=cvt\.)(rn)(?=\.)", lambda n: "rz"),
        (r"(?<=red\.)(global\.add)", lambda n: "global.max"),
    ),
}
"""What is replaced in the texts of a kernel: one match at a time of each pattern."""
_TEXT_NAMES = ("cubin", "ptx", "transport_ir", "tile_ir")


@dataclass(frozen=True)
class Edit:
    """``kind`` is the class it is counted in, ``place`` the path of the field and what was done."""

    kind: str
    place: str
    artifact: Artifact


def walked(value: Any, path: str = "artifact") -> Iterator[tuple[str, Any]]:
    """(place, another value) for each field in ``value``, a schema dataclass, a tuple or a leaf."""
    if isinstance(value, Expr):
        yield f"{path} + 1", value + 1
        yield (f"{path} true", TRUE) if value != TRUE else (f"{path} 0", Const(0))
    elif isinstance(value, bool):
        yield f"{path} not", not value
    elif isinstance(value, Enum):
        others = list(type(value))
        yield f"{path} next", others[(others.index(value) + 1) % len(others)]
    elif isinstance(value, int):
        yield f"{path} + 1", value + 1
    elif isinstance(value, str):
        yield f"{path} renamed", value + "1"
    elif isinstance(value, tuple):
        for k, item in enumerate(value):
            yield from ((where, (*value[:k], new, *value[k + 1 :])) for where, new in walked(item, f"{path}[{k}]"))
            yield f"{path}[{k}] less", (*value[:k], *value[k + 1 :])
            yield f"{path}[{k}] twice", (*value[:k], item, *value[k:])
            if k and value[k - 1] != item:
                yield f"{path}[{k}] before", (*value[: k - 1], item, value[k - 1], *value[k + 1 :])
    elif is_dataclass(value):
        for f in fields(value):
            if "blob" not in f.metadata and f.name not in ("plan", "schedule", "toolchain"):
                inner = walked(getattr(value, f.name), f"{path}.{f.name}")
                yield from ((where, replace(value, **{f.name: new})) for where, new in inner)


def exchanged(artifact: Artifact, chosen: random.Random) -> Iterator[Edit]:
    """Texts and machine code: changed in one place, or those of the next kernel."""
    for k, image in enumerate(artifact.kernels):

        def put(new: Any, k: int = k) -> Artifact:
            return replace(artifact, kernels=(*artifact.kernels[:k], new, *artifact.kernels[k + 1 :]))

        for name, patterns in TEXTS.items():
            text = getattr(image, name)
            for pattern, change in patterns:
                found = list(re.finditer(pattern, text))
                for match in chosen.sample(found, min(6, len(found))):
                    new = text[: match.start()] + change(match.group(match.lastindex or 0)) + text[match.end() :]
                    if match.lastindex and match.span() != match.span(1):
                        new = text[: match.start(1)] + change(match[1]) + text[match.end(1) :]
                    line = text.count("\n", 0, match.start()) + 1
                    yield Edit(
                        f"text of {name}",
                        f"{image.symbol} {name} line {line}: {pattern}",
                        put(replace(image, **{name: new})),
                    )
        for place in (0.1, 0.3, 0.5, 0.7, 0.9):
            at = int(place * len(image.cubin))
            cubin = image.cubin[:at] + bytes([image.cubin[at] ^ 1]) + image.cubin[at + 1 :]
            yield Edit("machine code", f"{image.symbol} byte {at}", put(replace(image, cubin=cubin)))
        yield Edit(
            "entry points",
            f"{image.symbol} twice",
            put(replace(image, ptx=image.ptx + image.ptx[image.ptx.index(".visible") :])),
        )
        other = artifact.kernels[(k + 1) % len(artifact.kernels)]
        for name in _TEXT_NAMES if other is not image else ():
            yield Edit(
                "of another kernel", f"{image.symbol} {name}", put(replace(image, **{name: getattr(other, name)}))
            )


def reworded(artifact: Artifact, chosen: random.Random) -> Iterator[Edit]:
    """The programs that kernels were made of, changed in one place; with the program on the cover where that is it."""
    for k, program in enumerate(artifact.programs):
        for pattern, change in TEXTS["tile_ir"]:
            found = list(re.finditer(pattern, program.tile_ir))
            for match in chosen.sample(found, min(6, len(found))):
                text, group = program.tile_ir, match.lastindex or 0
                new = text[: match.start(group)] + change(match[group]) + text[match.end(group) :]
                programs = (*artifact.programs[:k], replace(program, tile_ir=new), *artifact.programs[k + 1 :])
                cover = new if artifact.tile_ir == text else artifact.tile_ir
                line = text.count("\n", 0, match.start()) + 1
                yield Edit(
                    "text of program",
                    f"{program.name} line {line}: {pattern}",
                    replace(artifact, programs=programs, tile_ir=cover),
                )


CONSISTENT = ((r"compare <(\w+)>", "lt"), (r'constant <"(1)">', "2"), (r'constant <"(0)">', "1"), (r"<(add)>", "max"))
"""What is written in both texts of a step."""


def replaced(artifact: Artifact) -> Iterator[Edit]:
    """Each step before a variant's last changed in its texts, and emitted and assembled anew."""
    last = {[s for s in v.steps if isinstance(s, Launch)][-1].kernel for v in artifact.variants}
    for k, image in enumerate(artifact.kernels):
        for pattern, new in CONSISTENT if image.symbol not in last else ():
            tile_ir, transport_ir = (
                re.sub(pattern, lambda m, new=new: m[0].replace(m[1], new), text)
                for text in (image.tile_ir, image.transport_ir)
            )
            if transport_ir == image.transport_ir:
                continue
            source = emit_kernel(transport_kernel(transport_ir)).source
            made = assemble(source, artifact.target, image.symbol)
            texts = {"tile_ir": tile_ir, "transport_ir": transport_ir, "source": source, "ptx": made.ptx}
            changed = replace(image, **texts, cubin=made.cubin, registers=made.registers, spill_bytes=made.spill_bytes)
            kernels = (*artifact.kernels[:k], changed, *artifact.kernels[k + 1 :])
            yield Edit("replaced step", f"{image.symbol} {pattern} {new}", replace(artifact, kernels=kernels))


def kind_of(place: str) -> str:
    """The class of an edit, by the field."""
    parts = re.sub(r"\[\d+\]", "", place.split(" ")[0]).split(".")[1:]
    return ".".join(parts[:3]) if parts[0] == "variants" else ".".join(parts[:2])


def edits(artifact: Artifact, chosen: random.Random) -> Iterator[Edit]:
    """All edits of an artifact."""
    for place, new in walked(artifact):
        yield Edit(kind_of(place), place.removeprefix("artifact."), new)
    yield from exchanged(artifact, chosen)
    yield from reworded(artifact, chosen)
    yield from replaced(artifact)


def alone(artifact: Artifact, variant: str) -> Artifact:
    """One variant of an artifact, with its kernels."""
    kept = tuple(v for v in artifact.variants if v.name == variant)
    launched = {s.kernel for v in kept for s in v.steps if isinstance(s, Launch)}
    images = tuple(k for k in artifact.kernels if k.symbol in launched)
    made_of = artifact.programs_of(images[-1])
    shown = made_of[0].tile_ir if made_of else images[-1].tile_ir
    return replace(artifact, variants=kept, kernels=images, tile_ir=shown)


def answer(artifact: Artifact, folder: Path) -> tuple[str, str]:
    """What ``tilewright validate`` ends with, and its last lines."""
    file = folder / "edited.bundle"
    try:
        file.write_bytes(to_bytes(artifact))
    except (TilewrightError, ValueError) as error:  # reading it would end so
        return "2", str(error)
    result = CliRunner().invoke(app, ["validate", str(file)])
    return str(result.exit_code), result.output[-600:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--variant")
    parser.add_argument("--only", default="")
    parser.add_argument("--each", type=int, default=0, help="at most so many edits of a class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    totals: dict[str, Counter[str]] = {}
    accepted: list[str] = []
    for bundle in args.bundles:
        artifact = read(bundle)
        if args.variant:
            artifact = alone(artifact, args.variant)
        chosen = random.Random(args.seed)
        by_kind: dict[str, list[Edit]] = {}
        for edit in edits(artifact, chosen):
            by_kind.setdefault(edit.kind, []).append(edit)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            status, said = answer(artifact, folder)
            print(f"{bundle.name} as it is: {status}", "" if status == "0" else said, flush=True)
            for kind, found in by_kind.items():
                if args.only and args.only not in kind:
                    continue
                for edit in chosen.sample(found, min(args.each or len(found), len(found))):
                    status, said = answer(edit.artifact, folder)
                    totals.setdefault(kind, Counter())[status] += 1
                    if status in ("0", "70") or (status == "1" and "failed" in said):
                        accepted.append(f"{status} {bundle.name}: {edit.place}")
                        print(accepted[-1], said.splitlines()[0] if status != "0" else "", flush=True)
    for kind, counts in sorted(totals.items()):
        print(f"{kind:32} {dict(sorted(counts.items()))}")
    if args.json:
        rows = {kind: dict(sorted(counts.items())) for kind, counts in sorted(totals.items())}
        told = {"date": str(date.today()), "seed": args.seed, "answers": rows, "accepted": accepted}
        args.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()

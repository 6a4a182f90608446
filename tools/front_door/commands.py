"""Command lines: right ones with words changed, dropped, doubled and put in each other's place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

from support.artifacts import scale
from tilewright.artifact import bundle

LAYOUTS = (
    "(8,8):(8,1)", "8:1", "32:32", "((4,2),16):((2,4),1)", "(8,4):(64,8)", "(M,8):(8,1)", "(2,(2,2)):(1,(2,4))",
    "(1000000000,1000000000):(1,1)", "(1,(1000000,1)):(1,(1,1))", "1000000000000:1", "()", "", ":", "8", "(8,8)",
    "(0,1):(1,1)", "-1:1", "8:-1", "(8,8):(8,M)", "(" * 400 + "8" + ")" * 400, "²:1", "8:" + "9" * 5000, "(((",
    "8:1:1", "(" + "2," * 40 + "2)", "(2**40,2):(1,1)", "min(3,4):1", "(8\x1b[31m,8):(1,8)", "\udcff:1", "8//0:1",
    "8%0:1",
)  # fmt: skip
SWIZZLES = ("3,4,3", "3,0,3", "0,0,0", "3,1000000000,3", "²,4,3", "3,4", "-1,0,0", "3,4,-3", "9,9,9", "1," + "9" * 5000)
WORDS = (
    "", "-", "--", "-1", "0", "1", "x", "=", "M=", "=4", "M=4", "M=-1", "M=999999999999", "n=1e400", "9" * 5000,
    "1e400", "nan", "\x1b[31mred", "\udcff", "a" * 5000, "/dev/null", "/dev/zero", "/proc/self/mem", "/", ".", "..",
    "/dev/full/x", "nowhere.py:f", ":f", "f:", "bf16", "i64", "f64", "\N{SNOWMAN}", "128x64", "0x0",
    "64x" * 50 + "1", "99999999999x1", "sm_90a", "sm_80", "sm_1", "gfx942", "128B", "None", "TMA012", "RUN999",
    "--help", "--out", "--json", "--svg",
)  # fmt: skip
RING = """protocol("ring", cluster=1, registers_per_thread=32)
buffer("ab", "shared", 128, offset=0)
with role("all", 32):
    all(Write(Region("ab", 0, 128)))
    all(CtaSync())
    all(Read(Region("ab", 0, 128)))
"""
TMA = ["explain", "tma", "--shape", "4100x4100", "--dtype", "bf16", "--box", "128x64"]
WGMMA = ["explain", "wgmma", "--tile", "128x64", "--dtype", "bf16"]


def layout_lines(rng: Random, count: int) -> Iterator[list[str]]:
    """``show layout`` and ``show banks`` of layouts, some of them changed, with swizzles and other options."""
    for _ in range(count):
        text = _changed(rng.choice(LAYOUTS), rng) if rng.random() < 0.5 else _layout(rng)
        words = ["show", rng.choice(("layout", "banks")), text]
        if rng.random() < 0.4:
            words += ["--swizzle", _changed(rng.choice(SWIZZLES), rng)]
        if words[1] == "banks":
            if rng.random() < 0.3:
                words += ["--find", rng.choice(("no", "xor", "swizzle", "tma"))]
            if rng.random() < 0.3:
                words += ["--element", rng.choice(("0", "-1", "1", "2", "16", "1000000000000", "²"))]
            if rng.random() < 0.2:
                words += ["--op", rng.choice(("ldmatrix.x4", "ld.shared.b128", "none")), "--target", "gfx942"]
        elif rng.random() < 0.1:
            words += [
                "--out",
                rng.choice(("x.svg", "x.png", "x", "/dev/full/x.svg", "/proc/x.svg", "a" * 300 + ".svg")),
            ]
        yield words


def _layout(rng: Random) -> str:
    """A layout of some nesting: right in form, with extents and strides of any size."""
    shape, stride = _mode(rng, 0)
    return f"{shape}:{stride}"


def _mode(rng: Random, depth: int) -> tuple[str, str]:
    if depth < 3 and rng.random() < 0.5:
        parts = [_mode(rng, depth + 1) for _ in range(rng.randrange(1, 4))]
        return f"({','.join(s for s, _ in parts)})", f"({','.join(d for _, d in parts)})"
    extents, strides = (1, 2, 3, 4, 8, 16, 32, 33, 1000), (0, 1, 2, 3, 4, 8, 32, 33, 1024, 2**63, 10**30)
    return str(rng.choice(extents)), str(rng.choice(strides))


def command_lines(rng: Random, count: int, folder: Path) -> Iterator[list[str]]:
    """All commands but ``demo``, with files of all kinds."""
    files = _files(folder)
    seeds = [
        *([command, file] for command in ("show", "check", "validate", "run") for file in files),
        *(["compile", f"{file}:{name}", "--out", "out"] for file in files for name in ("f", "k", "")),
        *(["check", f"{file}:{name}"] for file in files for name in ("f", "ring", "cooperative")),
        *(["show", files[0], "--part", part] for part in ("plan", "source", "sass", "all", "no")),
        *([*TMA, *more] for more in ([], ["--json"], ["--strides", "4100x1"], ["--swizzle", "64B"], ["--store"])),
        *([*WGMMA, *more] for more in ([], ["--n", "12"], ["--row-bytes", "64"], ["--accumulator", "f16"])),
        ["rules"], ["rules", "--arch", "sm_90a"], ["rules", "--topic", "wgmma"], ["show-config"], ["explain"],
        ["explain", "TMA012"], ["run", files[0], "--dim", "M=4", "--scalar", "n=1", "--repeat", "1", "--seed", "0"],
        ["--help"], [],
    ]  # fmt: skip
    for _ in range(count):
        words = list(rng.choice(seeds))
        for _ in range(rng.randrange(4)):
            match rng.randrange(5):
                case 0 if words:
                    del words[rng.randrange(len(words))]
                case 1:
                    words.insert(rng.randrange(len(words) + 1), rng.choice((*WORDS, *files)))
                case 2 if len(words) > 1:
                    words[rng.randrange(1, len(words))] = rng.choice((*WORDS, *files))
                case 3 if words:
                    place = rng.randrange(len(words))
                    words[place] = _changed(words[place], rng)
                case _:
                    words += rng.choice(seeds)[1:]
        if words[:1] != ["demo"]:
            yield words


def _files(folder: Path) -> list[str]:
    """A bundle, and everything that is none."""
    bundle.write_folder(scale(), folder / "scale.bundle")
    (folder / "scale.twb").write_bytes(bundle.to_bytes(scale()))
    (folder / "latin.txt").write_bytes(b'protocol("\xff")')
    (folder / "binary.py").write_bytes(bytes(range(256)))
    (folder / "raises.py").write_text("raise SystemExit(0)")
    (folder / "loops.py").write_text("def f(): return f()\n")
    (folder / "empty.txt").write_text("")
    (folder / "lists.json").write_text("[" * 100_000)
    (folder / "unreadable.txt").write_text("x")
    (folder / "unreadable.txt").chmod(0)
    os.mkfifo(folder / "fifo")
    (folder / "empty").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "ring.txt").write_text(RING)
    names = ("scale.bundle", "scale.twb", "ring.txt", "latin.txt", "binary.py", "raises.py", "loops.py", "empty.txt",
             "lists.json", "unreadable.txt", "fifo", "empty", "dangling", "a" * 300)  # fmt: skip
    return [*(str(folder / name) for name in names), "/dev/zero", "/dev/null", "/"]


def _changed(text: str, rng: Random) -> str:
    """The text with a few characters dropped, doubled, swapped or put in."""
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(3):
            case 0:
                text = text[:at] + text[at + 1 :]
            case 1:
                text = text[:at] + rng.choice("0189(),:;-+=x.%/ \x00\x1b\udcff²M_'\"\\\n") + text[at:]
            case _:
                text = text[:at] + text[max(at - rng.randrange(9), 0) : at] * rng.randrange(4) + text[at:]
    return text

"""CMD: arguments and files that the command line refuses."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_SOURCE = "tilewright --help"

CODES: tuple[Code, ...] = (
    Code(
        "CMD001",
        "no such kernel",
        "A kernel is named by its file and its name in it, with a colon between them. The file is run as Python, and "
        "the name must be a function under @tw.kernel.",
        bad="tilewright compile add.py",
        good="tilewright compile add.py:add --out add.bundle",
        source=_SOURCE,
        help="write the file, a colon, and the name of a function in it",
    ),
    Code(
        "CMD002",
        "an option's value can't be used",
        "Options that set something by name (--static, --dtype, --set, --dim, --scalar, --input, --output) are written "
        "NAME=VALUE and may be given several times, once a name; others take a shape such as 4096x64, or one of a few "
        "words.",
        bad="--static 4096",
        good="--static N=4096 --static K=512",
        source=_SOURCE,
        help="the command's --help shows what each option takes",
    ),
    Code(
        "CMD003",
        "no such error code",
        "explain prints an entry of the error catalogue; it has no entry of this name.",
        bad="tilewright explain TMA",
        good="tilewright explain TMA012",
        source="tilewright.diag.catalogue",
        help="tilewright explain, without a code, lists them all",
    ),
    Code(
        "CMD004",
        "an array file can't be used",
        "--input reads a NumPy .npy file, whose dtype and shape must be the parameter's.",
        bad="--input x=notes.txt",
        good="--input x=x.npy",
        source=_SOURCE,
        help="write the array with numpy.save",
    ),
    Code(
        "CMD005",
        "a picture's file has an unknown ending",
        "The ending of the file says how a picture is written: .svg for text that scales, .png for pixels.",
        bad="tilewright show layout '(8,8):(8,1)' --out x.jpg",
        good="tilewright show layout '(8,8):(8,1)' --out x.svg",
        source=_SOURCE,
        help="name a file that ends in .svg or .png",
    ),
    Code(
        "CMD006",
        "no such protocol",
        "check takes a file with protocol text, or a Python file and the name of a function in it that takes no "
        "arguments and returns a Protocol. The Python file is run.",
        bad="tilewright check gemm.py",
        good="tilewright check gemm.py:cooperative",
        source=_SOURCE,
        help="write the file, a colon, and the name of a function in it that returns a Protocol",
    ),
    Code(
        "CMD007",
        "code in a Python file raises an error",
        "The command runs the file to find what is named in it, and the body of a kernel to trace it. Python raised "
        "something on the way.",
        bad="tilewright compile add.py:add, where add.py imports a package that is not installed",
        good="a file that python add.py runs to its end",
        source=_SOURCE,
        help="run the file with python by itself; TILEWRIGHT_TRACEBACK=1 shows the whole traceback here",
    ),
    Code(
        "CMD008",
        "a setting can't be read",
        "Settings come from variables of the environment, then from a file, then from their defaults. The file is TOML "
        "and holds nothing else: a misspelt name would otherwise be ignored.",
        bad='stores = "/tmp/kernels" in ~/.config/tilewright/config.toml',
        good='store = "/tmp/kernels"',
        source=_SOURCE,
        help="tilewright show-config names the settings, once the file is right or moved away",
    ),
)

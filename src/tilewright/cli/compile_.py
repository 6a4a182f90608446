"""``tilewright compile FILE.py:kernel --out DIR``."""

from __future__ import annotations

import difflib
import importlib.util
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tilewright.artifact import bundle
from tilewright.artifact.schema import Artifact
from tilewright.cli.did_you_mean import meant
from tilewright.cli.options import by_name, keyword_value
from tilewright.cli.terminal import echo
from tilewright.diag import Location, TilewrightError, fail

if TYPE_CHECKING:
    from tilewright.lang.schedule import Schedule

_PACKAGE = Path(__file__).parents[1]


def register(app: typer.Typer) -> None:
    app.command("compile", help="Compile a kernel to a bundle.")(compile_kernel)


def compile_kernel(
    kernel: Annotated[str, typer.Argument(metavar="FILE.py:KERNEL", help="the file and the kernel's name in it")],
    out: Annotated[Path, typer.Option(help="folder of the bundle")],
    static: Annotated[list[str] | None, typer.Option(metavar="NAME=INT", help="make a dimension constant")] = None,
    dtype: Annotated[list[str] | None, typer.Option(metavar="NAME=DTYPE", help="a tensor's element type")] = None,
    target: Annotated[str, typer.Option(help="architecture")] = "sm_90a",
    schedule: Annotated[str | None, typer.Option(help="schedule text to replay, or a file that holds it")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="a compile-time keyword")
    ] = None,
) -> None:
    statics = by_name("--static", static or [], int)
    dtypes = by_name("--dtype", dtype or [], str)
    found = find_kernel(kernel)
    texts = by_name("--set", set_ or [], str)
    known = [p.name for p in found.keywords] + list(found.optional)
    for name in texts.keys() - set(known):
        near = difflib.get_close_matches(name, known, 1)
        fail(
            "CMD002",
            found=f"--set {name}",
            required=", ".join(known) or "no keywords: the kernel has none",
            help=f"did you mean {near[0]}?" if near else "",
        )
    defaults = {p.name: p.default for p in found.keywords}
    keywords = {name: keyword_value(name, text, defaults.get(name)) for name, text in texts.items()}
    echo(f"compiling {kernel} for {target} ...", err=True)
    begin = time.perf_counter()
    pinned = _pinned(_text_of(schedule)) if schedule else None
    with tracing(found):
        artifact: Artifact = found.compile(target=target, static=statics, dtypes=dtypes, schedule=pinned, **keywords)
    bundle.write_folder(artifact, out)
    seconds = time.perf_counter() - begin
    proved = len(artifact.certificate)
    for left in artifact.left_out:
        echo(f"left out: {left}\n  help: {left.help}", err=True)
    echo(f"{out}: {len(artifact.kernels)} kernel(s), {proved} obligation(s) proved, {seconds:.2f} s")


def find_kernel(name: str) -> Any:
    """The kernel object that FILE.py:NAME names; runs the file. CMD001 if there is none."""
    from tilewright.lang.params import KernelFunction

    file, attribute = split_name(name)
    if not Path(file).is_file():
        _no_kernel(f"{file} is no file")
    module = module_of(Path(file))
    if module is None:
        _no_kernel(f"{file} is no Python file")
    found = getattr(module, attribute, None)
    if not isinstance(found, KernelFunction):
        kernels = [n for n, value in vars(module).items() if isinstance(value, KernelFunction)]
        asked = f"{file} has no kernel {attribute}" if attribute else f"{name} names no kernel"
        _no_kernel(f"{asked}; the file has {', '.join(kernels) or 'none'}")
    return found


def split_name(name: str) -> tuple[str, str]:
    """File and name of ``FILE:NAME``; the name is empty where there is no colon."""
    file, colon, attribute = name.rpartition(":")
    return (file, attribute) if colon else (name, "")


def module_of(path: Path) -> ModuleType | None:
    """A Python file, run as a module; None if it is none, CMD007 if it raises."""
    name = path.stem
    while name in sys.modules:  # kernels in operator.py; others import theirs later
        name += "_"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a user's dataclasses and annotations look their module up
    sys.path.insert(0, str(path.resolve().parent))  # its neighbours are importable, as under `python FILE.py`
    with running(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def running(path: Path) -> Generator[None]:
    """Report (CMD007) what a user's file raises, at its line."""
    try:
        yield
    except TilewrightError:
        raise
    except (Exception, SystemExit) as error:
        file = str(path.resolve())
        lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == file and f.lineno is not None]
        if isinstance(error, SyntaxError) and error.filename == file and error.lineno is not None:
            lines.append(error.lineno)
        where = Location(str(path), lines[-1]) if lines else None
        _raised(error, where, "a file that runs to its end", "")


@contextmanager
def tracing(kernel: Any) -> Generator[None]:
    """Report (CMD007) what a kernel's body raises while it is traced; what our functions raise goes on."""
    try:
        yield
    except TilewrightError:
        raise
    except (Exception, SystemExit) as error:
        frames = extract_tb(error.__traceback__)
        ours = max(i for i, frame in enumerate(frames) if Path(frame.filename).is_relative_to(_PACKAGE))
        file = kernel.fn.__code__.co_filename
        lines = [f.lineno for f in frames[ours + 1 :] if f.filename == file and f.lineno is not None]
        if not lines:
            raise
        help = "TILEWRIGHT_TRACEBACK=1 shows the whole traceback"
        _raised(error, Location(file, lines[-1]), "a kernel whose body runs to its end", help)


def _raised(error: BaseException, where: Location | None, required: str, help: str) -> NoReturn:
    found = f"{type(error).__name__}: {error}"
    fail("CMD007", where=where, found=found, required=required, help=meant(error) or help)


def _pinned(text: str) -> Schedule:
    from tilewright.lang.schedule import Schedule

    try:
        return Schedule.parse(text)
    except TilewrightError as error:  # the text stands on the command line, in no line of a file
        raise TilewrightError(tuple(replace(d, where=None) for d in error.diagnostics)) from None


def _text_of(schedule: str) -> str:
    path = Path(schedule)
    return path.read_text().strip() if path.suffix and path.is_file() else schedule


def _no_kernel(found: str) -> NoReturn:
    fail("CMD001", found=found, required="FILE.py:KERNEL, a function under @tw.kernel")

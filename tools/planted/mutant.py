"""A planted bug as data: a replacement in the source of one file of the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "tilewright"


class Kind(StrEnum):
    """The part of the compiler in which a bug is planted."""

    SCHEDULE = "schedule"
    """Tiles, threads, distributions, extents, instructions and buffers: what is chosen."""
    VALUES = "value lowering"
    """Tile IR to the maps, folds, conversions and accesses of Transport IR."""
    PROTOCOL = "protocol lowering"
    """Tile IR to pipelines, barriers, fences, waits, copies, roles and ping-pong."""
    EMISSION = "emission"
    """Transport IR to CUDA C++."""
    OPTIONS = "compiler options"
    """What NVRTC and ptxas are told, and what the compiler is told of the class of arguments."""
    RECIPE = "recipe"
    """What a launch does: grid, cluster, shared memory, parameters, tensor maps, workspaces, steps."""
    SHARED = "shared readings"
    """What the schedule and the proofs both read of Tile IR through the same function."""
    TRACING = "tracing"
    """Python to Tile IR. Nothing stands before it that it could be refused against."""
    PROVERS = "provers"
    """What proves: where a right compiler's code is right all the same, tests must see it."""
    ENCODER = "encoder"
    """The runtime's evaluation of a launch recipe. It runs after the compiler."""


REFUSABLE = (Kind.SCHEDULE, Kind.VALUES, Kind.PROTOCOL, Kind.EMISSION, Kind.OPTIONS, Kind.RECIPE, Kind.SHARED)
"""The classes whose bugs the compiler has something to be refused against."""

APART = (Kind.PROVERS, Kind.TRACING, Kind.ENCODER)
"""The others, which are caught by something beside the compiler."""

TRUSTED = (
    "artifact/",
    "base/",
    "codegen/sync_flow.py",
    "codegen/sync_check.py",
    "codegen/sync_in_ir.py",
    "codegen/sync_in_ptx.py",
    "compiler/proofs/",
    "verify/",
    "diag/",
    "hw/",
    "layout/",
    "legal/",
    "protocol/",
    "ptx/",
    "tile/attributes.py",
    "tile/dialect.py",
    "tile/ops.py",
    "transport/",
    "validate/",
)
"""Files below ``src/tilewright`` in which no bug is planted but those of ``Kind.PROVERS``: the judges, what they read, and the languages in which both
sides are written. NVRTC, ptxas, the driver, the hardware, Python and the libraries are trusted besides."""


class MatchError(ValueError):
    """The text to be replaced does not stand exactly once in the file."""


class TooLongError(Exception):
    """A probe takes longer than it may."""


@dataclass(frozen=True)
class Mutant:
    """Replaces ``old``, which must stand exactly once in ``file`` (below ``src/tilewright``), by ``new``.

    ``probes`` names the kernels to compile, of ``Kind.PROVERS`` the tests. ``named``: one of the bugs that an outside reader planted first.
    ``harmless``: the recorded argument why code that leaves the compiler with it is right. ``harmful``: why it is not,
    although the validator takes the PTX for what the IR says: a hole of the validator.
    """

    name: str
    kind: Kind
    what: str
    file: str
    old: str
    new: str
    probes: tuple[str, ...]
    named: bool = False
    harmless: str = ""
    harmful: str = ""

    @property
    def path(self) -> Path:
        """The file that is changed."""
        return PACKAGE / self.file

    @property
    def module(self) -> str:
        """The module that is changed."""
        return "tilewright." + self.file.removesuffix(".py").replace("/", ".")

    def applied(self, source: str) -> str:
        """``source`` with the bug; MatchError if the text does not stand there exactly once."""
        count = source.count(self.old)
        if count != 1 or self.old == self.new:
            raise MatchError(f"{self.name}: the text stands {count} times in {self.file}, once is required")
        return source.replace(self.old, self.new)


def check(mutants: tuple[Mutant, ...]) -> None:
    """ValueError for a mutant that can't be planted: in a trusted file, under a name taken twice, without a match, as no
    Python."""
    names = [m.name for m in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"taken twice: {', '.join(sorted(twice))}")
    for mutant in mutants:
        if mutant.kind is not Kind.PROVERS and mutant.file.startswith(TRUSTED):
            raise ValueError(f"{mutant.name}: {mutant.file} is trusted")
        try:
            compile(mutant.applied(mutant.path.read_text()), mutant.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{mutant.name}: {mutant.file} is no Python any more: {error}") from error

"""The verdict on an untrusted bundle: its recipe, PTX, machine code, Tile IR and proofs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tilewright.artifact.schema import (
    ASSUMED,
    EXECUTION,
    STANDINGS,
    VALIDATION,
    Artifact,
    KernelImage,
    Launch,
    Obligation,
)
from tilewright.codegen.reassemble import machine_code_differs
from tilewright.compiler.differential import run_differential_test
from tilewright.compiler.gc_pause import gc_paused
from tilewright.compiler.index_promise_tests import PROMISES_TESTED, run_promise_tests
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.reproved import reproved
from tilewright.compiler.steps_reproved import steps_reproved
from tilewright.compiler.validated import LOWERING, PTX
from tilewright.compiler.variants_agree import Agreement, agreement
from tilewright.compiler.work_limit import OutOfTime, within
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.transport.text import tile_kernel, transport_kernel
from tilewright.validate.launch_recipe import recipe_faults
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering
from tilewright.validate.transport_to_ptx import compare

MACHINE_CODE = Obligation("machine code", VALIDATION, "PTX and cubin, byte for byte")
"""Assembling the PTX again gives the same machine code."""

MOST_SECONDS = 60.0
"""CPU time limit for each question about a bundle, beyond which it is undecided; the slowest of ours takes 33."""

NOT_COMPARED = ("programs with Python",)
"""Parts of a bundle that are not checked here."""


class Answer(StrEnum):
    """The answer to a question about a bundle."""

    DECIDED = "decided"
    UNDECIDED = "undecided"
    REFUTED = "refuted"


@dataclass(frozen=True)
class PartVerdict:
    """The answer to one question about a bundle: ``open`` lists why it is undecided, ``refuted`` the counterexamples,
    ``shown`` the obligations that were proved or tested."""

    open: tuple[str, ...] = ()
    refuted: tuple[str, ...] = ()
    shown: tuple[Obligation, ...] = ()

    @property
    def answer(self) -> Answer:
        if self.refuted:
            return Answer.REFUTED
        return Answer.UNDECIDED if self.open else Answer.DECIDED


@dataclass(frozen=True)
class KernelVerdict:
    """The four questions about a kernel: does its PTX implement its Transport IR, is its machine code assembled from
    that PTX, does the Transport IR store what the Tile IR stores, and is it proved?"""

    symbol: str
    ptx: PartVerdict
    machine_code: PartVerdict
    tile_ir: PartVerdict
    proofs: PartVerdict

    @property
    def parts(self) -> dict[str, PartVerdict]:
        """The questions by name."""
        return {
            "ptx": self.ptx,
            "machine_code": self.machine_code,
            "tile_ir": self.tile_ir,
            "proofs": self.proofs,
        }

    @property
    def answer(self) -> Answer:
        return worst(part.answer for part in self.parts.values())

    @property
    def shown(self) -> tuple[Obligation, ...]:
        """The obligations shown, without duplicates."""
        return tuple(dict.fromkeys(o for part in self.parts.values() for o in part.shown))


def worst(answers: Iterable[Answer]) -> Answer:
    """The answer for a whole: refuted if any part is, else undecided if any part is."""
    found = set(answers)
    return next((a for a in (Answer.REFUTED, Answer.UNDECIDED) if a in found), Answer.DECIDED)


_Execution = Callable[[Artifact, Mapping[str, t.Kernel], Mapping[str, tile.Kernel]], Agreement]


@dataclass(frozen=True)
class ReadBundle:
    """An artifact and the parsed IR of its kernels, by symbol. ``programs`` holds their Tile IR, where there is any,
    and ``originals`` the programs that rewritten kernels were derived from. ``seconds`` of CPU time are spent on each
    question at most."""

    artifact: Artifact
    kernels: Mapping[str, t.Kernel]
    programs: Mapping[str, tile.Kernel]
    originals: Mapping[str, tuple[tile.Kernel, ...]]
    seconds: float = MOST_SECONDS

    @staticmethod
    def of(artifact: Artifact, seconds: float = MOST_SECONDS) -> ReadBundle:
        """Parses the IR of all kernels; ART011 for a text that is not IR."""
        kernels = {image.symbol: transport_kernel(image.transport_ir) for image in artifact.kernels}
        programs = {image.symbol: tile_kernel(image.tile_ir) for image in artifact.kernels if image.tile_ir}
        read = {program.name: tile_kernel(program.tile_ir) for program in artifact.programs}
        originals = {image.symbol: tuple(read[n] for n in image.made_of) for image in artifact.kernels if image.made_of}
        return ReadBundle(artifact, kernels, programs, originals, seconds)

    def recipe(self) -> PartVerdict:
        """Whether the launch recipes follow from the kernels."""
        faults: list[str] = []

        def compared() -> Sequence[str]:
            faults.extend(map(str, recipe_faults(self.artifact, self.kernels)))
            return ()

        return PartVerdict(self._or_why(compared), refuted=tuple(faults))

    def variants(self) -> PartVerdict:
        """Whether all variants compute the same program, tested on launches; decided where there is only one."""
        return self._executed("variants", agreement, "was executed on no arguments that the others take")

    def steps(self) -> PartVerdict:
        """Whether the data passed between steps and the program rewrites are proved, and match the certificates."""
        shown: list[Obligation] = []

        def still_open() -> Sequence[str]:
            open_: list[str] = []
            for variant in self.artifact.variants:
                found, why = steps_reproved(variant, self.kernels, self.programs, self.originals)
                shown.extend(found)
                open_.extend(why)
            return open_

        return PartVerdict(self._or_why(still_open), shown=tuple(shown))

    def promises(self) -> PartVerdict:
        """Whether the steps before kernels that rely on promises check them, tested on launches."""
        return self._executed(PROMISES_TESTED, run_promise_tests, "relies on promises that no launch was seen to check")

    def _executed(self, name: str, execute: _Execution, alone: str) -> PartVerdict:
        """The verdict of executing variants; ``alone`` is the message for those that were not executed."""
        agreed: list[Agreement] = []

        def open_() -> Sequence[str]:
            agreed.append(execute(self.artifact, self.kernels, self.programs))
            return [f"{variant} {alone}" for variant in agreed[0].alone]

        unlike = self._or_why(open_)
        tested = (Obligation(name, EXECUTION, launch) for found in agreed for launch in found.launches)
        return PartVerdict(unlike, agreed[0].differences if agreed else (), tuple(tested))

    def each(self) -> Iterator[KernelVerdict]:
        """The verdict on every kernel that a variant launches, lazily: each takes seconds."""
        launches = {s.kernel: s for v in self.artifact.variants for s in v.steps if isinstance(s, Launch)}
        for name, launch in launches.items():
            if name in self.kernels:
                yield self._kernel(self.artifact.kernel(name), self.kernels[name], launch)

    @gc_paused()
    def _kernel(self, image: KernelImage, kernel: t.Kernel, launch: Launch) -> KernelVerdict:
        source = self.programs.get(image.symbol)
        if source is None:
            tile_ir = PartVerdict(open=("the bundle has none of it",))
            proofs = PartVerdict(open=("nothing says what the kernel computes",))
        else:
            tile_ir, proofs = self._lowering(source, kernel), self._proofs(source, kernel, image)
        ptx, code = self._ptx(image, kernel, launch), self._machine_code(image)
        return KernelVerdict(image.symbol, ptx, code, tile_ir, proofs)

    def _ptx(self, image: KernelImage, kernel: t.Kernel, launch: Launch) -> PartVerdict:
        """The PTX against the Transport IR; executed beside it where that is undecided."""
        found = self._or_why(lambda: compare(kernel, image.ptx, launch.args, launch.grid[0]))
        if not found:
            return PartVerdict(shown=(PTX,))
        launches: list[Obligation] = []
        refuted: list[str] = []

        def executed() -> Sequence[str]:
            outcome = run_differential_test(kernel, image.ptx, recipe([kernel]))
            launches.extend(Obligation(PTX.name, EXECUTION, given) for given in outcome.launches)
            refuted.extend(map(str, outcome.differences))
            return ()

        return PartVerdict((*found, *self._or_why(executed)), tuple(refuted), tuple(launches))

    def _machine_code(self, image: KernelImage) -> PartVerdict:
        def differs() -> Sequence[str]:
            other = machine_code_differs(image, self.artifact.target)
            return (other,) if other else ()

        other = self._or_why(differs)
        return PartVerdict(other, shown=() if other else (MACHINE_CODE,))

    def _lowering(self, source: tile.Kernel, kernel: t.Kernel) -> PartVerdict:
        unlike = self._or_why(lambda: compare_lowering(source, kernel))
        return PartVerdict(unlike, shown=() if unlike else (LOWERING,))

    def _proofs(self, source: tile.Kernel, kernel: t.Kernel, image: KernelImage) -> PartVerdict:
        shown: list[Obligation] = []

        def still_open() -> Sequence[str]:
            found = reproved(source, kernel, image.certificate)
            shown.extend(found.shown)
            return found.open

        return PartVerdict(self._or_why(still_open), shown=tuple(shown))

    def _or_why(self, comparison: Callable[[], Sequence[object]]) -> tuple[str, ...]:
        """The findings of a comparison; a message if it fails on malformed IR or exceeds the time limit."""
        try:
            return tuple(map(str, within(self.seconds, comparison)))
        except OutOfTime:
            return (f"takes more than {self.seconds:g} seconds of the processor",)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            return (f"the texts can't be compared: {type(error).__name__} {error}"[:300],)


def as_dict(
    artifact: Artifact,
    recipes: PartVerdict,
    steps: PartVerdict,
    variants: PartVerdict,
    promises: PartVerdict,
    kernels: Sequence[KernelVerdict],
) -> dict[str, object]:
    """The verdict as plain data: the answer to each question with its reasons, and what was shown of each kernel."""
    return {
        "name": artifact.name,
        "target": artifact.target,
        "recipe": _part(recipes),
        "steps": {**_part(steps), "proved": [f"{o.name} {o.detail}" for o in steps.shown]},
        "variants": {**_part(variants), "tested": [o.detail for o in variants.shown]},
        "promises": {**_part(promises), "tested": [o.detail for o in promises.shown]},
        "kernels": [_kernel(found) for found in kernels],
        "assumed": list(ASSUMED),
        "not_compared": list(NOT_COMPARED),
    }


def _part(part: PartVerdict) -> dict[str, object]:
    return {"answer": part.answer.value, "reasons": [*part.refuted, *part.open]}


def _kernel(found: KernelVerdict) -> dict[str, object]:
    parts = {name: _part(part) for name, part in found.parts.items()}
    shown: dict[str, list[dict[str, str]]] = {s: [] for s in STANDINGS}
    for o in found.shown:
        shown[o.standing].append({"name": o.name, "method": o.method, "detail": o.detail})
    return {"kernel": found.symbol, "answer": found.answer.value, **parts, **shown}

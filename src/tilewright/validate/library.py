"""The library functions that ops mean: each as the PTX that NVRTC makes of CUDA's, evaluated on operands."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tilewright.ptx.reader import read
from tilewright.validate.bounds import BoundSequence
from tilewright.validate.closed_loops import LoopCall
from tilewright.validate.polynomials import Poly
from tilewright.validate.ptx_program import PtxProgram
from tilewright.validate.regions import ElementAccess
from tilewright.validate.registers import EntryRegisters
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Choice, Value, Values


class Library:
    """Functions over ``values``."""

    def __init__(self, values: Values):
        self.values = values
        self.loops: dict[str, list[LoopCall]] = {}
        """Loops of the functions that were asked for, by text: on which operands they run, and so end."""
        self._found: dict[tuple[str, *tuple[Value, ...]], Value] = {}

    def __call__(self, name: str, *operands: Value) -> Value:
        """The function of one f32 or two."""
        found = self._found.get((name, *operands))
        if found is None:
            found = self._found[name, *operands] = self._evaluated(name, *operands)
        return found

    def _evaluated(self, name: str, *operands: Value) -> Value:
        registers = _functions().get(f"f32_{name}")
        if registers is None:
            raise Undecided(f"no library function {name}")
        entry = registers.entry
        terms = self.values.terms
        address = terms.of(64, terms.atom("address", "library", low=0))
        parameters = dict(zip((p.name for p in entry.parameters), (*operands, address), strict=True))
        sizes = {"library": 4, "shared": 4}
        given = terms.const(32, 1), sizes, frozenset[str](), _no_loop, BoundSequence(self.values)
        region = PtxProgram(registers, self.values, parameters, *given, known=None).run()
        for call in region.calls:
            self.loops.setdefault(call.loop.text, []).append(call)
        (store,) = [e for e in region.events if isinstance(e, ElementAccess)]
        value = store.operands[2]
        assert isinstance(value, Poly | Choice)
        return value


def _no_loop(parent: str, entry: object, line: int, top: bool) -> str:
    raise Undecided("a loop in a library function")


@cache
def _functions() -> dict[str, EntryRegisters]:
    """The functions by the names of their entries."""
    module = read(files("tilewright.validate").joinpath("library.ptx").read_text(), "library.ptx")
    return {entry.name: EntryRegisters(entry) for entry in module.entries}

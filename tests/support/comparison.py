"""What the comparison of PTX with the IR computes with, made from nothing, for tests of its parts."""

from __future__ import annotations

from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.cases import Cases
from tilewright.validate.terms import Terms
from tilewright.validate.values import Values


class Comparison:
    """Terms of so many threads, conditions, values and arithmetic over them."""

    def __init__(self, threads: int = 32) -> None:
        self.terms = Terms(threads)
        self.cases = Cases(self.terms)
        self.values = Values(self.terms, self.cases)
        self.arithmetic = Arithmetic(self.values)

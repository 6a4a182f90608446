"""Bugs in integers without a sign and of 8 bits, in bits of other dtypes, in scans, and in places in tiles."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _emission(name: str, what: str, file: str, old: str, new: str, *probes: str) -> Mutant:
    return Mutant(name, Kind.EMISSION, what, f"codegen/{file}.py", old, new, probes)


def _value(name: str, what: str, file: str, old: str, new: str, *probes: str) -> Mutant:
    return Mutant(name, Kind.VALUES, what, f"schedule/{file}.py", old, new, probes)


_EMITTED = (
    _emission(
        "words with a sign",
        "u32 is computed in int",
        "storage",
        'if self.dtype.bits == 32 and not self.dtype.signed:\n            return "unsigned"',
        'if self.dtype.bits == 32 and not self.dtype.signed:\n            return "int"',
        "unsigned",
    ),
    _emission(
        "signed bytes kept",
        "results of u8 are brought back as i8",
        "prelude",
        '"u8": "unsigned char", "u16"',
        '"u8": "signed char", "u16"',
        "bytes_of",
    ),
    _emission(
        "bytes unrounded",
        "a sum of bytes is not brought back to 8 bits",
        "scalars",
        '_STAYS = frozenset(("and",',
        '_STAYS = frozenset(("add", "mul", "and",',
        "bytes_of",
    ),
    _emission(
        "quotients of words by signs",
        "a quotient without a sign is that of signed numbers",
        "prelude",
        "return b == 0u ? 0u : a / b; }",
        "return b == 0u ? 0u : (unsigned)((int)a / (int)b); }",
        "unsigned",
    ),
    _emission(
        "remainders of words by signs",
        "a remainder without a sign is that of signed numbers",
        "prelude",
        "return b == 0u ? 0u : a % b; }",
        "return b == 0u ? 0u : (unsigned)((int)a % (int)b); }",
        "unsigned",
    ),
    _emission(
        "words shifted by signs",
        "a shift to the right fills with the sign of a word that has none",
        "prelude",
        "{ return n < 32u ? a >> n : 0u; }",
        "{ return n < 32u ? (unsigned)((int)a >> n) : 0u; }",
        "unsigned",
    ),
    _emission(
        "shifts of 31 bits at most",
        "a shift to the left counts modulo 16",
        "prelude",
        "{ return n < 32u ? a << n : 0u; }",
        "{ return n < 32u ? a << (n & 15u) : 0u; }",
        "unsigned",
    ),
    _emission(
        "the greater one less often",
        "a maximum of integers is the second where the first is greater",
        "scalars",
        '"max": "({0} > {1} ? {0} : {1})"',
        '"max": "({0} >= {1} + 1 ? {0} : {1})"',
        "unsigned",
        "ints",
    ),
    _emission(
        "numbers for bits",
        "the bits of a float are the integer that it is",
        "scalars",
        'return f"__float_as_uint({x})" if dtype.bits == 32',
        'return f"(unsigned){x}" if dtype.bits == 32',
        "bits_of",
    ),
    _emission(
        "floats of numbers",
        "bits give the float that they count",
        "scalars",
        'return f"__uint_as_float({word})" if dtype.bits == 32',
        'return f"(float)({word})" if dtype.bits == 32',
        "bits_of",
    ),
    _emission(
        "constants of 31 bits",
        "a constant without a sign loses its upper bit",
        "scalars",
        'return f"{value}u"',
        'return f"{value & 0x7fffffff}u"',
        "bits_of",
    ),
    _emission(
        "the first of two wins",
        "the lesser of two integers is the first where they are equal, or the second is less by one",
        "scalars",
        '"min": "({0} < {1} ? {0} : {1})"',
        '"min": "({0} < {1} + 2 ? {0} : {1})"',
        "unsigned",
    ),
)
_LOWERED = (
    _value(
        "a scan in the other direction",
        "the scan in reverse goes forward",
        "scan",
        "self.reverse = op.reverse is not None",
        "self.reverse = op.reverse is None",
        "running",
        "scanned",
    ),
    _value(
        "groups of the axis in reverse",
        "in reverse the elements of a group are combined forwards",
        "scan",
        "order = list(reversed(range(len(places)))) if self.reverse else list(range(len(places)))",
        "order = list(range(len(places)))",
        "running",
    ),
    _value(
        "the upper lane before",
        "in reverse the lower lane comes before",
        "scan",
        "takes = all_of([negate(upper), exists]) if self.reverse else upper",
        "takes = upper",
        "running",
    ),
    _value(
        "a warp less before it",
        "the prefix of a warp in reverse begins one warp later",
        "scan",
        "before = step.choose(part < q, running[q], before)",
        "before = step.choose(part < q - 1, running[q], before)",
        "running",
    ),
    _value(
        "the lane beside",
        "what is exchanged comes from the lane that differs in another bit",
        "scan",
        "[TID % LANES ^ (1 << bit)]",
        "[TID % LANES ^ (1 << bit ^ 1)]",
        "running",
        "ordered",
        "looked_up",
    ),
    _value(
        "nothing of the least number",
        "elements beyond the domain of a scan are 1",
        "scan",
        "number = identity(self.function, self.dtypes[0])",
        "number = 1",
        "running",
    ),
    _value(
        "a bin above the axis",
        "the counters lie one element further",
        "histogram",
        "lowering.emit(t.SharedRead(counters, found, at, inside), op)",
        "lowering.emit(t.SharedRead(counters, found, (at + 1) % op.bins, inside), op)",
        "binned",
    ),
    _value(
        "the network in another direction",
        "steps of a sort put the lesser where the bit equals 1",
        "sort",
        "towards = Const(0) if direction is None else",
        "towards = Const(1) if direction is None else",
        "ordered",
        "greatest",
    ),
    _value(
        "places of the same",
        "of two runs the same places are compared",
        "sort",
        "{d: 1 - values[d] for d in run}",
        "{d: values[d] for d in run}",
        "greatest",
        "placed",
    ),
)
NARROW = (*_EMITTED, *_LOWERED)

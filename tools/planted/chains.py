"""Bugs in swapped products, relayouts, chains and runs of sums, byte permutations, pairs and the text of sines."""

from __future__ import annotations

from planted.mutant import Kind, Mutant

_SCHEDULED = (
    Mutant(
        "operands turned, not exchanged",
        Kind.SCHEDULE,
        "of swapped products each operand is turned, and stays on its side",
        "schedule/transforms/swapped_operands.py",
        "tile.Dot(b, a, promoted",
        "tile.Dot(a, b, promoted",
        ("few_rows",),
    ),
    Mutant(
        "a start as it was",
        Kind.SCHEDULE,
        "a swapped product is added to what stood there before, not turned",
        "schedule/transforms/swapped_operands.py",
        "made = self.emit(tile.FragmentInit(turn(self.values[op.init])), like=op, block=block)",
        "made = self.emit(tile.FragmentInit(self.values[op.init]), like=op, block=block)",
        ("few_rows",),
    ),
    Mutant(
        "a total as it was",
        Kind.SCHEDULE,
        "what reads a swapped sum gets it turned",
        "schedule/transforms/swapped_operands.py",
        "self.values[op.result] = turn(made.results[0])\n                    return",
        "pass",
        ("few_rows",),
    ),
    Mutant(
        "the distance to the next",
        Kind.SCHEDULE,
        "tiles are laid as far before a row as the boundary behind its first element lies after it",
        "schedule/misaligned_rows.py",
        "distance = total % vector",
        "distance = -total % vector",
        ("skewed",),
    ),
)

_VALUES = (
    Mutant(
        "each with itself",
        Kind.VALUES,
        "of two partial results one is added to itself",
        "schedule/reduce.py",
        "pairs = [builder.add(x, y) for",
        "pairs = [builder.add(x, x) for",
        ("row_sum", "softmax", "summed_down"),
    ),
    Mutant(
        "a run twice",
        Kind.VALUES,
        "the sum of a run takes the place of the total",
        "schedule/reduce.py",
        "self.sum_of([(total, 0), (latest, 0)], total)",
        "self.sum_of([(latest, 0), (latest, 0)], total)",
        ("streamed", "summed_down", "columns"),
    ),
    Mutant(
        "runs begin at one",
        Kind.VALUES,
        "each run of a long sum begins at 1",
        "schedule/reduce.py",
        "builder.constant(0.0, self.dtype)], [latest]",
        "builder.constant(1.0, self.dtype)], [latest]",
        ("streamed", "summed_down", "columns"),
    ),
    Mutant(
        "the last run lost",
        Kind.VALUES,
        "behind a stream the latest run is left out",
        "schedule/reduce.py",
        "self.sum_of([(b, 0) for b in partials])",
        "self.sum_of([(b, 0) for b in partials[:1]])",
        ("streamed", "summed_down", "columns"),
    ),
    Mutant(
        "chains that meet",
        Kind.VALUES,
        "the chains of a thread are laid over those of its other rows",
        "schedule/reduce.py",
        "into = self.into + place % ways * self.home.registers(self.inner)",
        "into = self.into + place % ways",
        ("tile_sums",),
    ),
    Mutant(
        "the greatest lane",
        Kind.VALUES,
        "lanes exchange over one distance less",
        "schedule/reduce.py",
        "lanes = [1 << b for b in bits if b < _LANE_BITS]",
        "lanes = [1 << b for b in bits if b < _LANE_BITS][:-1]",
        ("row_sum", "row_max"),
    ),
    Mutant(
        "chunks without their place",
        Kind.VALUES,
        "every part of a stored value lies where the first does",
        "schedule/hopper/chunked_epilogue.py",
        "here = {t.REGISTER: Sym(t.REGISTER) + (first - at)}",
        "here = {t.REGISTER: Sym(t.REGISTER) - at}",
        ("added",),
    ),
)

_EMITTED = (
    Mutant(
        "selectors backwards",
        Kind.EMISSION,
        "two pairs of bytes that one permutation makes stand in each other's place",
        "codegen/conversion.py",
        "for _, first, _, second in reversed(needed))",
        "for _, first, _, second in needed)",
        ("across",),
    ),
    Mutant(
        "lower halves",
        Kind.EMISSION,
        "both pairs are read from the lower half of the word that a permutation makes",
        "codegen/conversion.py",
        "named |= {pair: (name, 2 * half) for",
        "named |= {pair: (name, 0 * half) for",
        ("across",),
    ),
    Mutant(
        "the first of a pack",
        Kind.EMISSION,
        "elements that are packed into one word are all computed at its first register",
        "codegen/elements.py",
        "for j, value in enumerate(self._body(op, start + part)):",
        "for j, value in enumerate(self._body(op, start)):",
        ("add", "casts", "softmax"),
    ),
    Mutant(
        "pairs of bytes apart",
        Kind.EMISSION,
        "of four 8-bit floats the second pair that is widened is another one",
        "codegen/elements.py",
        "self.c(start % widened.per_word // 2)",
        "self.c(1 - start % widened.per_word // 2)",
        ("of_bytes",),
    ),
    Mutant(
        "a quarter turn",
        Kind.EMISSION,
        "cosines are sines of the turn before",
        "codegen/trigonometry.py",
        'return quarter_wave(r, !(n & 1), n + 1);\n}""",\n    "tangent"',
        'return quarter_wave(r, !(n & 1), n);\n}""",\n    "tangent"',
        ("waves",),
    ),
    Mutant(
        "two parts of a half turn",
        Kind.EMISSION,
        "pi / 2 is subtracted in two parts",
        "codegen/trigonometry.py",
        "return fmaf(j, -0x1.84698ap-48f, r);",
        "return r;",
        ("waves",),
    ),
    Mutant(
        "sines of large angles",
        Kind.EMISSION,
        "the significand of an angle from 65536 on has no leading one",
        "codegen/trigonometry.py",
        "m = (bits & 0x7fffffu) | 0x800000u, place",
        "m = (bits & 0x7fffffu), place",
        ("waves",),
    ),
)

_LAUNCHED = (
    Mutant(
        "matrices of any rows",
        Kind.OPTIONS,
        "a matrix is taken for one row without being dense",
        "compiler/collapse_dimensions.py",
        "all_of([*(dense(name, columns) for name in names), *addresses",
        "all_of([*addresses",
        ("dense",),
    ),
    Mutant(
        "a row too long",
        Kind.OPTIONS,
        "matrices of more elements than an extent may be are taken for one row",
        "compiler/collapse_dimensions.py",
        "*addresses, needs, fits_a_row(rows, columns)])",
        "*addresses, needs])",
        ("dense",),
    ),
)

CHAINS = (*_SCHEDULED, *_VALUES, *_EMITTED, *_LAUNCHED)

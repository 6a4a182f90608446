"""Bugs in quotients and remainders by numbers, and in words that hold a truth for each of several rows."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _bug(name: str, what: str, file: str, old: str, new: str, *probes: str) -> Mutant:
    return Mutant(name, Kind.EMISSION, what, f"codegen/{file}.py", old, new, probes)


PLACES = (
    _bug(
        "a quotient by a number towards zero",
        "quotients of negative integers are not rounded down",
        "prelude",
        "  return q - (T)((a % b != 0) && ((a < 0) != (b < 0)));",
        "  return q;",
        "by_numbers",
    ),
    _bug(
        "a multiple that is rounded down",
        "a quotient that leaves nothing is one less where signs differ",
        "prelude",
        "  return q - (T)((a % b != 0) && ((a < 0) != (b < 0)));",
        "  return q - (T)((a < 0) != (b < 0));",
        "by_numbers",
    ),
    _bug(
        "a remainder by a number with the dividend's sign",
        "what is left of a negative integer stays negative",
        "prelude",
        "  return m + ((m != 0 && ((m < 0) != (b < 0))) ? b : (T)0);",
        "  return m;",
        "by_numbers",
    ),
    _bug(
        "a remainder of nothing",
        "of a multiple the divisor itself is left",
        "prelude",
        "  return m + ((m != 0 && ((m < 0) != (b < 0))) ? b : (T)0);",
        "  return m + ((m == 0 || ((m < 0) != (b < 0))) ? b : (T)0);",
        "by_numbers",
    ),
    _bug(
        "signs of the divisor alone",
        "a quotient is rounded down where the divisor is negative",
        "prelude",
        "  return q - (T)((a % b != 0) && ((a < 0) != (b < 0)));",
        "  return q - (T)((a % b != 0) && (b < 0));",
        "by_numbers",
    ),
)

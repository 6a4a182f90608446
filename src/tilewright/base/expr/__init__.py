"""Integer expressions over dimensions, strides, program and thread coordinates.

One expression language serves every room: the tracer writes ranges and coordinates in it, the scheduler
simplifies it, the code generator prints it as C, the access checker turns it into Presburger maps, and an artifact
stores it as text for dispatch predicates and grid sizes.

Values are mathematical integers (Python semantics: ``//`` rounds to minus infinity, ``%`` has the divisor's sign);
booleans appear only as results of comparisons and of ``all_of`` / ``any_of`` / ``negate``.

Construction normalises: sums and products are flattened, sorted and folded, so that two expressions that are equal as
polynomials over the same atoms are structurally equal (``==`` and ``hash``). Division, modulus, min, max and xor are
atoms; ``simplify`` resolves them under known intervals.

Text form: Python infix, e.g. ``($p0*128 + $tid // 32) < M``; ``parse`` reads it back through the ``ast`` module, which
never executes anything. A leading ``$`` marks symbols of the compiler's own (``own``).

``nodes`` holds the classes and the normalising constructors, ``intervals`` bounds, divisors and
simplification, ``text`` the parser, ``extents`` which symbols the extents of dimensions give.
"""

from __future__ import annotations

from tilewright.base.expr.extents import solved_for, symbol_plus, unsolved
from tilewright.base.expr.intervals import Interval, divisor, interval, simplify
from tilewright.base.expr.nodes import (
    FALSE,
    OWN,
    TRUE,
    All,
    Any_,
    Assignment,
    Compare,
    Const,
    Expr,
    ExprError,
    ExprLike,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
    all_of,
    any_of,
    ceildiv,
    children,
    conjuncts,
    expr,
    maximum,
    minimum,
    negate,
    own,
    sym,
)
from tilewright.base.expr.text import marked, parse, unmarked

__all__ = [
    "FALSE",
    "OWN",
    "TRUE",
    "All",
    "Any_",
    "Assignment",
    "Compare",
    "Const",
    "Expr",
    "ExprError",
    "ExprLike",
    "FloorDiv",
    "Interval",
    "Max",
    "Min",
    "Mod",
    "Not",
    "Product",
    "Sum",
    "Sym",
    "Xor",
    "all_of",
    "any_of",
    "ceildiv",
    "children",
    "conjuncts",
    "divisor",
    "expr",
    "interval",
    "marked",
    "maximum",
    "minimum",
    "negate",
    "own",
    "parse",
    "simplify",
    "solved_for",
    "sym",
    "symbol_plus",
    "unmarked",
    "unsolved",
]

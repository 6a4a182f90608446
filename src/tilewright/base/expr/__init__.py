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
simplification, ``text`` the parser, ``sharing`` texts that name what they share, ``extents`` which symbols the extents
of dimensions give.
"""

from __future__ import annotations

from tilewright.base.expr.extents import solve as solve
from tilewright.base.expr.extents import solved_for as solved_for
from tilewright.base.expr.extents import symbol_plus as symbol_plus
from tilewright.base.expr.extents import unsolved as unsolved
from tilewright.base.expr.intervals import Interval as Interval
from tilewright.base.expr.intervals import divisor as divisor
from tilewright.base.expr.intervals import interval as interval
from tilewright.base.expr.intervals import simplify as simplify
from tilewright.base.expr.nodes import FALSE as FALSE
from tilewright.base.expr.nodes import OWN as OWN
from tilewright.base.expr.nodes import TRUE as TRUE
from tilewright.base.expr.nodes import All as All
from tilewright.base.expr.nodes import Any_ as Any_
from tilewright.base.expr.nodes import Assignment as Assignment
from tilewright.base.expr.nodes import Compare as Compare
from tilewright.base.expr.nodes import Const as Const
from tilewright.base.expr.nodes import Expr as Expr
from tilewright.base.expr.nodes import ExprError as ExprError
from tilewright.base.expr.nodes import ExprLike as ExprLike
from tilewright.base.expr.nodes import FloorDiv as FloorDiv
from tilewright.base.expr.nodes import Max as Max
from tilewright.base.expr.nodes import Min as Min
from tilewright.base.expr.nodes import Mod as Mod
from tilewright.base.expr.nodes import Not as Not
from tilewright.base.expr.nodes import Product as Product
from tilewright.base.expr.nodes import Sum as Sum
from tilewright.base.expr.nodes import Sym as Sym
from tilewright.base.expr.nodes import Xor as Xor
from tilewright.base.expr.nodes import all_of as all_of
from tilewright.base.expr.nodes import any_of as any_of
from tilewright.base.expr.nodes import ceildiv as ceildiv
from tilewright.base.expr.nodes import children as children
from tilewright.base.expr.nodes import conjuncts as conjuncts
from tilewright.base.expr.nodes import expr as expr
from tilewright.base.expr.nodes import maximum as maximum
from tilewright.base.expr.nodes import minimum as minimum
from tilewright.base.expr.nodes import negate as negate
from tilewright.base.expr.nodes import own as own
from tilewright.base.expr.nodes import sym as sym
from tilewright.base.expr.sharing import SharedParts as SharedParts
from tilewright.base.expr.sharing import SharedTexts as SharedTexts
from tilewright.base.expr.sharing import first_of as first_of
from tilewright.base.expr.text import marked as marked
from tilewright.base.expr.text import parse as parse
from tilewright.base.expr.text import unmarked as unmarked

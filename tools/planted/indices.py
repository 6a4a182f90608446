"""Bugs at computed and loaded coordinates, and in loaded bounds."""

from __future__ import annotations

from planted.mutant import Kind, Mutant


def _bug(name: str, what: str, file: str, old: str, new: str, *probes: str, kind: Kind = Kind.VALUES) -> Mutant:
    return Mutant(name, kind, what, file, old, new, probes)


INDICES = (
    _bug(
        "below the first element",
        "a coordinate is not asked whether it is negative",
        "schedule/indirect.py",
        "low = [] if limits.at_least(coord, Const(0)) else [coord >= 0]",
        "low: list[Expr] = []",
        "gathered",
        "shifted",
    ),
    _bug(
        "behind the last element",
        "a coordinate may be the extent",
        "schedule/indirect.py",
        "[*low, coord < dim]",
        "[*low, coord <= dim]",
        "gathered",
        "shifted",
    ),
    _bug(
        "one index for all",
        "every element is found by the first index that a thread holds",
        "schedule/indirect.py",
        "self.reads = [home.register_of(held.axes, axes, R) - held.window for held in self.buffers]",
        "self.reads = [Const(0) for _ in self.buffers]",
        "gathered",
    ),
    _bug(
        "places for coordinates",
        "computed coordinates count from the tile",
        "schedule/indirect.py",
        "axis_symbol(d): place if span is None else span.origin + place",
        "axis_symbol(d): place",
        "shifted",
    ),
    _bug(
        "each its own bound",
        "threads take the bound that they have loaded themselves",
        "schedule/loops.py",
        "self.emit(t.Bind(op.symbol.data, given, ",
        "self.emit(t.Bind(op.symbol.data, held, ",
        "bounded",
    ),
    _bug(
        "a bound before it is given",
        "threads read the bound before it is written",
        "schedule/loops.py",
        "self.emit(t.SharedWrite(shared, held, Const(0), Sym(t.THREAD).eq(0)), op)\n        self.emit(t.Barrier(), op)",
        "self.emit(t.SharedWrite(shared, held, Const(0), Sym(t.THREAD).eq(0)), op)",
        "bounded",
    ),
    _bug(
        "a bound from thread 32",
        "the bound is written by a thread that may not be there",
        "schedule/loops.py",
        "self.emit(t.SharedWrite(shared, held, Const(0), Sym(t.THREAD).eq(0)), op)",
        "self.emit(t.SharedWrite(shared, held, Const(0), Sym(t.THREAD).eq(1024)), op)",
        "bounded",
    ),
    _bug(
        "the index beside",
        "the emitted text takes the next index",
        "codegen/accesses.py",
        "place = self.c(read.substitute({t.REGISTER: register}))",
        "place = self.c(read.substitute({t.REGISTER: 0}))",
        "gathered",
        kind=Kind.EMISSION,
    ),
    _bug(
        "a bound more",
        "the emitted bound is one more",
        "codegen/cuda.py",
        'self.line(f"const int {identifier(symbol)} = (int){value};")',
        'self.line(f"const int {identifier(symbol)} = (int){value} + 1;")',
        "bounded",
        kind=Kind.EMISSION,
    ),
    _bug(
        "rows beyond a length",
        "what memory holds beyond a length is multiplied by zeros",
        "schedule/hopper/tails.py",
        "if not isinstance(plan.b, TmaOperand) or ends_with_tensor(plan.dot.b, 0):",
        "if True or not isinstance(plan.b, TmaOperand):",
        "over_lengths",
    ),
    _bug(
        "cleared a row late",
        "the first row beyond a length is kept",
        "schedule/hopper/tails.py",
        "guard=span.stop.substitute(at) <= ",
        "guard=span.stop.substitute(at) < ",
        "over_lengths",
    ),
    _bug(
        "the bound of a program before",
        "consumers wait for the other phase of the slot of bounds",
        "schedule/hopper/loaded_bounds.py",
        "parity = (use + 1) % 2 if lowering.producing else use % 2",
        "parity = (use + 1) % 2",
        "over_lengths",
    ),
    _bug(
        "half the readers",
        "the slot of bounds is written again when half of the threads have read it",
        "schedule/hopper/loaded_bounds.py",
        'a.Mbarriers("bound_empty", 1, threads)',
        'a.Mbarriers("bound_empty", 1, threads // 2)',
        "over_lengths",
    ),
)

"""Expressions against an evaluator that shares no code with them: Python's own arithmetic on a plain tree."""

from __future__ import annotations

import copy
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.base.expr import (
    FALSE,
    TRUE,
    Assignment,
    Const,
    Expr,
    ExprError,
    FloorDiv,
    Sym,
    all_of,
    any_of,
    ceildiv,
    divisor,
    expr,
    interval,
    maximum,
    minimum,
    negate,
    parse,
    simplify,
    sym,
)
from tilewright.base.expr.interned import Interned
from tilewright.base.expr.text import _read_by_parts
from tilewright.hw.tensormap import DataType

Tree = Any  # int | str | tuple[str, Tree, ...]
NAMES = ("M", "N", "tid", "a.stride0")

leaves = st.integers(-9, 9) | st.sampled_from(NAMES)


def _binary(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from("+-*"), children, children),
        st.tuples(st.sampled_from(["//", "%"]), children, st.integers(-9, 9).filter(bool)),
        st.tuples(st.sampled_from(["//", "%"]), children, st.sampled_from(NAMES)),
        st.tuples(st.sampled_from(["min", "max"]), children, children),
        st.tuples(st.just("neg"), children),
    )


arithmetic = st.recursive(leaves, _binary, max_leaves=12)
predicates = st.recursive(
    st.tuples(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), arithmetic, arithmetic),
    lambda c: st.one_of(st.tuples(st.sampled_from(["and", "or"]), c, c), st.tuples(st.just("not"), c)),
    max_leaves=4,
)
environments = st.fixed_dictionaries({name: st.integers(-20, 20).filter(bool) for name in NAMES})

BUILD: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "neg": lambda a: -a,
    "min": minimum,
    "max": maximum,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a.eq(b),
    "!=": lambda a, b: a.ne(b),
    "and": lambda a, b: all_of([a, b]),
    "or": lambda a, b: any_of([a, b]),
    "not": negate,
}


def build(tree: Tree) -> Expr:
    if isinstance(tree, int):
        return Const(tree)
    if isinstance(tree, str):
        return sym(tree)
    return BUILD[tree[0]](*map(build, tree[1:]))


def oracle(tree: Tree, env: dict[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    op, *args = tree
    values = [oracle(a, env) for a in args]
    if op in ("neg", "not"):
        return -values[0] if op == "neg" else not values[0]
    if op in ("min", "max"):
        return sorted(values)[0 if op == "min" else -1]
    return eval(f"({values[0]}) {op} ({values[1]})")


def python_value(text: str, env: dict[str, int]) -> int:
    """The text form read by Python itself."""
    names = {**env, "a_stride0": env["a.stride0"], "xor": lambda a, b: a ^ b}
    return eval(text.replace("a.stride0", "a_stride0"), {"min": min, "max": max}, names)


@given(arithmetic | predicates, environments)
@example(("neg", ("//", "M", 2)), {"M": 3, "N": 1, "tid": 1, "a.stride0": 1})
def test_value_text_and_round_trip(tree: Tree, env: dict[str, int]) -> None:
    expected = oracle(tree, env)
    e = build(tree)
    assert e.evaluate(env) == e.evaluate(Assignment(env)) == expected
    assert python_value(e.text, env) == expected
    again = parse(e.text)
    assert again == e
    assert hash(again) == hash(e)
    assert again.text == e.text


@given(arithmetic | predicates, environments, st.sets(st.sampled_from(NAMES)))
def test_substitution_commutes_with_evaluation(tree: Tree, env: dict[str, int], names: set[str]) -> None:
    e = build(tree)
    partial = e.substitute({n: env[n] for n in names})
    assert partial.symbols.isdisjoint(names)
    assert partial.evaluate(env) == e.evaluate(env)


@given(arithmetic | predicates, environments, st.data())
def test_interval_divisor_simplify_are_sound(tree: Tree, env: dict[str, int], data: st.DataObject) -> None:
    e = build(tree)
    bounds = {}
    for name in NAMES:
        low = data.draw(st.none() | st.integers(env[name] - 5, env[name]))
        high = data.draw(st.none() | st.integers(env[name], env[name] + 5))
        bounds[name] = (low, high)
    value = e.evaluate(env)
    low, high = interval(e, bounds)
    assert low is None or low <= value
    assert high is None or value <= high
    assert simplify(e, bounds).evaluate(env) == value
    divisors = {name: data.draw(st.sampled_from([d for d in range(1, 21) if env[name] % d == 0])) for name in NAMES}
    d = divisor(e, divisors)
    assert value == 0 if d == 0 else value % d == 0


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=5), st.randoms()
)
def test_equal_polynomials_are_equal(terms: list[tuple[int, str, str]], random: Any) -> None:
    def total(items: list[tuple[int, str, str]]) -> Expr:
        return sum((c * sym(a) * sym(b) for c, a, b in items), expr(0))

    shuffled = list(terms)
    random.shuffle(shuffled)
    assert total(terms) == total(shuffled)
    assert total(terms) - total(shuffled) == Const(0)


@pytest.mark.parametrize(
    ("text", "simplified"),
    [
        ("(p0*128 + tid) // 128", "p0"),
        ("(p0*128 + tid) % 128", "tid"),
        ("(p0*128 + tid) // 129", "(p0*128 + tid) // 129"),
        ("min(tid, 128)", "tid"),
        ("min(tid, 126)", "min(tid, 126)"),
        ("tid < 128", "1"),
        ("tid < 127", "tid < 127"),
    ],
)
def test_simplify_resolves_what_bounds_decide(text: str, simplified: str) -> None:
    bounds = {"tid": (0, 127), "p0": (0, None)}
    assert simplify(parse(text), bounds).text == simplified


def test_xor_folds_and_evaluates() -> None:
    a, b = sym("M"), sym("N")
    assert a ^ b ^ a == b
    assert a ^ a == Const(0)
    assert (a ^ 5 ^ 3).text == "xor(M, 6)"
    assert (a ^ b).evaluate({"M": 12, "N": 10}) == 6


def test_ceildiv_at_the_edge() -> None:
    assert [ceildiv(sym("M"), 8).evaluate({"M": m}) for m in (0, 1, 8, 9)] == [0, 1, 1, 2]


def test_truth_values() -> None:
    assert all_of([]) == TRUE
    assert any_of([]) == FALSE
    assert (Sym("M") < Sym("M")) == FALSE
    with pytest.raises(TypeError, match="truth value"):
        bool(sym("M") < 3)


@pytest.mark.parametrize("value", [1.5, True, "M", None])
def test_only_integers_become_expressions(value: Any) -> None:
    with pytest.raises(TypeError, match="built from int"):
        expr(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M +",
        "M ** 2",
        "M / 2",
        "1.5",
        "'x'",
        "__import__('os')",
        "f(M)",
        "M[0]",
        "lambda: 0",
        "1 < M < 3",
        "M // 0",
        "M % 0",
        "min()",
        "xor(M, key=N)",
        "[M]",
        "M if N else 0",
        "(" * 300 + "M" + ")" * 300,
        "-" * 50_000 + "M",
        "+".join(["M"] * 60_000),
        "*".join(f"(a{i} + b{i})" for i in range(64)),
    ],
)
def test_parse_refuses_what_is_no_expression(text: str) -> None:
    with pytest.raises(ExprError):
        parse(text)


@pytest.mark.parametrize(
    "text", ["(M)0", "(M)1 + (N)", "M.(N)", "M.max(N, 1)", "(M)(N)", "max(M)(N)", "max (M, (N)", "not(M) + (N"]
)
def test_parts_in_parentheses_do_not_run_together(text: str) -> None:
    with pytest.raises(ExprError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("not(M < N)", negate(sym("M") < sym("N"))),
        ("(M < N) and(N < 3)or (M == 0)", any_of([all_of([sym("M") < sym("N"), sym("N") < 3]), sym("M").eq(0)])),
        ("max((M + 1)*2, min(N, (M)))", maximum((sym("M") + 1) * 2, minimum(sym("N"), sym("M")))),
        ("max (M, (N))", maximum(sym("M"), sym("N"))),
        ("(x).stride0 + ((1\n+ M))", sym("x.stride0") + 1 + sym("M")),
        ("ʕ0 + (M)", sym("ʕ0") + sym("M")),
        ("-(M - (N - (M - 1)))", -(sym("M") - (sym("N") - (sym("M") - 1)))),
    ],
)
def test_parts_in_parentheses_are_read_as_the_whole(text: str, meant: Expr) -> None:
    assert parse(text) is meant


@pytest.mark.parametrize("text", ["(M + 1)*2 <= N", "((M + 1)*2)", "not(M < N)", "2*(M + 1)"])
def test_texts_are_read_by_their_parts(text: str) -> None:
    """Not by the whole, which takes long where parts come again, since what begins with one is read, too."""
    assert _read_by_parts(text) is parse(text)


def test_missing_symbol_and_zero_divisor() -> None:
    with pytest.raises(ExprError, match="'N' has no value; known: M"):
        (sym("M") + sym("N")).evaluate({"M": 1})
    with pytest.raises(ExprError, match="divides by zero"):
        (sym("M") // sym("N")).evaluate({"M": 1, "N": 0})


def test_an_assignment_evaluates_each_term_once() -> None:
    m, read = sym("M"), list[str]()

    class Read(Assignment):
        def __getitem__(self, name: str) -> int:
            read.append(name)
            return super().__getitem__(name)

    time = (m + 63) // 64 * 100 + m % 7
    either = [time <= 900, time <= 500 + m, (time + 1 <= 4 * m).eq(0)]
    assert [e.evaluate(Read({"M": 320})) for e in either] == [True, True, False]
    several = Read({"M": 320})
    read.clear()
    assert [e.evaluate(several) for e in either] == [True, True, False]
    assert len(read) < 6


def test_a_small_remainder_does_not_hide_a_division() -> None:
    g, i = sym("g"), sym("i")
    assert simplify((g * 2 + i) // 4, {"i": (0, 1)}) == g // 2
    assert simplify((g * 8 + i + 8) // 16, {"i": (0, 7)}) == (g + 1) // 2
    assert simplify((g * 2 + i) // 4, {"i": (0, 2)}) != g // 2
    assert simplify((g * 2 + i) // 4, {"i": (-1, 0)}) != g // 2


def test_equal_expressions_are_one_object() -> None:
    built, read = (Sym("tid") * 8 + 3) // 4 % Sym("N"), parse("(tid*8 + 3) // 4 % N")
    assert built is read
    assert pickle.loads(pickle.dumps(built)) is built
    assert copy.deepcopy(built) is built


@pytest.mark.parametrize("value", [True, DataType.BFLOAT16])
def test_constants_are_plain_numbers_whoever_asks_first(value: int) -> None:
    number = 9_000_001 + int(value)  # nobody has asked for these
    assert str(Const(value) + 9_000_001) == str(number)
    assert Const(value) is Const(int(value))
    assert type(Const(value).constant) is int


def test_expressions_that_nobody_holds_are_forgotten() -> None:
    kept = FloorDiv(Sym("kept"), Sym("n"))
    forgotten = weakref.ref(FloorDiv(Sym("forgotten"), Sym("n")))
    assert forgotten() is None
    before, passing = len(Interned._alive), 2 * Interned._swept_at
    for i in range(passing):
        Sym(f"passing{i}")
    assert FloorDiv(Sym("kept"), Sym("n")) is kept
    assert len(Interned._alive) < before + passing


def test_threads_that_ask_at_once_get_one_object() -> None:
    names = [f"shared{i}" for i in range(2000)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: [Sym(n) for n in names], range(4)))
    assert all(a is b for other in answers[1:] for a, b in zip(answers[0], other, strict=True))

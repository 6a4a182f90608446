"""Verdicts over shape domains against the judge of single requests."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import bf16
from tilewright.base.expr import TRUE, Expr, expr, sym
from tilewright.base.verdict import Legal
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import DataType, Direction, Interleave, OobFill, Swizzle
from tilewright.legal.domain import ShapeDomain, SymbolicMap, judge_domain
from tilewright.legal.facts import Facts
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import TileAccess, candidates, plan

M, K, S, A = sym("M"), sym("K"), sym("S"), sym("a.address")
ROWS = SymbolicMap(DataType.BFLOAT16, A, (K, M), (K * 2,), (64, 128), swizzle=Swizzle.B128)
SIZES = ("M >= 1", "M <= 65536", "K >= 1", "K <= 65536", "a.address % 16 == 0")


def at(map: SymbolicMap, values: dict[str, int]) -> TensorMapRequest:
    def number(node: Expr | int) -> int:
        return int(expr(node).evaluate(values))

    return TensorMapRequest(
        map.data_type,
        len(map.dims),
        number(map.address),
        tuple(number(d) for d in map.dims),
        tuple(number(s) for s in map.strides),
        tuple(number(b) for b in map.box),
        tuple(number(e) for e in map.element_strides or (1,) * len(map.dims)),
        map.interleave,
        map.swizzle,
        map.l2_promotion,
        map.oob_fill,
        direction=map.direction,
    )


def random_map(rng: np.random.Generator) -> SymbolicMap:
    extents: tuple[Expr | int, ...] = (K, M, K + M, M * 3, (K + 7) // 8 * 8, 64, S)
    rank = int(rng.integers(1, 4))

    def one(values: tuple[Expr | int, ...]) -> Expr | int:
        return values[int(rng.integers(len(values)))]

    return SymbolicMap(
        DataType(int(rng.integers(0, 13))),
        one((A, A + 8, A + K * 2, 1 << 20)),
        tuple(one(extents) for _ in range(rank)),
        tuple(one((K * 2, S * 2, M * 16, (K + 7) // 8 * 16, S * K, 4096)) for _ in range(rank - 1)),
        tuple(one((16, 64, 128, S, 256)) if i else one((8, 16, 32, 64)) for i in range(rank)),
        interleave=Interleave(int(rng.choice([0, 0, 0, 1, 2]))),
        swizzle=Swizzle(int(rng.integers(0, 4))),
        oob_fill=OobFill(int(rng.choice([0, 0, 1]))),
        direction=Direction(int(rng.choice([0, 0, 1]))),
    )


def test_the_legal_sub_domain_is_the_set_of_legal_shapes() -> None:
    rng = np.random.default_rng(11)
    samples = legal_samples = everywhere = nowhere = 0
    for _ in range(330):
        map = random_map(rng)
        unit = {"K": int(rng.choice([1, 4, 8, 16])), "S": int(rng.choice([1, 8]))}
        constraints = [f"{n} % {u} == 0" for n, u in unit.items() if u > 1]
        constraints += ["M >= 1", "K >= 0", "a.address % 16 == 0"][: int(rng.integers(1, 4))]
        domain = ShapeDomain.of(*constraints)
        verdict = judge_domain(map, domain)
        everywhere += verdict.everywhere
        nowhere += verdict.nowhere
        for _ in range(40):
            values = {
                "M": int(rng.choice([1, 2, 7, 128, 1000, 2**32, 2**32 + 1])),
                "K": unit["K"] * int(rng.choice([0, 1, 2, 3, 512, 2**38])),
                "S": unit["S"] * int(rng.choice([0, 1, 8, 16, 32, 512])),
                "a.address": 16 * int(rng.choice([0, 1, 2, 4096])),
            }
            if not domain.constraint.evaluate(values):
                continue
            expected = isinstance(judge(at(map, values), SM90A).verdict, Legal)
            assert bool(verdict.legal.evaluate(values)) == expected, (map, values, verdict.legal)
            samples += 1
            legal_samples += expected
    assert samples >= 10_000
    assert legal_samples > 200
    assert nowhere > 10


def test_a_whole_family_is_legal_at_once() -> None:
    verdict = judge_domain(ROWS, ShapeDomain.of(*SIZES, "K % 8 == 0"))
    assert verdict.everywhere
    assert verdict.reasons == ()


@pytest.mark.parametrize("unit", [4, 2, 1])
def test_the_complement_has_its_reason(unit: int) -> None:
    verdict = judge_domain(ROWS, ShapeDomain.of(*SIZES, f"K % {unit} == 0"))
    assert not verdict.everywhere
    assert not verdict.nowhere
    assert {v.rule for v in verdict.reasons} == {"TMA012"}
    assert verdict.legal.evaluate({"K": 4104})
    assert not verdict.legal.evaluate({"K": 4100})


def test_unbounded_sizes_leave_limits_as_the_sub_domain() -> None:
    verdict = judge_domain(ROWS, ShapeDomain.of("M >= 1", "K >= 1", "K % 8 == 0", "a.address % 16 == 0"))
    assert {v.rule for v in verdict.reasons} == {"TMA014", "TMA015"}
    assert verdict.legal.evaluate({"M": 2**32, "K": 2**32})
    assert not verdict.legal.evaluate({"M": 2**32 + 1, "K": 8})


def test_a_contradiction_is_legal_nowhere() -> None:
    wide = SymbolicMap(DataType.BFLOAT16, A, (K, M), (K * 2,), (72, 128), swizzle=Swizzle.B128)
    verdict = judge_domain(wide, ShapeDomain.of(*SIZES, "K % 8 == 0"))
    assert verdict.nowhere
    assert {v.rule for v in verdict.reasons} == {"TMA019"}


def test_a_plan_is_legal_once_its_condition_is_assumed() -> None:
    access = TileAccess(bf16, (M, K), (sym("a.stride0"), 1), A, (128, 64))
    ((conditional, _), *_) = candidates(access).conditional
    answer = plan(access, Facts().assume(conditional.guard))
    assert isinstance(answer, Legal)
    assert answer.fields.guard == TRUE


def test_text_and_expressions_make_the_same_domain() -> None:
    assert ShapeDomain.of("M >= 1").facts.bounds == ShapeDomain.of(M >= 1).facts.bounds == {"M": (1, None)}
    assert ShapeDomain.of("1 <= M", "M < 9").facts.bounds == {"M": (1, 8)}
    assert ShapeDomain.of("s == 1").facts.equal == {"s": 1}
    assert ShapeDomain.of("K % 8 == 0", "K % 12 == 0").facts.divisors == {"K": 24}
    assert ShapeDomain.of().constraint == TRUE

"""Products of a step that stay in flight side by side, and its vectors in stages, by tensor copies."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler import differential
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.diag import TilewrightError
from tilewright.ops import kernels
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import exprs
from tilewright.transport.protocol import protocols_of
from tilewright.validate.tile_to_transport.compare import compare
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(11)
TWO = Candidate(2, stages=2)
SUMS = {"lse": "f32", "delta": "f32"}


def lowered(width: int = 64, align: int = 16, **keywords: object) -> p.Lowered:
    found = p.lower(kernels.attention_key_gradients(width), TWO, "bf16", align, SUMS, **{"bq": 64, **keywords})
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def pending(kernel: t.Kernel) -> list[int]:
    """How many groups each wait leaves in flight."""
    return [op.pending.data for op in kernel.walk() if isinstance(op, a.WgmmaWait)]


def vector_copies(kernel: t.Kernel) -> list[a.TmaLoad]:
    read = {op.shared for op in kernel.walk() if isinstance(op, t.SharedRead)}
    return [op for op in kernel.walk() if isinstance(op, a.TmaLoad) and op.shared in read]


def errors(kernel: t.Kernel, queries: int, keys: int, width: int = 64, *, causal: bool = False, seed: int = 0) -> float:
    """The error of dk and dv, beside float64; sums of rows beyond the tensors' ends are poisoned."""
    q, do = (RNG.normal(size=(1, 2, queries, width)).astype(ml_dtypes.bfloat16) for _ in range(2))
    k, v = (RNG.normal(size=(1, 2, keys, width)).astype(ml_dtypes.bfloat16) for _ in range(2))
    wide = [x.astype(np.float64) for x in (do, q, k, v)]
    x = wide[1] @ wide[2].swapaxes(2, 3) / np.sqrt(width)
    x = np.where(np.tri(queries, keys, dtype=bool) | (not causal), x, -np.inf)
    lse = np.log(np.exp(x).sum(-1))
    weights = np.exp(x - lse[..., None])
    delta = (wide[0] * (weights @ wide[3])).sum(-1)
    ds = weights * (wide[0] @ wide[3].swapaxes(2, 3) - delta[..., None]) / np.sqrt(width)
    exact = ds.swapaxes(2, 3) @ wide[1], weights.swapaxes(2, 3) @ wide[0]
    sums = [np.full((1, 2, -(-queries // 4) * 4 + 64), np.nan, np.float32)[:, :, :queries] for _ in range(2)]
    sums[0][...], sums[1][...] = lse, delta
    found = [np.full((1, keys, 2, width), np.nan, ml_dtypes.bfloat16) for _ in range(2)]
    named = {"do": do, "q": q, "k": k, "v": v, "lse": sums[0], "delta": sums[1], "dk": found[0], "dv": found[1]}
    simulate.run(kernel, named, {"scale": width**-0.5}, seed=seed, grid_size=1 + seed % 2)
    whole = np.linalg.norm(exact)  # of both: the gradient of a single key is 0
    return float(np.linalg.norm(np.array(found).astype(np.float64).swapaxes(2, 3) - np.array(exact)) / whole)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(64, 128), (1, 1), (65, 129), (63, 127), (200, 140)])
def test_gradients_are_those_of_float64(queries: int, keys: int, causal: bool) -> None:
    kernel = lowered(causal=causal).scheduled.kernel
    for seed in range(2):
        assert errors(kernel, queries, keys, causal=causal, seed=seed) < 1e-2


def test_sums_run_while_operands_are_computed() -> None:
    """In whole steps scores are waited for with one product behind them, and each sum with none or one; steps at the
    end wait for each product alone."""
    kernel = lowered().scheduled.kernel
    assert pending(kernel) == [1, 1, 1, 0, *[0] * 4]


def test_what_is_waited_for_at_once() -> None:
    """Steps of twice as many queries leave no registers; the gradient of queries adds one product, its last, to a
    fragment, under which nothing is computed."""
    assert set(pending(lowered(bq=128).scheduled.kernel)) == {0}
    assert set(pending(lowered(128, bq=64).scheduled.kernel)) == {0, 1}
    found = p.lower(kernels.attention_query_gradient(64), TWO, "bf16", 16, SUMS)
    assert not isinstance(found, Refused)
    assert set(pending(found.scheduled.kernel)) == {0}


def test_vectors_are_brought_by_tensor_copies() -> None:
    copies = vector_copies(lowered().scheduled.kernel)
    assert {op.box_bytes.data for op in copies} == {256}
    assert len({op.shared for op in copies}) == 2


def test_vectors_of_192_bytes_are_copied_by_threads() -> None:
    """A tensor copy begins at a multiple of 128 bytes in shared memory: stages of 48 f32 do not, those of 32 do."""
    for rows, by_threads in ((32, False), (48, True)):
        kernel = lowered(bq=rows).scheduled.kernel
        assert bool(vector_copies(kernel)) is not by_threads
        assert any(isinstance(op, a.CpAsync) for op in kernel.walk()) is by_threads
        assert errors(kernel, 70, 130) < 1e-2


@pytest.mark.parametrize("keywords", [{}, {"causal": True}, {"bq": 48}, {"bq": 128}], ids=str)
def test_they_are_proved(keywords: dict[str, object]) -> None:
    found = lowered(**keywords)  # pyright: ignore[reportArgumentType]
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    assert not compare(found.tile, found.scheduled.kernel)
    assert proved(found.scheduled.kernel)


def proved(kernel: t.Kernel) -> bool:
    try:
        return all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))
    except TilewrightError:
        return False


@pytest.mark.slow
def test_code_assembles_and_does_what_the_ir_does() -> None:
    kernel = lowered().scheduled.kernel
    emitted = emit_kernel(kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(kernel, assembled.ptx) == ()
    found = differential.run_differential_test(kernel, assembled.ptx, recipe([kernel]))
    assert found.launches
    assert not found.differences


def _shift_coordinate(kernel: t.Kernel) -> None:
    for op in vector_copies(kernel):
        first, *rest = op.coords
        op.attributes["coords"] = exprs([first.expr + 1, *(c.expr for c in rest)])


def _shift_place(kernel: t.Kernel) -> None:
    for op in vector_copies(kernel):
        op.attributes["offset"] = ExprAttr.of(op.offset.expr + 128)


def _shift_read(kernel: t.Kernel) -> None:
    for op in kernel.walk():
        if isinstance(op, t.SharedRead):
            op.attributes["offset"] = ExprAttr.of(op.offset.expr + 2)


@pytest.mark.parametrize("bug", [_shift_coordinate, _shift_place, _shift_read])
def test_another_element_is_refuted(bug: Callable[[t.Kernel], None]) -> None:
    found = lowered()
    bug(found.scheduled.kernel)
    assert not isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)


def _no_fence(kernel: t.Kernel) -> None:
    for op in [op for op in kernel.walk() if isinstance(op, a.FenceProxyAsync)]:
        if isinstance(op.next_op, a.NamedBarrierSync) and isinstance(op.parent_op(), t.For):
            op.detach()


def _no_barrier(kernel: t.Kernel) -> None:
    for op in [op for op in kernel.walk() if isinstance(op, a.FenceProxyAsync)]:
        if isinstance(op.next_op, a.NamedBarrierSync) and isinstance(op.parent_op(), t.For):
            op.next_op.detach()


def _wait_for_one_less(kernel: t.Kernel) -> None:
    """The first wait of a step leaves both products in flight whose results are needed."""
    first = next(op for op in kernel.walk() if isinstance(op, a.WgmmaWait))
    first.attributes["pending"] = type(first.pending)(first.pending.data + 1)


@pytest.mark.parametrize("bug", [_no_fence, _no_barrier, _wait_for_one_less])
def test_what_is_left_out_is_noticed(bug: Callable[[t.Kernel], None]) -> None:
    kernel = lowered().scheduled.kernel
    assert proved(kernel)
    bug(kernel)
    assert not proved(kernel)

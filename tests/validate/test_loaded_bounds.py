"""Transport IR against Tile IR of streams whose bounds are loaded: attention over lengths and over packed sequences.

In each of these texts a bound, a step, a row or a comparison is another one, for all roles alike."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

import pytest

from examples import ragged
from support.lowered import lowered
from tilewright.lang.params import KernelFunction
from tilewright.ops import kernels
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.transport.text import transport_kernel
from tilewright.validate.tile_to_transport.compare import compare

ROWS = dict.fromkeys("qkvo", "bf16")
OFFSETS = {"q_offsets": "i32", "k_offsets": "i32"}
PLACES = {"offsets": "i32", "before": "i32", "behind": "i32"}
LEFT_OUT = frozenset({"sinks", "lse"})
USED = frozenset({"q_used", "k_used"})
GRADIENTS = {"q": "bf16", "k": "bf16", "v": "bf16", "do": "bf16", "dq": "bf16", "lse": "f32", "delta": "f32"}
KERNELS: dict[str, tuple[KernelFunction, dict[str, str], dict[str, Hashable]]] = {
    "lengths": (ragged.attention_over_lengths, {"lengths": "i32", **ROWS}, {}),
    "varlen": (kernels.varlen_attention(128).without(LEFT_OUT | USED), {**OFFSETS, **ROWS}, {"causal": True}),
    "packed": (kernels.packed_attention(128).without(LEFT_OUT), {**PLACES, **ROWS}, {"causal": True}),
    "packed 64": (kernels.packed_attention(128).without(LEFT_OUT), {**PLACES, **ROWS}, {"causal": True, "bq": 64}),
    "gradient": (kernels.varlen_query_gradient(128).without(USED), {**OFFSETS, **GRADIENTS}, {"causal": True}),
}


@cache
def both(name: str) -> tuple[tile.Kernel, t.Kernel]:
    """Both IRs of a kernel."""
    kernel, dtypes, keywords = KERNELS[name]
    return list(lowered(kernel, dtypes, keywords=keywords).values())[-1]


@pytest.mark.parametrize("name", KERNELS)
def test_streams_with_loaded_bounds_store_what_they_say(name: str) -> None:
    assert compare(*both(name)) == ()


WRONG = {
    "a step more without comparisons": ("lengths", "min(T, $b0) // 128)", "min(T, $b0) // 128 + 1)"),
    "a step less": (
        "lengths",
        'end = #tile.expr<"(min(T, $b0) + 127) // 128">',
        'end = #tile.expr<"min(T, $b0) // 128">',
    ),
    "a step twice": ("lengths", "max($k0_full, 1)", "max($k0_full - 1, 1)"),
    "a step that is left out": ("lengths", "max($k0_full, 1)", "max($k0_full + 1, 1)"),
    "a first step without keys": (
        "lengths",
        'end = #tile.expr<"min((min(T, $b0) + 127) // 128, 1)">',
        'end = #tile.expr<"1">',
    ),
    "a last step without keys": ("lengths", "max((min(T, $b0) + 127) // 128 - 1, 0)", "(min(T, $b0) + 127) // 128 - 1"),
    "keys behind the length": ("lengths", "($tid % 4)*2 < min(T, $b0)", "($tid % 4)*2 < T"),
    "a key too many": ("lengths", "($tid % 4)*2 < min(T, $b0)", "($tid % 4)*2 <= min(T, $b0)"),
    "another length": ("lengths", '{coords = [#tile.expr<"$p0">], guard', '{coords = [#tile.expr<"$p0 + 1">], guard'),
    "the late tile of this step": ("lengths", "1073741696", "1073741824"),
    "the row behind": ("lengths", "min(T, $b0) + 1073741824", "min(T, $b0) + 1073741825"),
    "a row before the first": ("lengths", "min(T, $b0) + 1073741824", "min(T, $b0) + 1073741823"),
    "steps that are partly masked": ("varlen", "- 8372224, 0)", "- 8372223, 0)"),
    "the key behind the last query": ("varlen", "($b11 + $b5 - $b9 + 1) // 128", "($b11 + $b5 - $b9 + 2) // 128"),
    "a distance below the least": ("varlen", "$b11 - 1) + 1, 0)", "$b11) + 1, 0)"),
    "a distance above the greatest": ("varlen", "-$b11 + 2143289343", "-$b11 + 2143289344"),
    "a sum above the greatest": ("varlen", "-$b11 - $b5 + 3219128192", "-$b11 - $b5 + 3219128193"),
    "a first step without a comparison": ("varlen", '"min($k2_full, max(', '"min(max('),
    "two first steps": ("varlen", '"max($k2_first, 0)"', '"0"'),
    "no first step with comparisons": ("varlen", '"max($k2_first, 0)"', '"1"'),
    "a step of a sequence twice": ("varlen", '"max($k2_full, 1)"', '"max($k2_full - 1, 1)"'),
    "a key of the next sequence": ("varlen", "($tid % 4)*2 < min(N, $b10)", "($tid % 4)*2 <= min(N, $b10)"),
    "the other side of the diagonal": ("varlen", "tile.compare <le>", "tile.compare <gt>"),
    "keys from the one before": ("varlen", '"$b9 + $k2*128"', '"$b9 + $k2*128 - 1"'),
    "rows of a step before": ("varlen", "1073741696", "1073741568"),
    "a step more of a tile": ("packed", "(-$b0 + 1) // 64 + $p0*2", "(-$b0 + 1) // 64 + $p0*2 + 1"),
    "a key behind the tile": ("packed", "(-$b0 + 1) // 64", "(-$b0 + 2) // 64"),
    "a step more of a small tile": ("packed 64", "(-$b0 + 1) // 64 + $p0", "(-$b0 + 1) // 64 + $p0 + 1"),
    "no comparison with the first key": ("packed 64", "tile.compare <gt>", "tile.compare <le>"),
    "a step more of a gradient": ("gradient", "- 8372224, 0)", "- 8372223, 0)"),
    "a sum of a gradient that wraps": ("gradient", "-$b11 - $b5 + 3219128192", "-$b11 - $b5 + 3219128193"),
}
"""The kernel, what stands in its text, and what takes its place wherever it stands."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_bound_is_refused(name: str) -> None:
    kernel, old, new = WRONG[name]
    source, transport = both(kernel)
    text = str(transport)
    assert old in text
    assert compare(source, transport_kernel(text.replace(old, new)))


@pytest.mark.parametrize("kernel", ["lengths", "varlen"])
def test_a_bound_that_roles_hold_apart_is_refused(kernel: str) -> None:
    """The producer names what it has loaded before it is clamped."""
    source, transport = both(kernel)
    name, changed = {"lengths": "$b0", "varlen": "$b10"}[kernel], transport_kernel(str(transport))
    bind = next(op for op in changed.walk() if isinstance(op, t.Bind) and op.symbol.data == name)
    assert bind.parent is not None
    loads = [op for op in bind.parent.ops if isinstance(op, t.Load) and op.is_before_in_block(bind)]
    bind.operands[0] = loads[-1].buffer
    assert compare(source, changed)

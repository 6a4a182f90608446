"""Every example kernel, traced and evaluated in NumPy at odd shapes, agrees with its reference in float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from support.example_cases import EXAMPLES, EXAMPLES_BY_NAME, Example, load
from support.pytorch import installed
from support.tile_evaluator import evaluate
from tilewright.base.dtypes import DType, bf16, f16, f32
from tilewright.lang.params import KernelFunction
from tilewright.lang.signature import Signature
from tilewright.tile.tracer import trace

CASES = [(e, s) for e in EXAMPLES_BY_NAME.values() for s in e.shapes]
TOLERANCE = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


def name_of(value: object) -> str:
    if isinstance(value, Example):
        return value.name
    return "x".join(str(v) for v in value.values()) if isinstance(value, Mapping) else str(value)


@pytest.mark.parametrize("dtype", [f32, bf16, f16], ids=str)
@pytest.mark.parametrize(("example", "extents"), CASES, ids=name_of)
def test_agrees_with_reference(example: Example, extents: Mapping[str, int], dtype: DType) -> None:
    signature = Signature.of(example.tensor_dtypes(dtype), keywords=example.keywords)
    arrays, expected = example.arrays(extents, dtype)
    stores = evaluate(trace(example.kernel, signature), arrays, example.scalars)
    for name, value in expected.items():
        assert (stores[name] == 1).all(), f"{name} is stored {np.unique(stores[name])} times"
        np.testing.assert_allclose(
            arrays[name].astype(np.float64), value, rtol=TOLERANCE[dtype.name], atol=TOLERANCE[dtype.name]
        )
    for name in set(arrays) - set(expected):
        assert not stores[name].any()


@pytest.mark.parametrize("extent", [1, 5, 64])
def test_any_extent_of_the_schedule_gives_the_same(extent: int) -> None:
    for example in (EXAMPLES_BY_NAME["softmax_streamed"], EXAMPLES_BY_NAME["layer_norm"]):
        kernel = example.kernel
        signature = Signature.of(example.tensor_dtypes(f32), extents=dict.fromkeys(kernel.autos, extent))
        arrays, expected = example.arrays({"M": 7, "N": 13}, f32)
        evaluate(trace(kernel, signature), arrays, example.scalars)
        np.testing.assert_allclose(arrays["y"], expected["y"], rtol=2e-5, atol=2e-5)


def test_leading_minus_infinities_do_not_affect_a_streamed_row() -> None:
    example = EXAMPLES_BY_NAME["softmax_streamed"]
    arrays, _ = example.arrays({"M": 2, "N": 40}, f32)
    arrays["x"][:, :20] = -np.inf
    evaluate(trace(example.kernel, Signature.of(example.tensor_dtypes(f32))), arrays)
    e = np.exp(arrays["x"] - arrays["x"].max(1, keepdims=True))
    np.testing.assert_allclose(arrays["y"], e / e.sum(1, keepdims=True), rtol=2e-5)


def test_every_example_file_has_a_case() -> None:
    kernels = {
        name
        for path in EXAMPLES.glob("*.py")
        if path.stem != "expert_parallel" or installed()  # it imports PyTorch
        for name, value in vars(load(path.stem)).items()
        if isinstance(value, KernelFunction)
    }
    others = {  # in tests of their own; grouped_matmul in test_ragged
        name
        for module in (
            "grouped_matmul",
            "indexing",
            "ragged",
            "scan",
            "topk",
            "dropout",
            "histogram",
            "moe",
            "packed_rows",
            "paged_attention",
            "varlen_attention",
            "decode",
        )
        for name, value in vars(load(module)).items()
        if isinstance(value, KernelFunction)
    }
    assert kernels - others == set(EXAMPLES_BY_NAME)

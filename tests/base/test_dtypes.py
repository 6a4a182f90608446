from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tilewright.base.dtypes import (
    DTYPES,
    DType,
    DTypeKind,
    bf16,
    dtype_named,
    dtypes_near,
    e4m3,
    e5m2,
    f16,
    f32,
    i32,
    promote,
)

NUMPY = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "bool": np.bool_,
}


@pytest.mark.parametrize("name", NUMPY)
def test_storage_and_precision_agree_with_numpy(name: str) -> None:
    ours, theirs = DTYPES[name], np.dtype(NUMPY[name])
    assert ours.bytes == theirs.itemsize
    if ours.is_float:
        assert 2.0 ** (1 - ours.digits) == float(ml_dtypes.finfo(theirs).eps)


@pytest.mark.parametrize("spelling", ["bf16", "bfloat16", "torch.bfloat16"])
def test_names(spelling: str) -> None:
    assert dtype_named(spelling) is bf16


def test_unknown_name() -> None:
    assert dtype_named("complex64") is None


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES.values(), repeat=2)))
def test_promotion_is_a_join(a: object, b: object) -> None:
    joined = promote(a, b)  # type: ignore[arg-type]
    assert joined == promote(b, a)  # type: ignore[arg-type]
    assert promote(joined, a) == joined  # type: ignore[arg-type]


INTEGERS = [name for name, dtype in DTYPES.items() if dtype.is_int]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(INTEGERS, repeat=2)))
def test_integers_are_promoted_as_in_numpy(a: str, b: str) -> None:
    assert np.dtype(NUMPY[promote(DTYPES[a], DTYPES[b]).name]) == np.promote_types(NUMPY[a], NUMPY[b])


@pytest.mark.parametrize("name", INTEGERS)
def test_ends_of_integers(name: str) -> None:
    info = np.iinfo(NUMPY[name])
    assert DTYPES[name].integers == (info.min, info.max)
    assert all(DTYPES[name].holds(DTYPES[o]) == np.can_cast(NUMPY[o], NUMPY[name]) for o in INTEGERS)


def test_promotion_of_mixed_kinds() -> None:
    assert promote(f16, bf16) is f32
    assert promote(i32, f16) is f16
    assert promote(DTYPES["bool"], i32).kind is DTypeKind.INT


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bfloat", (bf16,)),
        ("torch.bfloat", (bf16,)),
        ("fp16", (f16,)),
        ("hlaf", (f16,)),
        ("float8", (e4m3, e5m2)),
        ("float64", ()),  # no typing error, and none of these
        ("uint", (DTYPES["u8"], DTYPES["u16"], DTYPES["u32"])),
        ("i128", ()),
        ("", ()),
    ],
)
def test_what_a_misspelt_name_was_meant_for(name: str, meant: tuple[DType, ...]) -> None:
    assert dtype_named(name) is None
    assert dtypes_near(name) == meant

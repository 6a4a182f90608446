"""NumPy arguments, which run in the simulator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilewright.base.dtypes import (
    STORED,
    DType,
    bf16,
    bool_,
    e4m3,
    e5m2,
    f16,
    f32,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
)
from tilewright.diag import fail, type_shown
from tilewright.jit import pytorch
from tilewright.runtime.arguments import TensorDescription, compact

_PYTHON_TYPES: dict[DType, type[Any]] = {
    f32: np.float32,
    f16: np.float16,
    bf16: ml_dtypes.bfloat16,
    e4m3: ml_dtypes.float8_e4m3fn,
    e5m2: ml_dtypes.float8_e5m2,
    i8: np.int8,
    i16: np.int16,
    i32: np.int32,
    i64: np.int64,
    u8: np.uint8,
    u16: np.uint16,
    u32: np.uint32,
    bool_: np.bool_,
}
_DTYPES = {np.dtype(python).str + python.__name__: dtype for dtype, python in _PYTHON_TYPES.items()}


Array: TypeAlias = npt.NDArray[Any]


def is_array(value: object) -> TypeGuard[Array]:
    """The value is a NumPy array, of a subclass too: a matrix, a file that is mapped."""
    return isinstance(value, np.ndarray)


def empty(like: Array, shape: tuple[int, ...], dtype: DType | None = None, *, zero: bool) -> Array:
    """A row-major array, of the dtype of ``like`` where none is given."""
    return (np.zeros if zero else np.empty)(shape, like.dtype if dtype is None else _PYTHON_TYPES[dtype])


def of_tensor(tensor: Any) -> Array:
    """The memory of PyTorch's tensor on the CPU as an array; NumPy itself has no bf16 and no 8-bit floats."""
    plain = tensor.detach()
    pytorch.require_strided(plain)
    if plain.is_neg():
        fail(
            "JIT003",
            title="a view whose elements count negated",
            found=f"a view of shape {tuple(plain.shape)} with its negative bit set",
            required="a tensor whose memory holds its elements",
            help="pass x.resolve_neg()",
        )
    narrow = _NARROW.get(str(plain.dtype))
    if narrow is None:
        return plain.resolve_conj().numpy()  # complex elements, that ``describe`` refuses
    bits, dtype = narrow
    return plain.view(getattr(sys.modules["torch"], bits)).numpy().view(dtype)


_NARROW = {
    "torch.bfloat16": ("int16", ml_dtypes.bfloat16),
    "torch.float8_e4m3fn": ("int8", ml_dtypes.float8_e4m3fn),
    "torch.float8_e5m2": ("int8", ml_dtypes.float8_e5m2),
}


def only_arrays(tensors: Mapping[str, object]) -> dict[str, Array]:
    """Arguments that ``describe`` has accepted, as arrays with the strides that it reports."""
    return {name: _with_strides(value) for name, value in tensors.items() if is_array(value)}


def describe(name: str, value: object) -> TensorDescription:
    """An array as the runtime describes tensors; JIT002 for anything else, JIT003 for dtypes that no kernel has."""
    if not is_array(value):
        fail(
            "JIT002",
            found=f"{name} is {type_shown(value)} beside NumPy arrays",
            required="all tensors in one GPU's memory, or all NumPy arrays",
            help=f"annotate {name} with `| None`, or give it None as default, if calls may leave it out"
            if value is None
            else f"convert it: np.asarray({name})",
        )
    if isinstance(value, np.ma.MaskedArray):
        fail(
            "JIT003",
            title="an array with a mask",
            found=f"{name} is {type_shown(value)}",
            required="an array all of whose elements count",
            help=f"pass {name}.filled(value), or {name}.data with the mask as a tensor of its own",
        )
    value = _plain(value)
    dtype = _DTYPES.get(value.dtype.str + value.dtype.type.__name__)
    if dtype is None:
        fail("JIT003", found=f"{name} of {value.dtype}", required=" ".join(map(str, STORED)))
    if any(s % value.itemsize for s in value.strides):
        fail("JIT003", found=f"{name} with byte strides {value.strides}", required="strides of whole elements")
    value = _with_strides(value)
    address = int(value.__array_interface__["data"][0])
    if address % value.itemsize:
        fail(
            "JIT003",
            title="an array that is not aligned",
            found=f"{name} at {address:#x}",
            required=f"an address that its {value.itemsize} bytes an element divide",
            help=f"pass a copy: {name}.copy()",
        )
    return TensorDescription(
        address=address,
        shape=value.shape,
        strides=tuple(s // value.itemsize for s in value.strides),
        dtype=dtype,
        device=None,
        read_only=not value.flags.writeable,
    )


def _plain(value: Array) -> Array:
    """The same memory as NumPy's own class has it: a matrix would stay of rank 2 whatever is taken of it, and what a
    stranger's class says of itself may be anything."""
    return np.ndarray.view(value, np.ndarray)


def _with_strides(value: Array) -> Array:
    """The plain array; without elements, whose strides NumPy says are 0, with those of a compact one, so that it needs
    no kernel of its own. Nothing ever uses them."""
    value = _plain(value)
    if value.size:
        return value
    bits = value.view(f"u{value.itemsize}")  # NumPy has no strides for some of the dtypes that others add
    strided = np.lib.stride_tricks.as_strided(bits, strides=[s * value.itemsize for s in compact(value.shape)])
    return strided.view(value.dtype)

"""Tensor arguments as plain numbers, whatever library they come from.

Three protocols are read, in this order: PyTorch's methods (``data_ptr``, ``stride``, ``shape``, ``dtype``), the CUDA
Array Interface (version 3), and DLPack (the unversioned capsule, as every producer gives it on request).
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from tilewright.base.dtypes import (
    DTYPES,
    DType,
    bf16,
    bool_,
    dtype_named,
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
from tilewright.diag import TilewrightError, fail, shown


@dataclass(frozen=True)
class TensorDescription:
    """One tensor argument. ``strides`` count elements; ``device`` is the CUDA ordinal, None when not known yet.

    ``on_cpu`` says that the owner places it elsewhere; ``producer`` is a stream whose work must come first;
    ``owner`` keeps the memory alive until the launch is queued.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: int | None
    on_cpu: bool = False
    read_only: bool = False
    producer: int | None = None
    owner: object = None


def describe(name: str, value: object, stream: int) -> TensorDescription:
    """Read ``value``, the argument of parameter ``name``; RUN001 if it speaks none of the three protocols."""
    try:
        return _described(name, value, stream)
    except TilewrightError:
        raise
    except Exception as error:  # of a stranger's class
        _refuse(name, f"a {_kind(value)} that can't be read ({type(error).__name__}: {shown(str(error), 200)})")


def _described(name: str, value: object, stream: int) -> TensorDescription:
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):
        return _from_torch(name, value)
    interface = getattr(value, "__cuda_array_interface__", None)
    if isinstance(interface, dict):
        return _from_array_interface(name, cast("dict[str, Any]", interface), value)
    if not (hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")):
        _refuse(name, f"a {_kind(value)}")
    return _from_dlpack(name, value, stream)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


# -- PyTorch's methods ----------------------------------------------------------------------------------------------


def _from_torch(name: str, tensor: Any) -> TensorDescription:
    dtype = dtype_named(str(tensor.dtype))
    if dtype is None:
        _unsupported(name, str(tensor.dtype))
    if _asked(tensor, "is_neg"):  # of x.conj().imag: memory holds the elements before they are negated
        fail(
            "RUN001",
            title="a view whose elements count negated",
            found=f"{name} is a view with its negative bit set",
            required="a tensor whose memory holds its elements",
            help=f"pass {name}.resolve_neg()",
        )
    if _asked(tensor, "_is_zerotensor"):
        _refuse(name, "a tensor of zeros that has no memory")
    device = getattr(tensor, "device", None)
    kind = getattr(device, "type", None)
    index = getattr(device, "index", None)
    return TensorDescription(
        int(tensor.data_ptr()),
        tuple(int(n) for n in tensor.shape),
        tuple(int(s) for s in tensor.stride()),
        dtype,
        index if isinstance(index, int) else None,
        on_cpu=kind is not None and kind != "cuda",
        owner=tensor,
    )


def _asked(tensor: Any, method: str) -> bool:
    """What a method of PyTorch's tensors says, which others with ``data_ptr`` and ``stride`` may not have."""
    ask = getattr(tensor, method, None)
    return ask is not None and bool(ask())


# -- CUDA Array Interface -------------------------------------------------------------------------------------------

_TYPESTR = {
    "f4": f32,
    "f2": f16,
    "b1": bool_,
    "i1": i8,
    "i2": i16,
    "i4": i32,
    "i8": i64,
    "u1": u8,
    "u2": u16,
    "u4": u32,
}


def _from_array_interface(name: str, interface: dict[str, Any], owner: object) -> TensorDescription:
    try:
        shape = tuple(operator.index(n) for n in interface["shape"])
        typestr = str(interface["typestr"])
        address, read_only = interface["data"]
        stride_bytes = interface.get("strides")
        stride_bytes = None if stride_bytes is None else tuple(operator.index(s) for s in stride_bytes)
        producer = interface.get("stream")
        producer = None if producer is None else operator.index(producer)
        address = operator.index(address or 0)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        _refuse(name, f"a __cuda_array_interface__ that can't be read ({error!r:.200})")
    _check_shape(name, shape, address)
    dtype = _TYPESTR.get(typestr[1:]) if typestr[:1] in "<|" else None
    if dtype is None:
        _unsupported(name, typestr)
    if interface.get("mask") is not None:
        _refuse(name, "a masked array")
    strides = compact(shape)
    if stride_bytes is not None:
        if len(stride_bytes) != len(shape):
            _refuse(name, f"a __cuda_array_interface__ with {len(stride_bytes)} strides for {len(shape)} dimensions")
        if any(s % dtype.bytes for s in stride_bytes):
            _refuse(name, f"strides of {stride_bytes} bytes, not whole elements of {dtype}")
        strides = tuple(s // dtype.bytes for s in stride_bytes)
    return TensorDescription(
        address,
        shape,
        strides,
        dtype,
        None,
        read_only=bool(read_only),
        producer=producer,
        owner=owner,
    )


# -- DLPack ---------------------------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h with its device and dtype spelled out."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_CUDA, _CUDA_HOST, _CUDA_MANAGED = 2, 3, 13  # DLDeviceType
_DLPACK_DTYPES = {
    (0, 8): i8,
    (0, 16): i16,
    (0, 32): i32,
    (0, 64): i64,
    (1, 8): u8,
    (1, 16): u16,
    (1, 32): u32,
    (2, 16): f16,
    (2, 32): f32,
    (4, 16): bf16,
    (6, 8): bool_,
    (10, 8): e4m3,
    (12, 8): e5m2,
}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _from_dlpack(name: str, value: Any, stream: int) -> TensorDescription:
    try:
        kind, _ = value.__dlpack_device__()
        capsule = value.__dlpack__(stream=stream) if int(kind) in (_CUDA, _CUDA_MANAGED) else None
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        _refuse(name, f"an array that DLPack can't hand over ({error!r:.200})")
    if int(kind) not in (_CUDA, _CUDA_MANAGED):
        where = "page-locked host memory" if int(kind) == _CUDA_HOST else f"DLPack device type {int(kind)}"
        fail("RUN011", title=f"{name} is not on a GPU", found=f"{name} is in {where}", required="CUDA device memory")
    try:
        # ManagedTensor begins with the DLTensor; the capsule keeps it alive and frees it, since it is never renamed
        tensor = _DLTensor.from_address(_get_pointer(capsule, b"dltensor"))
    except (ValueError, TypeError):
        _refuse(name, "a DLPack capsule of another version than was asked for")
    dtype = _DLPACK_DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        _unsupported(name, f"DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else compact(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return TensorDescription(address, shape, strides, dtype, int(tensor.device_id), owner=(value, capsule))


def _check_shape(name: str, shape: tuple[int, ...], address: int) -> None:
    if any(not 0 <= n < 1 << 63 for n in shape) or not 0 <= address < 1 << 64:
        _refuse(name, f"an array of shape {shape} at {address}")


# -- shared ---------------------------------------------------------------------------------------------------------


def compact(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _unsupported(name: str, dtype: str) -> NoReturn:
    fail("RUN004", found=f"{name} has dtype {dtype}", required=f"one of {', '.join(DTYPES)}")


def _refuse(name: str, found: str) -> NoReturn:
    fail(
        "RUN001",
        found=f"{name} is {found}",
        required="data_ptr/stride/shape/dtype, __cuda_array_interface__ or __dlpack__ on a CUDA device",
    )

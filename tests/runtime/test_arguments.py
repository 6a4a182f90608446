"""The three ways a tensor describes itself."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.artifacts import scale
from support.fake_driver import FakeDriver, FakeTensor
from tilewright.base.dtypes import DType, bf16, f16, f32, i8, i32, i64
from tilewright.diag import TilewrightError
from tilewright.runtime import load
from tilewright.runtime.arguments import compact, describe

X, Y = 0x1000, 0x9000_0000


def refused(code: str, *words: str) -> Any:
    return pytest.raises(TilewrightError, match=rf"(?s)error\[{code}\].*" + ".*".join(words))


class ArrayInterface:
    def __init__(self, **fields: Any) -> None:
        base = {"shape": (2, 3), "typestr": "<f4", "data": (X, False), "version": 3}
        self.__cuda_array_interface__ = {**base, **fields}


def test_array_interface() -> None:
    d = describe("x", ArrayInterface(), 1)
    assert (d.address, d.shape, d.strides, d.dtype) == (X, (2, 3), (3, 1), f32)
    d = describe("x", ArrayInterface(strides=(4, -8), typestr="<f2", data=(X, True), stream=7), 1)
    assert (d.strides, d.dtype, d.read_only, d.producer) == ((2, -4), f16, True, 7)


@pytest.mark.parametrize("typestr", [">f4", "<f8", "<c8", "|V2"])
def test_array_interface_dtypes(typestr: str) -> None:
    with refused("RUN004", "x has dtype"):
        describe("x", ArrayInterface(typestr=typestr), 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"strides": (12, 3)},
        {"data": None},
        {"mask": object()},
        {"shape": 3},
        {"strides": (4,)},
        {"strides": 4},
        {"strides": ("x", 4)},
        {"shape": (2, -3)},
        {"shape": (2, 2**70)},
        {"data": ("x", False)},
        {"data": (-1, False)},
        {"stream": "x"},
    ],
)
def test_array_interface_that_cannot_be_described(fields: dict[str, Any]) -> None:
    with refused("RUN001"):
        describe("x", ArrayInterface(**fields), 1)


# -- DLPack, from capsules built here byte by byte --------------------------------------------------------------------


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Dlpack:
    """A producer whose capsule says what the test says."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, **fields: Any) -> None:
        self.name = fields.pop("name", b"dltensor")
        self.streams: list[object] = []
        base = {"data": X, "device_type": 2, "device_id": 0, "dtype_code": 2, "dtype_bits": 32, "dtype_lanes": 1}
        self.tensor = DLTensor(ndim=len(shape), **{**base, **fields})
        self.tensor.shape = (ctypes.c_int64 * len(shape))(*shape)
        if strides is not None:
            self.tensor.strides = (ctypes.c_int64 * len(strides))(*strides)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.tensor.device_type, self.tensor.device_id)

    def __dlpack__(self, *, stream: object = None) -> object:
        self.streams.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), self.name, None)


def test_dlpack() -> None:
    producer = Dlpack((4, 5), (1, 4), byte_offset=64, device_id=3)
    d = describe("x", producer, 9)
    assert (d.address, d.shape, d.strides, d.dtype, d.device) == (X + 64, (4, 5), (1, 4), f32, 3)
    assert producer.streams == [9]
    assert describe("x", Dlpack((4, 5)), 1).strides == (5, 1)
    assert describe("x", Dlpack(()), 1).shape == ()


@pytest.mark.parametrize(
    ("code", "bits", "dtype"), [(4, 16, bf16), (2, 16, f16), (0, 32, i32), (0, 64, i64), (0, 8, i8)]
)
def test_dlpack_dtypes(code: int, bits: int, dtype: DType) -> None:
    assert describe("x", Dlpack((1,), dtype_code=code, dtype_bits=bits), 1).dtype == dtype


@pytest.mark.parametrize("fields", [{"dtype_bits": 64}, {"dtype_code": 5}, {"dtype_lanes": 4}])
def test_dlpack_dtypes_we_do_not_have(fields: dict[str, int]) -> None:
    with refused("RUN004"):
        describe("x", Dlpack((1,), **fields), 1)


@pytest.mark.parametrize(("kind", "word"), [(1, "device type 1"), (3, "page-locked"), (10, "device type 10")])
def test_dlpack_elsewhere(kind: int, word: str) -> None:
    with refused("RUN011", word):
        describe("x", Dlpack((1,), device_type=kind), 1)


def test_dlpack_capsule_of_another_version() -> None:
    with refused("RUN001", "another version"):
        describe("x", Dlpack((1,), name=b"dltensor_versioned"), 1)


def test_numpy_arrays_are_on_the_cpu() -> None:
    with refused("RUN011", "x is in DLPack device type 1"):
        describe("x", np.zeros(3, np.float32), 1)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 3), (1, 1)])
def test_compact_strides(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.int8)
    if array.size:
        assert compact(shape) == array.strides
    assert len(compact(shape)) == len(shape)


# -- launched through a program ----------------------------------------------------------------------------------------


@pytest.fixture
def producers() -> tuple[Any, Any]:
    x = ArrayInterface(shape=(8, 64), typestr="<f2", data=(X, False), stream=7)
    y = Dlpack((8, 64), data=Y, dtype_bits=16)
    return x, y


def f16_scale() -> Any:
    base = scale()
    x, y = (replace(p, dtype="f16") for p in base.parameters[:2])
    return replace(base, parameters=(x, y, *base.parameters[2:]))


def test_mixed_protocols_launch_once_bound(producers: tuple[Any, Any]) -> None:
    fake = FakeDriver(locations={X: 0})
    program = load(f16_scale(), fake)
    for n in range(3):
        program.launch((*producers, 1.0, n), stream=5)
        assert fake.launches[-1].words(2) == [X, Y]
        assert fake.launches[-1].i32(6) == n
    assert fake.kinds().count("kernel") == 1
    assert ("wait", 7, 5) in fake.events


def test_no_wait_for_the_launch_stream_itself(producers: tuple[Any, Any]) -> None:
    fake = FakeDriver(locations={X: 0})
    load(f16_scale(), fake).launch((*producers, 1.0, 1), stream=7)
    assert "wait" not in fake.kinds()


def test_memory_no_gpu_holds(producers: tuple[Any, Any]) -> None:
    with refused("RUN011", "no GPU holds"):
        load(f16_scale(), FakeDriver()).launch((*producers, 1.0, 1))


def test_read_only_outputs() -> None:
    fake = FakeDriver(locations={X: 0, Y: 0})
    x = ArrayInterface(shape=(8, 64), typestr="<f2", data=(X, True))
    y = ArrayInterface(shape=(8, 64), typestr="<f2", data=(Y, True))
    with refused("RUN019", "y is read-only"):
        load(f16_scale(), fake).launch((x, y, 1.0, 1))


def test_a_torch_like_without_a_device_is_looked_up() -> None:
    class Bare(FakeTensor):
        def __init__(self, address: int) -> None:
            super().__init__(address, (8, 64), dtype="float16")
            del self.device

    fake = FakeDriver(locations={X: 0, Y: 0})
    program = load(f16_scale(), fake)
    program.launch((Bare(X), Bare(Y), 1.0, 1))
    assert fake.launches[0].words(2) == [X, Y]


class Raising:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_what_raises_when_it_is_asked() -> None:
    program = load(scale(), FakeDriver())
    with refused("RUN001", "Raising that can't be read", "RuntimeError: 'data_ptr'"):
        program.launch((Raising(), FakeTensor(Y, (8, 64)), 2.0, 1))


def test_a_refusal_hides_the_error_that_it_explains() -> None:
    with pytest.raises(TilewrightError) as told:
        describe("x", Raising(), 1)
    assert told.value.__suppress_context__

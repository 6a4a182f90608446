"""The driver's file against a stand-in for the binding: statuses become diagnostics, fields reach the call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver as real

from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import DataType, Interleave, L2Promotion, OobFill, Swizzle
from tilewright.runtime import driver as ours
from tilewright.runtime.driver import Driver, LaunchShape, TensorMapFields


def refused(code: str, *words: str) -> Any:
    return pytest.raises(TilewrightError, match=rf"(?s)error\[{code}\].*" + ".*".join(words))


class Binding(SimpleNamespace):
    """Answers success unless told otherwise; classes and enumerations are the real binding's."""

    def __init__(self, **answers: Any) -> None:
        success = {
            "cuInit": lambda _: (0,),
            "cuDeviceGetCount": lambda: (0, 1),
            "cuGetErrorName": lambda status: (0, b"CUDA_ERROR_NAME"),
            "cuGetErrorString": lambda status: (0, b"its words"),
        }
        super().__init__(**{**success, **answers})

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> Binding:
    fake = Binding()
    monkeypatch.setattr(ours, "cuda", fake)
    return fake


def missing(_: int) -> Any:
    raise RuntimeError("libcuda.so.1 was not found\nsearched here and there")


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        ({"cuInit": missing}, "libcuda.so.1 was not found"),
        ({"cuInit": lambda _: (100,)}, r"CUDA_ERROR_NAME \(its words\)"),
        ({"cuDeviceGetCount": lambda: (0, 0)}, "sees no device"),
    ],
)
def test_no_driver(answers: dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "cuda", Binding(**answers))
    with refused("RUN013", word):
        Driver()


def test_a_failing_call_is_named(binding: Binding) -> None:
    driver = Driver()
    binding.cuLibraryLoadData = lambda *_: (200, None)
    with refused("RUN014", r"cuLibraryLoadData returned CUDA_ERROR_NAME \(its words\)"):
        driver.load_library(b"")


def test_capability_and_context(binding: Binding) -> None:
    names = real.CUdevice_attribute
    values = {
        names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9,
        names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0,
    }
    retained: list[int] = []
    binding.cuDeviceGetAttribute = lambda attribute, device: (0, values[attribute])
    binding.cuDevicePrimaryCtxRetain = lambda device: (retained.append(device), (0, 0x77))[1]
    driver = Driver()
    assert driver.capability(0) == (9, 0)
    assert (driver.context(0), driver.context(0)) == (0x77, 0x77)
    assert retained == [0]


def test_launch_configuration(binding: Binding) -> None:
    calls: list[tuple[Any, ...]] = []

    def launch(config: Any, function: Any, parameters: int, extra: int) -> tuple[int]:
        cluster = config.attrs[0].value.clusterDim if config.numAttrs else None
        size = (cluster.x, cluster.y, cluster.z) if cluster is not None else None
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        calls.append(
            (grid, config.blockDimX, config.sharedMemBytes, size, int(config.hStream), int(function), parameters)
        )
        return (0,)

    binding.cuLaunchKernelEx = launch
    driver = Driver()
    driver.prepare(0x55, LaunchShape((4, 2, 1), 128, (2, 1, 1), 4096), 0x99, 0x77)(8)
    driver.prepare(0x56, LaunchShape((1, 1, 1), 32, (1, 1, 1), 0), 0, 0x77)(1)
    assert calls == [
        ((4, 2, 1), 128, 4096, (2, 1, 1), 8, 0x55, 0x99),
        ((1, 1, 1), 32, 0, None, 1, 0x56, 0),
    ]


def test_a_thread_without_a_context_gets_one(binding: Binding) -> None:
    statuses = [201, 0, 201, 201]
    current: list[int] = []
    binding.cuLaunchKernelEx = lambda *_: (statuses.pop(0),)
    binding.cuCtxSetCurrent = lambda context: (current.append(context), (0,))[1]
    launch = Driver().prepare(0x55, LaunchShape((1, 1, 1), 32, (1, 1, 1), 0), 0, 0x77)
    launch(1)
    assert current == [0x77]
    with refused("RUN014", "cuLaunchKernelEx"):
        launch(1)


FIELDS = TensorMapFields(
    DataType.BFLOAT16,
    0x1000,
    (64, 6),
    (128,),
    (64, 4),
    (1, 1),
    Interleave.NONE,
    Swizzle.B128,
    L2Promotion.L2_256B,
    OobFill.NONE,
)


def test_tensor_map_fields_reach_the_driver(binding: Binding) -> None:
    asked: list[Any] = []

    def encode(*fields: Any) -> tuple[int, Any]:
        asked.extend(fields)
        return (0, real.CUtensorMap())

    binding.cuTensorMapEncodeTiled = encode
    assert Driver().encode_tensor_map(FIELDS) == bytes(128)
    kind, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill = asked
    assert kind == real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    assert (rank, address) == (2, 0x1000)
    assert [list(map(int, values)) for values in (dims, strides, box, steps)] == [[64, 6], [128], [64, 4], [1, 1]]
    assert swizzle == real.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
    assert promotion == real.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    assert (int(interleave), int(fill)) == (0, 0)


def test_a_refused_tensor_map(binding: Binding) -> None:
    binding.cuTensorMapEncodeTiled = lambda *_: (1, None)
    with refused("RUN020", "CUDA_ERROR_NAME", "strides_bytes"):
        Driver().encode_tensor_map(FIELDS)


def test_large_clusters_and_shared_memory_are_asked_for(binding: Binding) -> None:
    settings: list[tuple[str, int]] = []
    binding.cuLibraryGetKernel = lambda library, name: (0, real.CUkernel(0x5))
    binding.cuKernelSetAttribute = lambda a, value, kernel, device: (settings.append((a.name, value)), (0,))[1]
    driver = Driver()
    assert driver.kernel(3, "k", 0, LaunchShape((8, 1, 1), 32, (8, 1, 1), 0)) == 5
    assert settings == []
    driver.kernel(3, "k", 0, LaunchShape((16, 1, 1), 32, (16, 1, 1), 100))
    assert settings == [
        ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 100),
        ("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1),
    ]

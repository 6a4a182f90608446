"""The runtime on a real device: arguments, descriptors, workspace, streams, and the cost of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from ctypes import addressof, c_float, c_int, c_uint64, c_void_p
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings import nvrtc

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    AccessMode,
    Artifact,
    Copy,
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    KernelImage,
    Launch,
    ScalarArgument,
    TensorArgument,
    TensorMapArg,
    TensorPointer,
    Variant,
    WorkspacePointer,
)
from tilewright.base.dtypes import f32
from tilewright.base.expr import TRUE, Const, ceildiv, sym
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import DataType
from tilewright.runtime import load
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.driver import Driver

pytestmark = pytest.mark.gpu

M = sym("M")
ONE = Const(1)

AXPY = """
extern "C" __global__ void axpy(const float* x, float* y, float alpha, int m, int shift) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m) y[i] = alpha * x[i] + shift;
}
"""

ACCUMULATE = """
extern "C" __global__ void accumulate(const float* x, float* total, int m) {
  for (int i = threadIdx.x; i < m; i += blockDim.x) atomicAdd(total + i % 4, x[i]);
}
"""

TMA = """
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void tma(const __grid_constant__ Map map, float* out) {
  __shared__ alignas(128) float tile[32];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned t = (unsigned)__cvta_generic_to_shared(tile), b = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
    asm volatile("fence.proxy.async.shared::cta;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(b));
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2}], [%3];" ::
                 "r"(t), "l"(&map), "r"((int)blockIdx.x * 32), "r"(b) : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p; w: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
               " @!p bra w; }" ::"r"(b) : "memory");
  out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
}
"""


def cubin(source: str) -> bytes:
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"k.cu", 0, [], [])
    status = int(nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90a"])[0])
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == 0, log.decode()
    image = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, image)
    return bytes(image)


def artifact(
    name: str, source: str, threads: int, parameters: tuple[Any, ...], *steps: Any, workspace: Any = ()
) -> Artifact:
    return Artifact(
        name=name,
        target="sm_90a",
        parameters=parameters,
        variants=(Variant("only", TRUE, steps, workspace=workspace),),
        kernels=(KernelImage(name, threads, cubin(source)),),
    )


def vector(name: str, access: AccessMode) -> TensorArgument:
    return TensorArgument(name, "f32", (M,), access)


def axpy() -> Artifact:
    args = (TensorPointer("x"), TensorPointer("y"), FloatScalar("alpha"), IntScalar(M), IntScalar(sym("shift")))
    parameters = (
        vector("x", AccessMode.READ),
        vector("y", AccessMode.WRITE),
        ScalarArgument("alpha", "f32"),
        ScalarArgument("shift", "i32"),
    )
    return artifact("axpy", AXPY, 128, parameters, Launch("axpy", (ceildiv(M, 128), ONE, ONE), args))


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    if driver.capability(0) != (9, 0):
        pytest.skip("the kernels of this file are for sm_90a")
    driver.push_context(driver.context(0))
    yield driver
    driver.pop_context()


def on_device(driver: Driver, values: np.ndarray[Any, Any]) -> DeviceArray:
    array = DeviceArray(driver, values.shape, f32)
    array.upload(values.astype(np.float32).tobytes())
    return array


def back(array: DeviceArray) -> np.ndarray[Any, Any]:
    return np.frombuffer(array.download(), np.float32).reshape(array.shape)


@pytest.mark.parametrize("m", [1, 127, 128, 129, 65537])
def test_pointers_and_scalars(driver: Driver, m: int) -> None:
    program = load(axpy(), driver)
    values = np.random.default_rng(m).standard_normal(m).astype(np.float32)
    with on_device(driver, values) as x, on_device(driver, np.full(m, np.nan)) as y:
        for alpha, shift in ((0.5, -3), (2.0, 7)):
            program.launch((x, y, alpha, shift))
            np.testing.assert_allclose(back(y), values * np.float32(alpha) + shift, rtol=1e-6)
    program.close()


def test_workspace_fill_and_copy(driver: Driver) -> None:
    args = (TensorPointer("x"), WorkspacePointer(0), IntScalar(M))
    program = load(
        artifact(
            "accumulate",
            ACCUMULATE,
            64,
            (vector("x", AccessMode.READ), TensorArgument("out", "f32", (Const(4),), AccessMode.WRITE)),
            Fill(WorkspacePointer(0), 0, 4, Const(4)),
            Launch("accumulate", (ONE, ONE, ONE), args),
            Copy(WorkspacePointer(0), TensorPointer("out"), Const(16)),
            workspace=(Const(16),),
        ),
        driver,
    )
    values = np.arange(40, dtype=np.float32)
    with on_device(driver, values) as x, on_device(driver, np.full(4, np.nan)) as out:
        program.launch((x, out))
        np.testing.assert_array_equal(back(out), values.reshape(10, 4).sum(0))


def test_tensor_map(driver: Driver) -> None:
    recipe = TensorMapRecipe(DataType.FLOAT32, sym("x.address"), (M,), (), (32,), (1,))
    program = load(
        artifact(
            "tma",
            TMA,
            32,
            (vector("x", AccessMode.READ), vector("y", AccessMode.WRITE)),
            EncodeTensorMap(0, recipe),
            Launch("tma", (M // 32, ONE, ONE), (TensorMapArg(0), TensorPointer("y"))),
        ),
        driver,
    )
    for seed in range(3):  # other addresses: the descriptor is encoded again
        values = np.random.default_rng(seed).standard_normal(96)
        with on_device(driver, values) as x, on_device(driver, np.full(96, np.nan)) as y:
            program.launch((x, y))
            np.testing.assert_array_equal(back(y), values.astype(np.float32))


def test_another_architecture(driver: Driver) -> None:
    program = load(replace(axpy(), target="sm_100a"), driver)
    with (
        on_device(driver, np.zeros(4)) as x,
        on_device(driver, np.zeros(4)) as y,
        pytest.raises(TilewrightError, match="RUN012"),
    ):
        program.launch((x, y, 1.0, 1))


def bare_launch(x: DeviceArray, y: DeviceArray, m: int) -> Callable[[], object]:
    """The same kernel by the driver's own call, with everything prepared, 1 for alpha and for shift."""
    _, library = cuda.cuLibraryLoadData(cubin(AXPY), [], [], 0, [], [], 0)
    _, kernel = cuda.cuLibraryGetKernel(library, b"axpy")
    _, function = cuda.cuKernelGetFunction(kernel)
    values = (c_uint64(x.data_ptr()), c_uint64(y.data_ptr()), c_float(1), c_int(m), c_int(1))
    pointers = (c_void_p * len(values))(*map(addressof, values))
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = -(-m // 128), 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
    parameters = addressof(pointers)

    def launch(_kept: object = (values, pointers)) -> object:
        return cuda.cuLaunchKernelEx(config, function, parameters, 0)

    assert launch() == (cuda.CUresult.CUDA_SUCCESS,)
    return launch


MOST_OF_BARE = 3.0
"""What a call may take of a bare launch: arguments are looked at, the plan is found, scalars are written."""


def test_a_call_costs_little_more_than_its_launch(driver: Driver) -> None:
    """In turn, quickest of many, so that a slow or busy host slows both."""
    program = load(axpy(), driver)
    with on_device(driver, np.ones(128)) as x, on_device(driver, np.full(128, np.nan)) as y:
        calls = {"bare": bare_launch(x, y, 128), "program": lambda: program.launch((x, y, 1.0, 1))}
        np.testing.assert_array_equal(back(y), np.full(128, 2, np.float32))
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(40):
            for name, call in calls.items():
                begin = time.perf_counter()
                for _ in range(100):
                    call()
                best[name] = min(best[name], (time.perf_counter() - begin) / 100)
                back(y)
    program.close()
    assert best["program"] <= MOST_OF_BARE * best["bare"], best

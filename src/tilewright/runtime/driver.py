"""The CUDA driver behind one small class: the only file that calls it.

Every call's status is checked; a failure is a coded diagnostic that names the call and the driver's own words.
Handles are plain integers outside this file.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, Protocol, cast

from cuda.bindings import driver as _untyped_cuda  # pyright: ignore[reportMissingTypeStubs, reportAttributeAccessIssue, reportUnknownVariableType]

from tilewright.diag import fail
from tilewright.hw.tensormap import ADDRESS_ALIGN_BYTES, MAP_BYTES, Interleave, L2Promotion, OobFill, Swizzle
from tilewright.runtime.allocator import LEGACY_STREAM

cuda = cast("Any", _untyped_cuda)  # the binding ships no types; they end at this file's edge

_INVALID_CONTEXT = 201
_NOT_READY = 600
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


@dataclass(frozen=True)
class TensorMapFields:
    """The arguments of ``cuTensorMapEncodeTiled`` for one launch; innermost dimension first."""

    element: int
    address: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave
    swizzle: Swizzle
    l2_promotion: L2Promotion
    oob_fill: OobFill


@dataclass(frozen=True)
class LaunchShape:
    """Grid, cluster and block of a launch, and the dynamic shared memory of each CTA."""

    grid: tuple[int, int, int]
    threads: int
    cluster: tuple[int, int, int]
    shared_bytes: int
    early: bool = False
    """Its CTAs may begin before the launch before it has ended."""


LaunchOn = Callable[[int], None]
"""Launches a prepared kernel on a stream; reads the parameter buffer at that moment."""


class DriverLike(Protocol):
    """The driver interface that a program uses; tests replace it by a recorder."""

    def device_count(self) -> int: ...
    def capability(self, device: int) -> tuple[int, int]: ...
    def device_of(self, address: int) -> int | None: ...
    def context(self, device: int) -> int: ...
    def current_context(self) -> int: ...
    def push_context(self, context: int) -> None: ...
    def pop_context(self) -> None: ...
    def load_library(self, cubin: bytes) -> int: ...
    def unload_library(self, library: int) -> None: ...
    def kernel(self, library: int, symbol: str, device: int, shape: LaunchShape) -> int: ...
    def prepare(self, kernel: int, shape: LaunchShape, parameters: int, context: int) -> LaunchOn: ...
    def encode_tensor_map(self, fields: TensorMapFields) -> bytes: ...
    def allocate(self, size_bytes: int, stream: int) -> int: ...
    def free(self, address: int, stream: int) -> None: ...
    def allocate_kept(self, size_bytes: int) -> tuple[int, int]: ...
    def synchronize(self, context: int) -> None: ...
    def copy(self, destination: int, source: int, size_bytes: int, stream: int) -> None: ...
    def fill(self, destination: int, pattern: int, width_bytes: int, count: int, stream: int) -> None: ...
    def wait_for(self, producer: int, stream: int) -> None: ...


class Driver:
    """libcuda. Construction initialises it; RUN013 if there is none or it sees no device."""

    def __init__(self) -> None:
        try:
            status = cuda.cuInit(0)[0]
        except (RuntimeError, OSError, ImportError) as error:  # the binding's loader: libcuda was not found
            _no_driver(str(error).splitlines()[0] if str(error) else type(error).__name__)
        if status:
            _no_driver(f"cuInit returned {_words(status)}")
        self._count = int(_checked("cuDeviceGetCount", cuda.cuDeviceGetCount()))
        if self._count == 0:
            _no_driver("the driver sees no device")
        self._contexts: dict[int, int] = {}
        self._pools: dict[int, Any] = {}  # memory pools for workspaces, by context

    # -- devices and contexts ---------------------------------------------------------------------------------------

    def device_count(self) -> int:
        return self._count

    def capability(self, device: int) -> tuple[int, int]:
        """Compute capability (major, minor)."""
        names = cuda.CUdevice_attribute
        major, minor = (
            int(_checked("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(attribute, device)))
            for attribute in (
                names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        return major, minor

    def device_of(self, address: int) -> int | None:
        """The device that holds ``address``, or None for memory the driver does not know."""
        status, ordinal = cuda.cuPointerGetAttribute(cuda.CUpointer_attribute(_DEVICE_ORDINAL), address)
        return None if status else int(ordinal)

    def context(self, device: int) -> int:
        """The device's primary context, which PyTorch and the CUDA runtime use too; kept for the process."""
        context = self._contexts.get(device)
        if context is None:
            context = int(_checked("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(device)))
            self._contexts[device] = context
        return context

    def current_context(self) -> int:
        return int(_checked("cuCtxGetCurrent", cuda.cuCtxGetCurrent()))

    def push_context(self, context: int) -> None:
        _checked("cuCtxPushCurrent", cuda.cuCtxPushCurrent(context))

    def pop_context(self) -> None:
        _checked("cuCtxPopCurrent", cuda.cuCtxPopCurrent())

    # -- kernels ----------------------------------------------------------------------------------------------------

    def load_library(self, cubin: bytes) -> int:
        """Load a cubin for every context."""
        return int(_checked("cuLibraryLoadData", cuda.cuLibraryLoadData(cubin, [], [], 0, [], [], 0)))

    def unload_library(self, library: int) -> None:
        _checked("cuLibraryUnload", cuda.cuLibraryUnload(cuda.CUlibrary(library)))

    def kernel(self, library: int, symbol: str, device: int, shape: LaunchShape) -> int:
        """The kernel, with leave for the shared memory and the cluster that its launches ask for."""
        call = cuda.cuLibraryGetKernel(cuda.CUlibrary(library), symbol.encode())
        kernel = _checked("cuLibraryGetKernel", call)
        names = cuda.CUfunction_attribute
        settings: list[tuple[Any, int]] = []
        if shape.shared_bytes:
            settings.append((names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shape.shared_bytes))
        if shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > 8:  # above the portable size
            settings.append((names.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
        for attribute, value in settings:
            _checked("cuKernelSetAttribute", cuda.cuKernelSetAttribute(attribute, value, kernel, cuda.CUdevice(device)))
        return int(kernel)

    def prepare(self, kernel: int, shape: LaunchShape, parameters: int, context: int) -> LaunchOn:
        """A launch of ``kernel`` whose arguments are read, at each call, through the pointer array ``parameters``."""
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = shape.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = shape.threads, 1, 1
        config.sharedMemBytes = shape.shared_bytes
        attributes: list[Any] = []
        if shape.cluster != (1, 1, 1):
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = shape.cluster
            attributes.append(attribute)
        if shape.early:
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        config.hStream = LEGACY_STREAM
        return _Prepared(config, cuda.CUfunction(kernel), parameters, context).launch

    def encode_tensor_map(self, fields: TensorMapFields) -> bytes:
        """The descriptor's 128 bytes; RUN020 if the driver refuses its fields."""
        rank = len(fields.dims)
        # rank 1 has no strides, but the driver wants a pointer to some and an empty list is passed as none
        strides_bytes = fields.strides_bytes or (ADDRESS_ALIGN_BYTES,)
        status, encoded = cuda.cuTensorMapEncodeTiled(
            cuda.CUtensorMapDataType(int(fields.element)),
            rank,
            fields.address,
            [cuda.cuuint64_t(n) for n in fields.dims],
            [cuda.cuuint64_t(n) for n in strides_bytes],
            [cuda.cuuint32_t(n) for n in fields.box],
            [cuda.cuuint32_t(n) for n in fields.element_strides],
            cuda.CUtensorMapInterleave(int(fields.interleave)),
            cuda.CUtensorMapSwizzle(int(fields.swizzle)),
            cuda.CUtensorMapL2promotion(int(fields.l2_promotion)),
            cuda.CUtensorMapFloatOOBfill(int(fields.oob_fill)),
        )
        if status:
            fail("RUN020", found=f"{_words(status)} for {fields}", required="fields the driver accepts")
        return ctypes.string_at(int(encoded.getPtr()), MAP_BYTES)

    # -- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, size_bytes: int, stream: int) -> int:
        """Scratch memory in the current context, valid in stream order until ``free``.

        It comes from a pool of our own that keeps what was freed: an allocation is then a look-up, the same stream gets
        the same bytes back, and another stream only what is no longer in use (CUDA Programming Guide, stream-ordered
        memory allocator). Recorded into a CUDA graph it becomes the graph's own memory.
        """
        context = self.current_context()
        pool = self._pools.get(context)
        if pool is None:
            pool = self._pools[context] = self._new_pool()
        call = cuda.cuMemAllocFromPoolAsync(size_bytes, pool, cuda.CUstream(stream))
        return int(_checked("cuMemAllocFromPoolAsync", call))

    def _new_pool(self) -> Any:
        properties = cuda.CUmemPoolProps()
        properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = int(_checked("cuCtxGetDevice", cuda.cuCtxGetDevice()))
        pool = _checked("cuMemPoolCreate", cuda.cuMemPoolCreate(properties))
        keep_all = cuda.cuuint64_t(2**64 - 1)
        threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        _checked("cuMemPoolSetAttribute", cuda.cuMemPoolSetAttribute(pool, threshold, keep_all))
        return pool

    def free(self, address: int, stream: int) -> None:
        _checked("cuMemFreeAsync", cuda.cuMemFreeAsync(address, cuda.CUstream(stream)))

    def allocate_kept(self, size_bytes: int) -> tuple[int, int]:
        """Page-locked memory of the host, zero, for as long as the process runs: its address for kernels, and here."""
        host = int(_checked("cuMemHostAlloc", cuda.cuMemHostAlloc(size_bytes, cuda.CU_MEMHOSTALLOC_DEVICEMAP)))
        ctypes.memset(host, 0, size_bytes)
        return int(_checked("cuMemHostGetDevicePointer", cuda.cuMemHostGetDevicePointer(host, 0))), host

    def synchronize(self, context: int) -> None:
        """Wait for all work of a context."""
        self.push_context(context)
        try:
            _checked("cuCtxSynchronize", cuda.cuCtxSynchronize())
        finally:
            self.pop_context()

    def copy(self, destination: int, source: int, size_bytes: int, stream: int) -> None:
        call = cuda.cuMemcpyDtoDAsync(destination, source, size_bytes, cuda.CUstream(stream))
        _checked("cuMemcpyDtoDAsync", call)

    def fill(self, destination: int, pattern: int, width_bytes: int, count: int, stream: int) -> None:
        """Write ``count`` elements of ``width_bytes`` (1, 2 or 4), each ``pattern``."""
        set_elements = {1: cuda.cuMemsetD8Async, 2: cuda.cuMemsetD16Async, 4: cuda.cuMemsetD32Async}[width_bytes]
        _checked("cuMemsetAsync", set_elements(destination, pattern, count, cuda.CUstream(stream)))

    def upload(self, destination: int, data: bytes) -> None:
        """Copy from the host; returns when done."""
        _checked("cuMemcpyHtoD", cuda.cuMemcpyHtoD(destination, data, len(data)))

    def download(self, source: int, size_bytes: int) -> bytes:
        """Copy to the host, after all work on the legacy stream."""
        data = bytearray(size_bytes)
        view = (ctypes.c_char * size_bytes).from_buffer(data)
        _checked("cuMemcpyDtoH", cuda.cuMemcpyDtoH(ctypes.addressof(view), source, size_bytes))
        return bytes(data)

    def seconds(self, work: Callable[[], None]) -> float:
        """Device time of what ``work`` queues on the legacy stream."""
        stream = cuda.CUstream(LEGACY_STREAM)
        begin, end = (_checked("cuEventCreate", cuda.cuEventCreate(0)) for _ in range(2))
        _checked("cuEventRecord", cuda.cuEventRecord(begin, stream))
        work()
        _checked("cuEventRecord", cuda.cuEventRecord(end, stream))
        _checked("cuEventSynchronize", cuda.cuEventSynchronize(end))
        milliseconds = float(_checked("cuEventElapsedTime", cuda.cuEventElapsedTime(begin, end)))
        for event in (begin, end):
            _checked("cuEventDestroy", cuda.cuEventDestroy(event))
        return milliseconds / 1000

    def record_event(self, stream: int) -> int:
        """An event behind what is now on ``stream``; to be destroyed by ``destroy_event``."""
        flags = int(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        event = _checked("cuEventCreate", cuda.cuEventCreate(flags))
        _checked("cuEventRecord", cuda.cuEventRecord(event, cuda.CUstream(stream)))
        return int(event)

    def event_passed(self, event: int) -> bool:
        """Whether the work before it has ended."""
        status = cuda.cuEventQuery(cuda.CUevent(event))[0]
        if int(status) == _NOT_READY:
            return False
        _checked("cuEventQuery", (status,))
        return True

    def wait_event(self, event: int) -> None:
        """Wait until the work before it has ended."""
        _checked("cuEventSynchronize", cuda.cuEventSynchronize(cuda.CUevent(event)))

    def destroy_event(self, event: int) -> None:
        _checked("cuEventDestroy", cuda.cuEventDestroy(cuda.CUevent(event)))

    def wait_for(self, producer: int, stream: int) -> None:
        """Later work on ``stream`` starts after what is now on ``producer``."""
        flags = int(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        event = _checked("cuEventCreate", cuda.cuEventCreate(flags))
        _checked("cuEventRecord", cuda.cuEventRecord(event, cuda.CUstream(producer)))
        _checked("cuStreamWaitEvent", cuda.cuStreamWaitEvent(cuda.CUstream(stream), event, 0))
        _checked("cuEventDestroy", cuda.cuEventDestroy(event))


@cache
def process_driver() -> Driver:
    """The driver, initialised once a process; RUN013 where there is none."""
    return Driver()


class _Prepared:
    """One launch configuration, reused; only the stream changes between calls."""

    __slots__ = ("_config", "_context", "_function", "_parameters", "_stream")

    def __init__(self, config: Any, function: Any, parameters: int, context: int) -> None:
        self._config = config
        self._function = function
        self._parameters = parameters
        self._context = context
        self._stream = LEGACY_STREAM

    def launch(self, stream: int) -> None:
        if stream != self._stream:
            self._config.hStream = stream
            self._stream = stream
        status = cuda.cuLaunchKernelEx(self._config, self._function, self._parameters, 0)[0]
        if status:
            if int(status) == _INVALID_CONTEXT:  # a thread that has not used CUDA yet
                _checked("cuCtxSetCurrent", cuda.cuCtxSetCurrent(self._context))
                status = cuda.cuLaunchKernelEx(self._config, self._function, self._parameters, 0)[0]
            if status:
                _refused("cuLaunchKernelEx", status)


def _checked(name: str, answer: tuple[Any, ...]) -> Any:
    """The result of a successful call (None if there is none)."""
    if answer[0]:
        _refused(name, answer[0])
    return answer[1] if len(answer) > 1 else None


def _refused(name: str, status: Any) -> NoReturn:
    fail("RUN014", found=f"{name} returned {_words(status)}", required="CUDA_SUCCESS")


def _words(status: Any) -> str:
    """``CUDA_ERROR_X (its description)``."""
    parts: list[str] = []
    for ask in (cuda.cuGetErrorName, cuda.cuGetErrorString):
        failed, text = ask(status)
        if not failed and text:
            parts.append(text.decode())
    return f"{parts[0]} ({parts[1]})" if len(parts) == 2 else str(status)


def _no_driver(found: str) -> NoReturn:
    fail(
        "RUN013",
        found=found,
        required="libcuda and an NVIDIA GPU",
        help="load bundles where a GPU is; a kernel itself, called with NumPy arrays, runs in the simulator",
    )

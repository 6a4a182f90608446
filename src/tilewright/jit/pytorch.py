"""The one place outside ``ops`` that knows PyTorch: its streams, its allocator, its tensors of the CPU.

PyTorch is never imported here. Who hands us one of its tensors has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from tilewright.diag import fail
from tilewright.runtime.allocator import LEGACY_STREAM, Allocator


def first_on_gpu(values: Iterable[Any]) -> Any:
    """The first CUDA tensor of PyTorch among ``values``; None where there is none."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is None:  # not imported, or only begun to be
        return None
    for value in values:
        if isinstance(value, tensor) and value.is_cuda:
            return value
    return None


def current_stream(tensor: Any) -> int:
    """The handle of PyTorch's current stream on the device of a CUDA tensor."""
    torch: Any = sys.modules["torch"]
    try:  # what Inductor's own code calls: 0.3 us, where an object of the stream takes 3
        raw = torch._C._cuda_getCurrentRawStream
    except AttributeError:
        return int(torch.cuda.current_stream(tensor.device).cuda_stream)
    return raw(tensor.get_device())


def raw_stream(device: int) -> int:
    """The same for a device number."""
    torch: Any = sys.modules["torch"]
    try:
        raw = torch._C._cuda_getCurrentRawStream
    except AttributeError:
        return int(torch.cuda.current_stream(device).cuda_stream) or LEGACY_STREAM
    return raw(device) or LEGACY_STREAM


def is_tensor(value: Any) -> bool:
    """The value is a tensor of PyTorch, wherever it lies."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def require_strided(tensor: Any) -> None:
    """JIT003 for a tensor of PyTorch whose memory is not its elements by strides."""
    strided, quantized = sys.modules["torch"].strided, tensor.is_quantized
    if tensor.layout is not strided or quantized or tensor.is_nested:
        fail(
            "JIT003",
            title="a tensor whose memory is not its elements by strides",
            found=f"a tensor that is {'nested' if tensor.is_nested else 'quantized' if quantized else tensor.layout}",
            required="torch.strided",
            help="pass x.to_dense(), x.dequantize(), or values and offsets as tensors of their own",
        )


def untraced(run: Callable[..., None]) -> Callable[..., None]:
    """``run``, into which ``torch.compile`` is not led, as into the simulator it must not be."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    return run if dynamo is None else dynamo.disable(run)


def require_seen(values: Iterable[Any]) -> None:
    """JIT003 where PyTorch traces or transforms what is done to tensors: it would miss what a kernel does."""
    torch: Any = sys.modules.get("torch")
    compiler = getattr(torch, "compiler", None)
    if compiler is None or compiler.is_compiling():  # not imported, or only begun to be
        return
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if tensors and (found := _watcher(torch, tensors)):
        fail(
            "JIT003",
            title="a call that PyTorch would not see",
            found=f"a kernel called under {found}",
            required="an operator, which tracers and transforms see",
            help="write @tw.op above @tw.kernel",
        )


def _watcher(torch: Any, tensors: list[Any]) -> str:
    """The active PyTorch mode or hook that would not see a call on these tensors; empty if none."""
    modes, forward = torch._C._TorchDispatchModeKey, torch.autograd.forward_ad
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func"
    if any(torch._C._get_dispatch_mode(mode) is not None for mode in (modes.FAKE, modes.PROXY, modes.FUNCTIONAL)):
        return "a tracer, or FakeTensorMode"
    if forward._current_level >= 0 and any(forward.unpack_dual(t).tangent is not None for t in tensors):
        return "forward-mode autograd"
    return ""


def wants_gradient(values: Iterable[Any]) -> bool:
    """Autograd records, and a tensor among ``values`` needs a gradient."""
    torch: Any = sys.modules.get("torch")
    if getattr(torch, "Tensor", None) is None or not torch.is_grad_enabled():
        return False
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


def is_on_cpu(value: Any) -> bool:
    """The value is a tensor of PyTorch in the host's memory."""
    return is_tensor(value) and value.device.type == "cpu"


def empty(like: Any, shape: tuple[int, ...], dtype: str, *, zero: bool) -> Any:
    """A row-major tensor on the device of ``like``, of the dtype that the name of ours stands for."""
    torch: Any = sys.modules["torch"]
    make = torch.zeros if zero else torch.empty
    return make(shape, dtype=getattr(torch, DTYPE_NAMES[dtype]), device=like.device)


DTYPE_NAMES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "bool": "bool",
}
"""PyTorch's names of our element types, as attributes of ``torch``."""


class _CachingAllocator:
    """Workspaces from PyTorch's caching allocator: counted in its statistics, private to a graph that is captured, and
    given back to the stream they were used on as soon as the launch is queued."""

    def __init__(self, device: int) -> None:
        self._device = device

    def allocate(self, size_bytes: int, stream: int) -> int:
        memory: Any = sys.modules["torch"].cuda
        return int(memory.caching_allocator_alloc(size_bytes, self._device, _as_pytorch_counts(stream)))

    def free(self, address: int, stream: int) -> None:
        memory: Any = sys.modules["torch"].cuda
        memory.caching_allocator_delete(address)


@cache
def allocator_on(device: int) -> Allocator:
    """PyTorch's allocator on a device."""
    return _CachingAllocator(device)


def allocator(tensor: Any) -> Allocator:
    """PyTorch's allocator on the device of a CUDA tensor."""
    return allocator_on(tensor.get_device())


def _as_pytorch_counts(stream: int) -> int:
    """PyTorch keeps the legacy default stream's memory under the handle 0, which stands for CU_STREAM_LEGACY."""
    return 0 if stream == LEGACY_STREAM else stream

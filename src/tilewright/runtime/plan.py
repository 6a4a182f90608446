"""A plan: one variant's steps with everything evaluated that does not change from call to call.

Built once for a combination of shapes, strides, alignments and integer scalars; after that a call compares addresses,
rewrites what changed in the frame, and launches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NoReturn

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    WORKSPACE_ALIGN_BYTES,
    Artifact,
    Copy,
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    KernelArg,
    KernelImage,
    Launch,
    Pointer,
    TensorMapArg,
    TensorPointer,
    Variant,
    WorkspacePointer,
    workspace_address,
)
from tilewright.base.expr import Assignment, Expr, ExprError, Sym
from tilewright.diag import fail
from tilewright.hw.target import MAX_GRID
from tilewright.runtime.allocator import Allocator
from tilewright.runtime.binding import Aliasing
from tilewright.runtime.driver import DriverLike, LaunchOn, LaunchShape, TensorMapFields
from tilewright.runtime.frame import Frame
from tilewright.runtime.index_promises import Failures
from tilewright.runtime.scalars import CallScalar

_MAX_ADDRESSES = 256
"""Sets of addresses of which a plan remembers something: callers alternate between few buffers."""
_MAX_MAPS = 1024
"""Descriptors that a plan remembers, each by the addresses that it depends on: an encoding takes some 50 us."""

_NOWHERE = 1 << 12
"""The address in the descriptor of an empty tensor, which may be at 0: no copy uses it."""

Kernels = Callable[[KernelImage, LaunchShape], int]
"""Gives the driver's handle of a kernel."""


class LaunchPlan:
    """The steps of ``variant`` for arguments whose symbols have the values ``env``."""

    def __init__(
        self,
        artifact: Artifact,
        variant: Variant,
        env: Mapping[str, int],
        aliasing: Aliasing,
        scalars: tuple[CallScalar, ...],
        driver: DriverLike,
        kernels: Kernels,
        context: int,
        device: int,
        failures: Failures | None = None,
    ) -> None:
        self.variant = variant
        self.context = context
        self.device = device
        self.looked_up = 0
        self.latest: tuple[int, ...] | None = None
        """The addresses that the frame holds."""
        self._driver = driver
        self._env = Assignment(env)
        self._aliasing = aliasing
        self._tensors = tuple(p.name for p in artifact.tensors)
        self._scalars = tuple(s.name for s in scalars)
        self._lock = threading.Lock()  # one frame: a launch must read it before the next call rewrites it
        self._apart: set[tuple[int, ...]] = set()  # addresses at which no tensors share bytes
        self._maps: dict[tuple[int, ...], bytes] = {}  # by slot and the addresses that it depends on
        self.maps_encoded, self.maps_reused = 0, 0
        self._mapped: tuple[int, ...] | None = None  # what the descriptors in the frame were encoded for
        self._failures = failures
        self._kept = {report.workspace for report in variant.reports}
        self._workspace, self._workspace_bytes = self._lay_out(variant.workspace)
        blocks = map(workspace_address, range(len(self._workspace)))
        self._addresses = (*(f"{name}.address" for name in self._tensors), *blocks)
        self._recipes = [
            (s.slot, s.recipe, tuple(i for i, name in enumerate(self._addresses) if name in symbols))
            for s in variant.steps
            if isinstance(s, EncodeTensorMap)
            for symbols in (s.recipe.symbols,)
        ]
        self._maps_follow_workspace = any(read and read[-1] >= len(self._tensors) for _, _, read in self._recipes)
        values = sum(len(s.args) if isinstance(s, Launch) else 2 for s in variant.steps)
        self._frame = Frame(
            1 + max((slot for slot, _, _ in self._recipes), default=-1),
            len(self._tensors),
            "".join(s.format for s in scalars),
            values,
        )
        self._moving: list[tuple[int, int, int]] = []  # (frame offset, tensor position, byte offset)
        self._scratch: list[tuple[int, int, int]] = []  # (frame offset, workspace index, byte offset)
        self._steps: list[LaunchOn] = []
        for step in variant.steps:
            self._prepare(artifact, step, kernels)
        self.only_launches = not self._workspace and not any(isinstance(s, Copy | Fill) for s in variant.steps)

    # -- a call -------------------------------------------------------------------------------------------------------

    def launch(self, addresses: tuple[int, ...], scalars: tuple[int | float, ...], stream: int) -> None:
        """``run`` of a plan that only launches."""
        with self._lock:
            if addresses != self.latest:
                self._rebind(addresses, scalars)
            elif scalars:
                self._frame.write_scalars(*scalars)
            for step in self._steps:
                step(stream)

    def run(
        self, addresses: tuple[int, ...], scalars: tuple[int | float, ...], stream: int, allocator: Allocator
    ) -> None:
        """Queue the steps on ``stream`` for tensors at ``addresses``, with workspaces of ``allocator``."""
        if not self._workspace:
            self.launch(addresses, scalars, stream)
            return
        with self._lock:
            if addresses != self.latest:
                self._rebind(addresses, scalars)
            elif scalars:
                self._frame.write_scalars(*scalars)
            self._run_with_workspace(addresses, stream, allocator)

    def _rebind(self, addresses: tuple[int, ...], scalars: tuple[int | float, ...]) -> None:
        if addresses not in self._apart:
            self._aliasing.check(addresses)
            if len(self._apart) >= _MAX_ADDRESSES:
                self._apart.clear()
            self._apart.add(addresses)
        self.latest = None  # stays so if a descriptor is refused below
        self._frame.write_tensors(*addresses)
        if scalars:
            self._frame.write_scalars(*scalars)
        for offset, position, extra in self._moving:
            self._frame.write(offset, addresses[position] + extra)
        if self._recipes and not self._maps_follow_workspace:
            self._write_maps(addresses)
        self.latest = addresses

    def _write_maps(self, addresses: tuple[int, ...], *blocks: int) -> None:
        """Descriptors for tensors and workspaces at these addresses."""
        self._mapped, every = None, (*addresses, *blocks)
        for slot, recipe, read in self._recipes:
            key = (slot, *[every[i] for i in read])
            encoded = self._maps.get(key)
            if encoded is not None:
                self.maps_reused += 1
            else:
                encoded = self._encode(recipe, every)
                self.maps_encoded += 1
                if len(self._maps) >= _MAX_MAPS:
                    self._maps.clear()
                self._maps[key] = encoded
            self._frame.write_map(slot, encoded)
        self._mapped = every

    @property
    def maps_kept(self) -> int:
        """Tensor maps that are remembered."""
        return len(self._maps)

    def _encode(self, recipe: TensorMapRecipe, addresses: tuple[int, ...]) -> bytes:
        """A descriptor for these addresses."""
        env = self._env | dict(zip(self._addresses, addresses, strict=False))
        self._driver.push_context(self.context)  # a thread that has not used CUDA yet has none
        try:
            return self._driver.encode_tensor_map(_fields(recipe, env))
        finally:
            self._driver.pop_context()

    def _lay_out(self, sizes: tuple[Expr, ...]) -> tuple[tuple[int, ...], int]:
        """Offsets of the workspaces in one allocation, and its size."""
        offsets: list[int] = []
        total = 0
        for number, size in enumerate(sizes):
            offsets.append(total)
            if number in self._kept:
                continue
            blocks = -(-self._value(size, "a workspace size", 0, 2**48) // WORKSPACE_ALIGN_BYTES)
            total += max(blocks, 1) * WORKSPACE_ALIGN_BYTES
        return tuple(offsets), total

    def _run_with_workspace(self, addresses: tuple[int, ...], stream: int, allocator: Allocator) -> None:
        """One allocation in stream order: a later call gets the same bytes back once this one's steps are done."""
        block = allocator.allocate(self._workspace_bytes, stream)
        try:
            blocks = tuple(
                self._failures.device if self._failures is not None and number in self._kept else block + offset
                for number, offset in enumerate(self._workspace)
            )
            for offset, index, extra in self._scratch:
                self._frame.write(offset, blocks[index] + extra)
            if self._maps_follow_workspace and self._mapped != (*addresses, *blocks):
                self._write_maps(addresses, *blocks)
            for step in self._steps:
                step(stream)
        finally:
            allocator.free(block, stream)

    # -- building -----------------------------------------------------------------------------------------------------

    def _prepare(self, artifact: Artifact, step: Launch | Copy | Fill | EncodeTensorMap, kernels: Kernels) -> None:
        match step:
            case Launch():
                self._prepare_launch(artifact.kernel(step.kernel), step, kernels)
            case Copy(source, destination, size_bytes):
                size = self._value(size_bytes, "the size of a copy", 0, 2**48)
                if size:
                    self._check_inside(source, size)
                    self._check_inside(destination, size)
                    self._steps.append(self._copy(self._pointer(source), self._pointer(destination), size))
            case Fill(destination, pattern, width_bytes, count):
                n = self._value(count, "the length of a fill", 0, 2**48)
                if n:
                    self._check_inside(destination, n * width_bytes)
                    self._steps.append(self._fill(self._pointer(destination), pattern, width_bytes, n))
            case EncodeTensorMap():
                pass  # host work: done when addresses change

    def _prepare_launch(self, image: KernelImage, step: Launch, kernels: Kernels) -> None:
        names = "xyz"
        x, y, z = (
            self._value(extent, f"grid.{names[i]} of {image.symbol}", 0, MAX_GRID[i])
            for i, extent in enumerate(step.grid)
        )
        if 0 in (x, y, z):
            return
        grid = (x, y, z)
        if any(n % c for n, c in zip(grid, image.cluster, strict=True)):
            found = f"grid {grid} of {image.symbol}"
            fail("RUN017", found=found, required=f"multiples of the cluster {image.cluster}")
        shape = LaunchShape(grid, image.threads, image.cluster, image.shared_bytes, step.early)
        parameters = self._frame.parameters([self._argument(arg) for arg in step.args])
        self._steps.append(self._driver.prepare(kernels(image, shape), shape, parameters, self.context))

    def _argument(self, arg: KernelArg) -> int:
        """Frame offset of a kernel argument's value."""
        match arg:
            case TensorPointer() | WorkspacePointer():
                return self._pointer(arg)
            case IntScalar(value, bits):
                if isinstance(value, Sym) and value.name in self._scalars:
                    return self._frame.scalar(self._scalars.index(value.name))
                half = 1 << (bits - 1)
                return self._frame.reserve(self._value(value, "an integer argument", -half, half - 1))
            case FloatScalar(name):
                return self._frame.scalar(self._scalars.index(name))
            case TensorMapArg(slot):
                return self._frame.tensor_map(slot)

    def _pointer(self, pointer: Pointer) -> int:
        """Frame offset of an address."""
        extra = self._value(pointer.offset, "a byte offset", -(2**62), 2**62)
        match pointer:
            case TensorPointer(name):
                position = self._tensors.index(name)
                if extra == 0:
                    return self._frame.tensor(position)
                offset = self._frame.reserve()
                self._moving.append((offset, position, extra))
            case WorkspacePointer(index):
                offset = self._frame.reserve()
                self._scratch.append((offset, index, extra))
        return offset

    def _check_inside(self, pointer: Pointer, size: int) -> None:
        """A step of the host stays inside of its tensor or workspace; RUN017. A bundle may be a stranger's."""
        first = self._value(pointer.offset, "a byte offset", -(2**62), 2**62)
        match pointer:
            case TensorPointer(name):
                place = self._aliasing.footprints[self._tensors.index(name)]
                low, high, where = place.low, place.high, name
            case WorkspacePointer(index):
                ends = (*self._workspace, self._workspace_bytes)
                low, high, where = 0, ends[index + 1] - ends[index], f"workspace {index}"
        if not (low <= first and first + size <= high):
            _out_of_range(f"bytes {first} to {first + size} of {where}", f"{low} to {high}")

    def _copy(self, source: int, destination: int, size: int) -> LaunchOn:
        def copy(stream: int) -> None:
            self._driver.copy(self._read(destination), self._read(source), size, stream)

        return copy

    def _fill(self, destination: int, pattern: int, width_bytes: int, count: int) -> LaunchOn:
        def fill(stream: int) -> None:
            self._driver.fill(self._read(destination), pattern, width_bytes, count, stream)

        return fill

    def _read(self, offset: int) -> int:
        return int.from_bytes(self._frame.read(offset, 8), "little")

    def _value(self, e: Expr, what: str, low: int, high: int) -> int:
        try:
            value = int(e.evaluate(self._env))
        except ExprError as error:
            _out_of_range(f"{what}: {error}", f"{low} to {high}")
        if not low <= value <= high:
            _out_of_range(f"{what}: {e} = {_shown(value)}", f"{low} to {high}")
        return value


def _fields(recipe: TensorMapRecipe, env: Mapping[str, int]) -> TensorMapFields:
    def value(e: Expr, what: str, bits: int) -> int:
        found = e.evaluate(env)
        if not 0 <= found < 1 << bits:
            _out_of_range(f"{what}: {e} = {_shown(found)}", f"0 to 2^{bits} - 1")
        return found

    try:
        return TensorMapFields(
            int(recipe.element),
            value(recipe.address, "a descriptor's address", 64) or _NOWHERE,
            tuple(value(d, "a descriptor's extent", 64) for d in recipe.dims),
            tuple(value(s, "a descriptor's stride", 64) for s in recipe.strides_bytes),
            recipe.box,
            recipe.element_strides,
            recipe.interleave,
            recipe.swizzle,
            recipe.l2_promotion,
            recipe.oob_fill,
        )
    except ExprError as error:
        _out_of_range(f"a descriptor field: {error}", "a value")


def _shown(value: int) -> str:
    """A number of a message: Python prints none of more than 4,300 digits."""
    return str(value) if value.bit_length() <= 256 else f"a number of {value.bit_length()} bits"


def _out_of_range(found: str, required: str) -> NoReturn:
    fail("RUN017", found=found, required=required)

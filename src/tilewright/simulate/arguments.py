"""Binding NumPy arrays and scalars to a kernel's arguments: dtypes, ranks, extents, strides, assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from tilewright.base.cached import cached_property
from tilewright.base.dtypes import DType
from tilewright.base.expr import ExprError, solve, symbol_plus
from tilewright.simulate.elementwise import cast
from tilewright.simulate.report import refuse
from tilewright.simulate.symbols import Array
from tilewright.simulate.values import memory_dtype
from tilewright.tile.attributes import TensorType, TileType
from tilewright.transport.dialect import Kernel


@dataclass(frozen=True)
class BoundTensor:
    """A tensor argument: its array, and its strides in elements."""

    name: str
    dtype: DType
    array: Array
    strides: tuple[int, ...]

    @cached_property
    def elements(self) -> tuple[Array, Array]:
        """Byte offsets of all elements from the first one, ascending, and which element lies at each."""
        offsets: Array = np.zeros((), np.int64)
        for extent, stride in zip(self.array.shape, self.array.strides, strict=True):
            offsets = np.add.outer(offsets, np.arange(extent, dtype=np.int64) * stride)
        order = np.argsort(offsets, axis=None, kind="stable")
        return offsets.ravel()[order], order


@dataclass(frozen=True)
class LaunchArguments:
    """All arguments of a launch. ``symbols`` holds extents, strides and integer scalars by name."""

    tensors: dict[SSAValue, BoundTensor]
    scalars: dict[SSAValue, Any]
    symbols: dict[str, int]


def bind(kernel: Kernel, tensors: Mapping[str, Array], scalars: Mapping[str, int | float]) -> LaunchArguments:
    """Match values to the kernel's arguments by name; refuses what does not fit (SIM006, SIM007, SIM008)."""
    bound: dict[SSAValue, BoundTensor] = {}
    values: dict[SSAValue, Any] = {}
    symbols: dict[str, int] = {}
    names = [name.data for name in kernel.arg_names]
    for name, argument in zip(names, kernel.body.block.args, strict=True):
        if isinstance(argument.type, TensorType):
            if name not in tensors:
                refuse(kernel, "SIM006", found=f"no tensor {name!r}", required=f"tensors named {_tensors(kernel)}")
            bound[argument] = _bind_tensor(kernel, name, argument.type, tensors[name], symbols)
        else:
            assert isinstance(argument.type, TileType)
            values[argument] = _bind_scalar(kernel, name, argument.type.dtype.dtype, scalars, symbols)
    for name in scalars:
        if name not in names:
            refuse(kernel, "SIM007", found=f"no argument {name!r}", required=f"arguments named {', '.join(names)}")
    _solve_dims(bound, symbols)
    _check_dims(kernel, bound, symbols)
    for assumption in kernel.assumptions:
        try:
            holds = assumption.expr.evaluate(symbols)
        except ExprError:
            continue  # about a symbol that only the dispatcher knows
        if not holds:
            where = ", ".join(f"{s} = {symbols[s]}" for s in sorted(assumption.expr.symbols))
            refuse(kernel, "SIM008", found=where, required=f"{assumption.expr}")
    return LaunchArguments(bound, values, symbols)


def _tensors(kernel: Kernel) -> str:
    pairs = zip(kernel.arg_names, kernel.body.block.args, strict=True)
    return ", ".join(n.data for n, a in pairs if isinstance(a.type, TensorType))


def _bind_tensor(kernel: Kernel, name: str, kind: TensorType, array: Array, symbols: dict[str, int]) -> BoundTensor:
    dtype, dims = kind.dtype.dtype, [d.expr for d in kind.dims]
    wanted = memory_dtype(dtype)
    if array.dtype != wanted:
        refuse(kernel, "SIM006", found=f"{name} of dtype {array.dtype}", required=f"{dtype} (numpy {wanted})")
    if array.ndim != len(dims):
        shape = ", ".join(map(str, dims))
        refuse(kernel, "SIM006", found=f"{name} of rank {array.ndim}", required=f"rank {len(dims)}: [{shape}]")
    if any(s % array.itemsize for s in array.strides):
        refuse(
            kernel, "SIM006", found=f"{name} with byte strides {array.strides}", required="strides in whole elements"
        )
    for dim, extent in zip(dims, array.shape, strict=True):
        known = symbol_plus(dim)
        if known is None:
            continue
        symbol, more = known
        if symbols.setdefault(symbol, extent - more) != extent - more:
            refuse(
                kernel,
                "SIM006",
                found=f"{symbol} = {extent - more} in {name}",
                required=f"{symbol} = {symbols[symbol]}, as in the tensors before it",
            )
    symbols[f"{name}.address"] = int(array.__array_interface__["data"][0])
    strides = tuple(s // array.itemsize for s in array.strides)
    for i, stride in enumerate(strides):
        symbols[f"{name}.stride{i}"] = stride
    return BoundTensor(name, dtype, array, strides)


def _solve_dims(bound: dict[SSAValue, BoundTensor], symbols: dict[str, int]) -> None:
    """Symbols that only expressions of several terms have, such as ``2*N`` and ``H*D``."""
    pairs = (
        (dim.expr, extent)
        for argument, tensor in bound.items()
        if isinstance(argument.type, TensorType)
        for dim, extent in zip(argument.type.dims, tensor.array.shape, strict=True)
    )
    solve(pairs, symbols)


def _check_dims(kernel: Kernel, bound: dict[SSAValue, BoundTensor], symbols: dict[str, int]) -> None:
    """Extents that are numbers or expressions, once all names are known."""
    for argument, tensor in bound.items():
        assert isinstance(argument.type, TensorType)
        for i, (dim, extent) in enumerate(zip(argument.type.dims, tensor.array.shape, strict=True)):
            if dim.expr.evaluate(symbols) != extent:
                refuse(
                    kernel,
                    "SIM006",
                    found=f"extent {extent} in dimension {i} of {tensor.name}",
                    required=f"{dim.expr} = {dim.expr.evaluate(symbols)}",
                )


def _bind_scalar(
    kernel: Kernel, name: str, dtype: DType, scalars: Mapping[str, int | float], symbols: dict[str, int]
) -> Any:
    if name not in scalars:
        refuse(kernel, "SIM007", found=f"no value for {name}", required=f"{name}: {dtype}")
    value: Any = scalars[name]  # from untyped user code
    number = None if isinstance(value, str) else float(value)
    if number is None or not (dtype.is_float or number.is_integer()):
        refuse(kernel, "SIM007", found=f"{name} = {value!r}", required=f"a value of dtype {dtype}")
    if dtype.is_int:
        low, high = dtype.integers
        if not low <= int(value) <= high:
            refuse(kernel, "SIM007", found=f"{name} = {value!r}", required=f"a value of dtype {dtype}")
        symbols[name] = int(value)
        return cast(np.int64(value), dtype, dtype)
    with np.errstate(over="ignore"):  # what rounds to infinity does so on the GPU, too
        return cast(np.float64(value), dtype, dtype)

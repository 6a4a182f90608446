"""A kernel's signature as an operator's: arguments, results, PyTorch's schema, and the shapes that results have."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, NoReturn

from tilewright import Kernel
from tilewright.base.dtypes import DType, dtype_named
from tilewright.base.expr import solve, unsolved
from tilewright.diag import fail
from tilewright.jit.outputs import ParameterUses, uses_of
from tilewright.jit.pytorch import DTYPE_NAMES
from tilewright.lang.params import KeywordParam, ScalarParam, TensorParam, as_declared, extent_of
from tilewright.ops.pytorch import torch


class SchemaType(Enum):
    """Of an argument: its type in a schema."""

    TENSOR = "Tensor"
    OPTIONAL = "Tensor?"
    MUTATED = "Tensor({}!)"
    FLOAT = "float"
    INT = "SymInt"
    FIXED = "int"
    FLAG = "bool"
    TEXT = "str"
    BLOCK = "int?"

    @property
    def is_tensor(self) -> bool:
        return self in (SchemaType.TENSOR, SchemaType.OPTIONAL, SchemaType.MUTATED)


REQUIRED: Any = object()
"""The default of an argument that has none."""


@dataclass(frozen=True)
class Argument:
    """One argument. ``dims`` are a tensor's; ``default`` is ``REQUIRED`` if a call must give it."""

    name: str
    kind: SchemaType
    default: Any = REQUIRED
    dims: tuple[str | int, ...] = ()


@dataclass(frozen=True)
class Result:
    """A tensor that the operator returns: of the dtype of the argument at ``like``, or of ``dtype``."""

    name: str
    dims: tuple[str | int, ...]
    like: int
    dtype: Any = None
    zero: bool = False


@dataclass(frozen=True)
class OpSignature:
    """Arguments in the order of a call, results in the order in which they come back."""

    kernel: Kernel
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]

    @property
    def tensors(self) -> tuple[Argument, ...]:
        """Tensor arguments; they come first."""
        return tuple(a for a in self.arguments if a.kind.is_tensor)

    @property
    def mutated(self) -> tuple[int, ...]:
        """Positions of the arguments that the kernel changes."""
        return tuple(i for i, a in enumerate(self.arguments) if a.kind is SchemaType.MUTATED)

    @property
    def schema(self) -> str:
        """``(Tensor x, Tensor w, float eps) -> Tensor``."""
        return f"({', '.join(self._formals())}) -> ({', '.join('Tensor' for _ in self.results)})"

    @property
    def out_schema(self) -> str:
        """Of the form that writes into tensors that are given."""
        outs = (f"Tensor(o{i}!) {r.name}" for i, r in enumerate(self.results))
        return f"({', '.join((*self._formals(), *outs))}) -> ()"

    def _formals(self) -> Iterator[str]:
        for i, argument in enumerate(self.arguments):
            yield f"{argument.kind.value.format(f'a{i}')} {argument.name}"

    def described(self, values: tuple[Any, ...]) -> tuple[tuple[tuple[Any, ...], Any], ...]:
        """Shape and dtype of each result; JIT010 where ranks or extents do not fit the signature."""
        extents: dict[str, Any] = {}
        for argument, value in zip(self.arguments, values, strict=True):
            if value is not None and argument.kind.is_tensor:
                self._check_rank(argument, tuple(value.shape))
        given = [
            (a, tuple(v.shape))
            for a, v in zip(self.arguments, values, strict=True)
            if v is not None and a.kind.is_tensor
        ]
        solve(((extent_of(d), n) for a, shape in given for d, n in zip(a.dims, shape, strict=True)), extents)
        for argument, shape in given:
            self._agree(argument, shape, extents)
        return tuple(
            (tuple(d if isinstance(d, int) else _sum(extents, d) for d in r.dims), r.dtype or values[r.like].dtype)
            for r in self.results
        )

    def _check_rank(self, argument: Argument, shape: tuple[int, ...]) -> None:
        if len(shape) != len(argument.dims):
            self._refuse_shape(
                argument, shape, f"{len(argument.dims)} dimensions: {as_declared(argument.name, argument.dims)}"
            )

    def _agree(self, argument: Argument, shape: tuple[Any, ...], extents: Mapping[str, Any]) -> None:
        declared = as_declared(argument.name, argument.dims)
        for dim, extent in zip(argument.dims, shape, strict=True):
            known = dim if isinstance(dim, int) else _sum(extents, dim)
            if not isinstance(known, int) or not isinstance(extent, int):
                torch._check(known == extent, partial(_disagree, declared, shape, dim, known))
            elif known != extent:
                self._refuse_shape(argument, shape, f"{dim} = {known} in {declared}")

    def _refuse_shape(self, argument: Argument, shape: tuple[Any, ...], required: str) -> NoReturn:
        help_ = f"its tensors are {self.kernel.name}({', '.join(as_declared(a.name, a.dims) for a in self.tensors)})"
        fail("JIT010", found=f"{argument.name} of shape {shape}", required=required, help=help_)


def _sum(extents: Mapping[str, Any], dim: str) -> Any:
    return extent_of(dim).evaluate(extents)


def _disagree(declared: str, shape: object, dim: object, known: object) -> str:
    return f"{declared} has {shape}, where {dim} is {known}"


def read_signature(
    kernel: Kernel, outputs: Collection[str] | None, mutates: Collection[str], dtypes: Mapping[str, DType | str]
) -> OpSignature:
    """The signature of ``kernel`` as an operator; JIT009 where it can't be one, or something must be declared."""
    uses = uses_of(kernel.fn)
    if uses is None:
        _refuse(kernel, "a kernel whose source can't be read", "a function in a file or a notebook's cell")
    results = _results(kernel, uses, outputs)
    _check_mutation(kernel, uses, results, mutates)
    _check_names(kernel, outputs or (), mutates, dtypes)
    arguments = (
        *_tensors(kernel, results, outputs, mutates, uses),
        *sorted(_numbers(kernel), key=lambda a: a.default is not REQUIRED),
    )
    if not arguments or not arguments[0].kind.is_tensor:
        _refuse(kernel, "no tensor that is read", "a tensor that says on which device the operator runs")
    if not results and not mutates:
        _refuse(kernel, "no tensor that is written", "a result, or a tensor that it changes")
    if any(argument.name == "out" for argument in arguments):
        _refuse(kernel, "an argument called out", "another name: out= are the results of a call")
    signature = OpSignature(kernel, arguments, ())
    return replace(signature, results=tuple(_result(signature, p, uses, dtypes) for p in results))


def _results(kernel: Kernel, uses: ParameterUses, outputs: Collection[str] | None) -> list[TensorParam]:
    """What is returned: tensors only written; optional ones where they are named."""
    found = [
        p
        for p in kernel.tensors
        if (p.name in uses.results and not p.optional if outputs is None else p.name in outputs)
    ]
    for param in found:
        if param.name in uses.read or param.name not in uses.written | uses.unclear:
            _refuse(kernel, f"the output {param.name}, which its body reads or does not write", "a tensor only written")
    return found


def _check_mutation(kernel: Kernel, uses: ParameterUses, results: list[TensorParam], mutates: Collection[str]) -> None:
    returned = {p.name for p in results}
    optional = set(kernel.optional)
    undeclared = (uses.written - returned - set(mutates) - (optional - uses.read)) & {p.name for p in kernel.tensors}
    if undeclared:
        names = ", ".join(f'"{n}"' for n in sorted(undeclared))
        _refuse(kernel, f"{', '.join(sorted(undeclared))} written and read", f"@tw.op(mutates=({names},))")
    unclear = uses.unclear & {p.name for p in kernel.tensors} - returned - set(mutates)
    if unclear:
        name = min(unclear)
        _refuse(kernel, f"{name} given to another function, or a second name", f'{name}[...], or outputs=("{name}",)')
    unwritten = set(mutates) - uses.written - uses.unclear
    if unwritten:
        _refuse(kernel, f"mutates {', '.join(sorted(unwritten))}, which the body does not write", "tensors it writes")


def _check_names(kernel: Kernel, *named: Collection[str]) -> None:
    known = [p.name for p in kernel.tensors]
    for names in named:
        for name in names:
            if name not in known:
                _refuse(kernel, f"a declaration for {name}", f"one of {', '.join(known)}")


def _tensors(
    kernel: Kernel,
    results: list[TensorParam],
    outputs: Collection[str] | None,
    mutates: Collection[str],
    uses: ParameterUses,
) -> Iterator[Argument]:
    for param in kernel.tensors:
        if param in results or (param.optional and param.name in uses.results and param.name not in mutates):
            continue
        if param.name in mutates and param.optional:
            _refuse(kernel, f"{param.name}, mutated and optional", "a mutated tensor that every call gives")
        kind = (
            SchemaType.MUTATED
            if param.name in mutates
            else SchemaType.OPTIONAL
            if param.optional
            else SchemaType.TENSOR
        )
        yield Argument(param.name, kind, None if param.optional else REQUIRED, param.dims)


def _numbers(kernel: Kernel) -> Iterator[Argument]:
    """Scalars and compile-time keywords. Keywords of no type of a schema keep their defaults."""
    annotations = {p.name: p.annotation for p in inspect.signature(kernel.fn).parameters.values()}
    for param in kernel.params:
        match param:
            case ScalarParam():
                kind = SchemaType.FLOAT if param.dtype.is_float else SchemaType.INT
                yield Argument(param.name, kind, REQUIRED if param.default is None else param.default)
            case KeywordParam(auto=True):
                yield Argument(param.name, SchemaType.BLOCK, None)
            case KeywordParam():
                kind = _KINDS.get(str(annotations[param.name])) if param.required else _KINDS.get(type(param.default))
                if param.required and kind is None:
                    _refuse(
                        kernel, f"the keyword {param.name} without a type", f"{param.name}: bool, int, float or str"
                    )
                if kind is not None:
                    yield Argument(param.name, kind, REQUIRED if param.required else param.default)
            case TensorParam():
                pass


_OF_TYPE = {bool: SchemaType.FLAG, int: SchemaType.FIXED, float: SchemaType.FLOAT, str: SchemaType.TEXT}
_KINDS: dict[object, SchemaType] = {
    key: found for kind, found in _OF_TYPE.items() for key in (kind, kind.__name__, str(kind))
}
"""By a default's type, and by an annotation as it is written."""


def _result(
    signature: OpSignature, param: TensorParam, uses: ParameterUses, dtypes: Mapping[str, DType | str]
) -> Result:
    """A gradient ``dx`` has the dtype of ``x``, another result that of the first tensor that is no promise of
    integers, unless declared."""
    kernel, arguments = signature.kernel, signature.arguments
    tensors = [a for a in arguments if a.kind in (SchemaType.TENSOR, SchemaType.MUTATED)]
    given = [extent_of(d) for a in tensors for d in a.dims]
    known = {s for extent in given for s in extent.symbols} - unsolved(given)
    unknown = [d for d in param.dims if not extent_of(d).symbols <= known]
    if unknown:
        _refuse(
            kernel, f"{param.name} has {unknown[0]}, which no argument has", "results with the arguments' dimensions"
        )
    positions = {a.name: i for i, a in enumerate(arguments) if a.kind.is_tensor and a.kind is not SchemaType.OPTIONAL}
    promised = {t.name for t in kernel.tensors if t.promise is not None}
    first = next((a for a in tensors if a.name not in promised), arguments[0])
    declared = dtypes.get(param.name, param.name[1:] if param.name[1:] in positions else first.name)
    like = next(i for i, a in enumerate(arguments) if a.kind in (SchemaType.TENSOR, SchemaType.MUTATED))
    zero = param.name in uses.added
    if declared in positions:
        return Result(param.name, param.dims, positions[str(declared)], zero=zero)
    dtype = dtype_named(declared) if isinstance(declared, str) else declared
    if dtype is None or dtype.name not in DTYPE_NAMES:
        _refuse(kernel, f"{param.name} of {declared}", "an element type, or the name of a tensor that is always given")
    return Result(param.name, param.dims, like, getattr(torch, DTYPE_NAMES[dtype.name]), zero)


def _refuse(kernel: Kernel, found: str, required: str) -> NoReturn:
    fail("JIT009", where=kernel.where, found=f"{kernel.name}: {found}", required=required)

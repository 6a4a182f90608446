"""Runs an operator's kernel where its tensors are: on their GPU, by a function of PyTorch, or in the simulator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import combinations
from typing import Any

from tilewright import jit
from tilewright.artifact.store import ArtifactStore
from tilewright.base.dtypes import DTYPES, DType, dtype_named
from tilewright.base.expr import symbol_plus
from tilewright.base.number import is_alike
from tilewright.diag import fail
from tilewright.jit import lazy, pytorch
from tilewright.lang.params import extent_of
from tilewright.ops.pytorch import Tensor, as_tuple, constant, torch
from tilewright.ops.routes import Bind, Pick, Routes, Steps, binding, made_as, picker
from tilewright.ops.signature import OpSignature, SchemaType

_SIMULATED: ContextVar[bool] = ContextVar("simulated", default=False)


@contextmanager
def simulated() -> Generator[None]:
    """Within it operators on tensors of the CPU run their own kernels in the simulator, also those that else run as
    PyTorch's functions there: small shapes only, and the extra ``tilewright[compiler]``."""
    token = _SIMULATED.set(True)
    try:
        yield
    finally:
        _SIMULATED.reset(token)


@constant
def is_simulated() -> bool:
    """Whether tensors of the CPU run kernels in the simulator; a compiled graph keeps what it was then."""
    return _SIMULATED.get()


Fallback = Callable[..., Any]
"""Takes the operator's arguments in order, and returns its results; what it mutates, it mutates in place."""


class Execution:
    """One operator's kernel, with everything a call needs computed in advance."""

    def __init__(self, signature: OpSignature, fallback: Fallback | None) -> None:
        self.signature = signature
        self._fallback = fallback
        self._kernel = signature.kernel.compiled
        arguments = signature.arguments
        self._alike = tuple(
            r.dtype is None and not r.zero and r.dims == arguments[r.like].dims for r in signature.results
        )
        self._like = next(i for i, a in enumerate(signature.arguments) if a.kind is not SchemaType.OPTIONAL)
        positions = {a.name: i for i, a in enumerate(signature.arguments)}
        returned = {r.name: i for i, r in enumerate(signature.results)}
        places = positions | {name: len(positions) + i for name, i in returned.items()}
        self._slots = tuple((p.name, places.get(p.name)) for p in signature.kernel.tensors)
        self._scalars = tuple(positions[p.name] for p in signature.kernel.scalars)
        self._optional = tuple(i for i, a in enumerate(arguments) if a.kind is SchemaType.OPTIONAL)
        self._selections: dict[tuple[bool, ...], Selection] = {}
        self._always = None if self._optional else self._select(())
        named = {p.name for p in signature.kernel.keywords}
        self._keywords = tuple((i, a) for i, a in enumerate(signature.arguments) if a.name in named)
        self._tensors = len(signature.tensors)
        self._extents = tuple(_origins(signature, r.dims) for r in signature.results)
        self._adds = any(r.zero for r in signature.results)
        self._names = tuple(r.name for r in signature.results)
        self.routes = Routes(self._tensors, picker(tuple(i for i, _ in self._keywords)), self._like)
        with_results = picker(tuple(self._place_with_results(i) for i, _ in self._keywords))
        self.routes_into = Routes(self._tensors + len(self._names), with_results, self._like)

    def run_noted(self, values: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """``run`` of a call that nothing but autograd sees; calls like it may take its route."""
        results = self.run(values)
        bind = self._binding(values, results, values + results, lambda place: place)
        if bind is not None:
            self.routes.note(values, Steps(self._device(values), tuple(map(made_as, results)), len(results), (bind,)))
        return results

    def run_into_noted(self, values: tuple[Any, ...], results: tuple[Tensor, ...]) -> None:
        """``run_into`` of such a call."""
        self.run_into(values, results)
        whole = self._with_results(values, results)
        bind = self._binding(values, results, whole, self._place_with_results)
        if bind is not None:
            self.routes_into.note(whole, Steps(self._device(values), (), 0, (bind,)))

    def is_known_into(self, values: tuple[Any, ...], results: tuple[Tensor, ...]) -> bool:
        """Run a call such as one that ``run_into_noted`` was given; False, and nothing done, for any other."""
        if len(results) != len(self._names):
            return False
        whole = self._with_results(values, results)
        route = self.routes_into.find(whole)
        if route is None or (route.with_gradient and torch.is_grad_enabled()):
            return False
        return route.launch(whole) is not None

    def _device(self, values: tuple[Any, ...]) -> int:
        return values[self._like].get_device()

    def _with_results(self, values: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """All tensors before all numbers."""
        return values[: self._tensors] + results + values[self._tensors :]

    def _place_with_results(self, place: int) -> int:
        """Where there is what has this place in arguments and results."""
        count, results = len(self.signature.arguments), len(self._names)
        return place if place < self._tensors else place + results if place < count else place - count + self._tensors

    def _binding(
        self,
        values: tuple[Any, ...],
        results: tuple[Tensor, ...],
        given: tuple[Any, ...],
        at: Callable[[int], int],
    ) -> Bind | None:
        """What binds calls like the one that was just launched, ``at`` their places in ``given``."""
        if self._adds or not values[self._like].is_cuda:
            return None
        kernel, pick, places = self._selected(values)
        matched = kernel.match(pick(values + results), self._given(values))
        if matched is None:
            return None
        program, (guarded, _) = matched
        return binding(program, guarded, tuple(map(at, places)), len(kernel.function.tensors), given)

    def run(self, values: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """The results of a call with all its arguments, in order."""
        if not values[self._like].is_cuda:
            return self._on_cpu(values)
        results = self._allocated(values)
        self._launch(values, results)
        return results

    def run_into(self, values: tuple[Any, ...], results: tuple[Tensor, ...]) -> None:
        """The same, with given result tensors of the right shapes and dtypes."""
        if values[self._like].is_cuda:
            for result, described in zip(results, self.signature.results, strict=True):
                if described.zero:
                    result.zero_()
            self._launch(values, results)
            return
        self._require_apart((*(values[i] for i in self.signature.mutated), *results))
        for given, computed in zip(results, self._on_cpu(values), strict=True):
            given.copy_(computed)

    # -- on a GPU -----------------------------------------------------------------------------------------------------

    def _allocated(self, values: tuple[Any, ...]) -> tuple[Tensor, ...]:
        if self._alike == _ONE:
            return (_empty_like(values[self.signature.results[0].like], memory_format=_ROW_MAJOR),)
        made: list[Tensor] = []
        for i, (result, alike, origins) in enumerate(
            zip(self.signature.results, self._alike, self._extents, strict=True)
        ):
            source = values[result.like]
            if alike:  # of another rank, the launch refuses it
                made.append(_empty_like(source, memory_format=_ROW_MAJOR))
                continue
            if origins is None:
                shape = list(self.signature.described(values)[i][0])
            else:
                shape = [o if isinstance(o, int) else _extent(self.signature, values, *o) for o in origins]
            if result.dtype is None and not result.zero:
                made.append(source.new_empty(shape))
                continue
            make = torch.zeros if result.zero else torch.empty
            made.append(make(shape, dtype=result.dtype or source.dtype, device=source.device))
        return tuple(made)

    def compile_for(self, values: tuple[Any, ...], results: tuple[Tensor, ...], store: ArtifactStore) -> str:
        """The key of the artifact that a launch looks up, which is compiled into ``store`` if it is not there."""
        kernel, asked = self.looked_up(values, results)
        return kernel.ship(store, **asked)[0]

    def looked_up(self, values: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[jit.Kernel, dict[str, Any]]:
        """The lookup key of a launch: the kernel, and dtypes, facts and keywords of the call."""
        kernel, tensors = self._operands(values, results)
        observed = lazy.specialisation.Observed
        seen = {
            p.name: observed(_element(t), t.storage_offset() * t.element_size(), tuple(t.shape), tuple(t.stride()))
            for p, t in zip(kernel.function.tensors, tensors, strict=True)
        }
        facts = lazy.specialisation.observe_facts(seen)
        return kernel, {"dtypes": {n: o.dtype for n, o in seen.items()}, "facts": facts, **self._given(values)}

    def _operands(self, values: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[jit.Kernel, list[Tensor]]:
        """The kernel without its absent tensors, and those that it has, in order."""
        kernel, pick, _ = self._selected(values)
        return kernel, list(pick(values + results)[: len(kernel.function.tensors)])

    def _selected(self, values: tuple[Any, ...]) -> Selection:
        """What a call with these arguments runs, by which of the optional ones are None."""
        if self._always is not None:
            return self._always
        absent = tuple([values[i] is None for i in self._optional])
        return self._selections.get(absent) or self._select(absent)

    def _select(self, absent: tuple[bool, ...]) -> Selection:
        without = {i for i, missing in zip(self._optional, absent, strict=True) if missing}
        left_out = frozenset(name for name, place in self._slots if place is None or place in without)
        kept = [place for _, place in self._slots if place is not None and place not in without]
        kernel, places = self._kernel.without(left_out), (*kept, *self._scalars)
        self._selections[absent] = selection = (kernel, picker(places), places)
        return selection

    def _launch(self, values: tuple[Any, ...], results: tuple[Tensor, ...]) -> None:
        first = values[self._like]
        if self._adds:
            _alert(self.signature, results)
        kernel, pick, _ = self._selected(values)
        launched, keywords = pick(values + results), self._given(values)
        if kernel.launch_guarded(launched, keywords, None):
            return
        stream, allocator = pytorch.current_stream(first), pytorch.allocator(first)
        kernel.launch(launched, keywords, stream, allocator)
        kernel.check_results(self._names)

    def _given(self, values: tuple[Any, ...]) -> dict[str, Hashable]:
        """Compile-time keywords that are not as their defaults."""
        return {a.name: values[i] for i, a in self._keywords if not is_alike(values[i], a.default)}

    # -- on the CPU ---------------------------------------------------------------------------------------------------

    def _on_cpu(self, values: tuple[Any, ...]) -> tuple[Tensor, ...]:
        device = values[self._like].device.type
        if device != "cpu":
            fail(
                "JIT010",
                found=f"{self.signature.kernel.name} on tensors of the device {device}",
                required="CUDA tensors, or tensors of the CPU",
            )
        described = self.signature.described(values)
        if self._fallback is None or _SIMULATED.get():
            return self._simulated(values, described)
        with torch.autocast("cpu", enabled=False):  # arguments have their dtypes already
            results = as_tuple(self._fallback(*values))
        _check_fallback(self.signature, results, described)
        taken = {t.untyped_storage().data_ptr() for t in values[: len(self.signature.tensors)] if t is not None}
        return tuple(_row_major(result, taken) for result in results)

    def _require_apart(self, written: tuple[Tensor, ...]) -> None:
        for a, b in combinations(written, 2):
            if torch._C._overlaps(a, b):
                found = f"{tuple(a.shape)} and {tuple(b.shape)}, both written by {self.signature.kernel.name}"
                fail("RUN010", found=found, required="no byte in common")

    def _simulated(self, values: tuple[Any, ...], described: tuple[tuple[Any, Any], ...]) -> tuple[Tensor, ...]:
        results = tuple(
            (torch.zeros if r.zero else torch.empty)(shape, dtype=dtype)
            for r, (shape, dtype) in zip(self.signature.results, described, strict=True)
        )
        arguments: dict[str, Any] = {a.name: v for a, v in zip(self.signature.arguments, values, strict=True)}
        given = {p.name: arguments[p.name] for p in (*self.signature.tensors, *self.signature.kernel.scalars)}
        self._kernel(**given, **dict(zip(self._names, results, strict=True)), **dict[str, Any](self._given(values)))
        self._kernel.check_results(self._names)
        return results


def _element(tensor: Tensor) -> DType:
    found = dtype_named(str(tensor.dtype))
    if found is None:
        fail("JIT003", found=f"a tensor of {tensor.dtype}", required=", ".join(DTYPES))
    return found


_ONE = (True,)
_ROW_MAJOR = torch.contiguous_format
_empty_like = torch.empty_like

Selection = tuple[jit.Kernel, Pick, tuple[int, ...]]
"""A kernel, what picks its tensors and scalars, in order, from a call's arguments and results, and their places."""


Origin = int | tuple[int, int, int]
"""An extent, or where it is read: an argument's position, the axis, and what is added to that."""


def _origins(signature: OpSignature, dims: tuple[str | int, ...]) -> tuple[Origin, ...] | None:
    """Of a result's dimensions; None where one is no dimension of an argument and a number."""

    def origin(dim: str) -> Origin | None:
        wanted = extent_of(dim)
        known = symbol_plus(wanted)
        places = (
            (i, axis, known[1] - of[1])
            for i, a in enumerate(signature.arguments)
            for axis, held in enumerate(a.dims)
            if a.kind in (SchemaType.TENSOR, SchemaType.MUTATED)
            and known is not None
            and (of := symbol_plus(extent_of(held))) is not None
            and of[0] == known[0]
        )
        return next(places, None)

    found = [d if isinstance(d, int) else origin(d) for d in dims]
    return tuple(o for o in found if o is not None) if None not in found else None


def _extent(signature: OpSignature, values: tuple[Any, ...], position: int, axis: int, more: int) -> int:
    shape = values[position].shape
    if len(shape) != len(signature.arguments[position].dims):
        signature.described(values)  # refuses
    return shape[axis] + more


def _alert(signature: OpSignature, results: tuple[Tensor, ...]) -> None:
    """Sums added to memory in any order differ in their last bits from run to run: refused, or warned of, where the
    caller asked PyTorch for determinism. Integers do not round."""
    adding = (t for r, t in zip(signature.results, results, strict=True) if r.zero)
    if torch.are_deterministic_algorithms_enabled() and any(t.is_floating_point() for t in adding):
        message = f"{signature.kernel.name} adds floats to memory in any order, which is not deterministic"
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(f"{message}; torch.use_deterministic_algorithms(True) asks for an error")
        warnings.warn(message, stacklevel=2)


def _row_major(result: Tensor, taken: set[int]) -> Tensor:
    """The result in memory of its own, which begins at none of the addresses that are ``taken``."""
    own = result.contiguous()
    return own.clone() if own.untyped_storage().data_ptr() in taken else own


def _check_fallback(
    signature: OpSignature, results: tuple[Tensor, ...], described: tuple[tuple[Any, Any], ...]
) -> None:
    got = tuple((tuple(r.shape), r.dtype) for r in results)
    if got != described:
        name = signature.kernel.name
        fail(
            "JIT010", found=f"the fallback of {name} returned {got}", required=f"{described}, by the kernel's signature"
        )

"""Calls of an operator such as were served before: guarded inputs, results of known shapes, launches of known plans.

A route is made of an ordinary call. Its guard (``runtime.tensor_guards``) tells that a later call has inputs of the
same class, dispatch keys, dtype, device, shape and strides, so that it would end in the same launches: it tells
subclasses, transforms, tracing, autocast and negative views. Under modes and forward-mode differentiation no route is
taken (``is_watched``), under autocast, whose dtype is no dispatch key, none is made. Addresses are read anew at each
call, and their alignment is compared with the plans'.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import is_, itemgetter
from typing import Any, NamedTuple, cast

from tilewright.base.number import is_alike
from tilewright.jit import pytorch
from tilewright.ops.pytorch import Tensor, is_watched, torch
from tilewright.runtime import tensor_guards
from tilewright.runtime.allocator import LEGACY_STREAM
from tilewright.runtime.arguments import compact
from tilewright.runtime.call_cache import CallCache
from tilewright.runtime.plan import LaunchPlan
from tilewright.runtime.program import GuardedPlan, Program, has_residues

_MAX_COUNTED = 1024
"""Kinds of calls of which an operator knows how often they took the ordinary way."""

Pick = Callable[[tuple[Any, ...]], tuple[Any, ...]]
Made = tuple[tuple[int, ...], tuple[int, ...], Any]
"""Shape, strides and dtype of a result."""


Bound = tuple[Program, LaunchPlan, tuple[int, ...], tuple[int | float, ...]]
"""A program's plan, addresses of tensors, and scalars."""
Bind = Callable[[tuple[Any, ...]], Bound | None]
"""What is launched of a call, from its arguments, then its results, then constants; None where addresses or integers
are others than a plan's."""


def binding(
    program: Program, guarded: GuardedPlan, places: tuple[int, ...], tensors: int, given: tuple[Any, ...]
) -> Bind:
    """Of a launch of what has these places, ``tensors`` first; ``given`` is a call's that it served."""
    _, data_ptr, plan, residues, fixed = guarded
    pick, pick_tensors = picker(places), picker(places[:tensors])
    seen = tuple((place, given[place]) for place in places[tensors:])
    scalars = program.changing_values(pick(given))

    def bind(given: tuple[Any, ...]) -> Bound | None:
        addresses = tuple(map(data_ptr, pick_tensors(given)))
        if addresses != plan.latest and not has_residues(residues, addresses):
            return None
        for place, value in seen:
            if given[place] is not value:
                break
        else:
            return program, plan, addresses, scalars
        launched = pick(given)
        for i, value in fixed:
            if type(launched[i]) is not int or launched[i] != value:
                return None
        return program, plan, addresses, program.changing_values(launched)

    return bind


Launch = Callable[[tuple[Any, ...]], tuple[Tensor, ...] | None]
"""Results of a call that the guard told; None, and nothing done, where its addresses or integers are others."""


class Steps(NamedTuple):
    """What a route does. Of what is ``made`` the first ``returned`` are results, the others workspaces."""

    device: int
    made: tuple[Made, ...]
    returned: int
    launches: tuple[Bind, ...]
    constants: tuple[int | float, ...] = ()

    def launcher(self) -> Launch:
        """The call, as a function that holds what each call needs."""
        device, made, returned, launches, constants = self
        allocator, bind, others = pytorch.allocator_on(device), launches[0], launches[1:]
        one, makes_more = made[0] if len(made) == 1 else None, returned < len(made)

        def launch(values: tuple[Any, ...]) -> tuple[Tensor, ...] | None:
            if _current_device is None or _current_device() != device:
                results = _allocated(made, device)
            elif one is not None:  # as Inductor's own code: a microsecond less
                results = (_empty_strided_cuda(*one),)
            else:
                results = tuple([_empty_strided_cuda(*each) for each in made])
            given = values + results + constants
            bound = bind(given)
            if bound is None:
                return None
            behind = [each(given) for each in others] if others else ()
            if None in behind:
                return None
            stream = _raw_stream(device) or LEGACY_STREAM
            program, plan, addresses, scalars = bound
            program.launch_plan(plan, addresses, scalars, stream, allocator)
            for program, plan, addresses, scalars in cast("list[Bound]", behind) if behind else ():
                program.launch_plan(plan, addresses, scalars, stream, allocator)
            return results[:returned] if makes_more else results

        return launch


class Route(NamedTuple):
    """``inputs`` takes the tensors that the guard is of; ``absent`` are positions of optional tensors that are None.
    ``with_gradient``: one of the tensors wants a gradient."""

    check: tensor_guards.Check
    inputs: Pick
    absent: tuple[int, ...]
    keywords: tuple[Hashable, ...]
    with_gradient: bool
    launch: Launch
    steps: Steps


class Routes:
    """The routes of one operator. ``tensors`` arguments come first, of which that of ``first`` is never None;
    ``keywords`` takes the compile-time ones."""

    def __init__(self, tensors: int, keywords: Pick, first: int = 0) -> None:
        self._tensors, self._first = tensors, first
        self._keywords = keywords
        self._known = CallCache[Route]()
        self._asked: dict[Hashable, int] = {}

    def find(self, values: tuple[Any, ...]) -> Route | None:
        """The route of a call with all its arguments."""
        if is_watched():  # before all else: a compiled graph must not depend on what is known
            return None
        latest = self._known.latest
        if not latest or tensor_guards.has_nested(values[: self._tensors]):
            return None
        keywords = self._keywords(values)
        route = _matching(latest, values, keywords)
        if route is None:
            first = values[self._first]
            route = _matching(self._known.of_shape(first), values, keywords)
            if route is not None:  # the next call is likely to be like this one
                self._known.touch(first, route)
        return route

    def note(self, values: tuple[Any, ...], steps: Steps) -> None:
        """Make a route of a call, at the first, second, fourth, ... one of its kind: making a route costs more than an
        ordinary call."""
        if is_watched() or torch.is_autocast_enabled("cuda"):
            return
        keywords = self._keywords(values)
        kind = (*map(_kind, values[: self._tensors]), *keywords)
        asked = self._asked.pop(kind, 0) + 1
        if len(self._asked) >= _MAX_COUNTED:
            self._asked.clear()
        self._asked[kind] = asked
        if asked & (asked - 1):
            return
        inputs = tuple(i for i in range(self._tensors) if values[i] is not None)
        tensors = tuple(values[i] for i in inputs)
        found = tensor_guards.guard(tensors)
        if found is not None:
            absent = tuple(i for i in range(self._tensors) if values[i] is None)
            wanted = any(t.requires_grad for t in tensors)
            route = Route(found[0], picker(inputs), absent, keywords, wanted, steps.launcher(), steps)
            self._known.add(values[self._first], route)

    def note_rows(self, rows: tuple[Any, ...], values: tuple[Any, ...], shape: tuple[int, ...]) -> None:
        """Let a call with ``values`` take the route of the call with ``rows``, which are views of them of the same
        addresses and have two axes, and return results of this shape."""
        route = self.find(rows)
        given = zip(rows[: self._tensors], values[: self._tensors], strict=True)
        if route is None or route.with_gradient or any(a is not b and a.data_ptr() != b.data_ptr() for a, b in given):
            return
        made = tuple(row_major(shape, dtype) for _, _, dtype in route.steps.made)
        self.note(values, route.steps._replace(made=made))


def _matching(routes: tuple[Route, ...], values: tuple[Any, ...], keywords: tuple[Hashable, ...]) -> Route | None:
    """The first of these that serves a call."""
    for route in routes:
        check, inputs, absent, wanted, _, _, _ = route
        if check(*inputs(values)) and (all(map(is_, wanted, keywords)) or all(map(is_alike, wanted, keywords))):
            for i in absent:
                if values[i] is not None:
                    break
            else:
                return route
    return None


def _kind(tensor: Tensor) -> Hashable:
    """What guards tell of a tensor."""
    if tensor is None:
        return None
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad


def made_as(tensor: Tensor) -> Made:
    """What makes a tensor such as this one."""
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def row_major(shape: tuple[int, ...], dtype: Any) -> Made:
    """Of row-major strides."""
    return shape, compact(shape), dtype


def picker(places: tuple[int, ...]) -> Pick:
    """``itemgetter``, whose result is a tuple for any number of places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda given: tuple([given[place] for place in places])


def _allocated(made: tuple[Made, ...], device: int) -> tuple[Tensor, ...]:
    on = torch.device("cuda", device)
    return tuple([torch.empty_strided(shape, strides, dtype=dtype, device=on) for shape, strides, dtype in made])


_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", pytorch.raw_stream)
_current_device: Callable[[], int] | None = getattr(torch._C, "_cuda_getDevice", None)
_empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda

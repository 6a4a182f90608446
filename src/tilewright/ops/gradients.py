"""An operator's gradients: other kernels, or a function over operators, joined by the names of what they take.

A kernel or function of the backward names what it needs: ``x`` an argument of the forward, ``y`` a result of it, ``dy``
the gradient of a result. A backward kernel's results are called after the arguments whose gradients they are: ``dx``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from tilewright.diag import fail
from tilewright.ops.pytorch import as_tuple
from tilewright.ops.routes import picker
from tilewright.ops.signature import OpSignature

Backward = Callable[..., Any]
"""Returns a gradient, or a tuple of one for each tensor argument in order; None for what has none."""


class Operator(Protocol):
    """An operator that computes gradients."""

    @property
    def signature(self) -> OpSignature: ...
    def given(self, **named: Any) -> Any: ...


@dataclass(frozen=True)
class _Part:
    """A kernel or a function of the backward, with the names of what it takes and of the gradients that it makes."""

    run: Callable[..., Any]
    takes: tuple[str, ...]
    makes: tuple[str, ...]


def _of_function(function: Backward, tensors: tuple[str, ...]) -> _Part:
    return _Part(function, tuple(inspect.signature(function).parameters), tensors)


class Gradients:
    """The tensors that autograd saves for a call, and the computation of its gradients."""

    def __init__(self, signature: OpSignature, operators: tuple[Operator, ...], function: Backward | None) -> None:
        self._name = signature.kernel.name
        self._arguments = tuple(a.name for a in signature.arguments)
        self._tensors = tuple(a.name for a in signature.tensors)
        self._results = tuple(r.name for r in signature.results)
        self._parts = self._read(operators, signature) if function is None else (_of_function(function, self._tensors),)
        taken = {name for part in self._parts for name in part.takes}
        known = {*self._arguments, *self._results, *(f"d{r}" for r in self._results)}
        if not taken <= known:
            self._refuse(signature, f"{', '.join(sorted(taken - known))} in the backward", ", ".join(sorted(known)))
        self.saved = tuple(n for n in (*self._tensors, *self._results) if n in taken)
        self._numbers = tuple(n for n in self._arguments if n in taken and n not in self._tensors)
        places = {name: i for i, name in enumerate((*self._arguments, *self._results))}
        self._pick_saved = picker(tuple(places[n] for n in self.saved))
        self._pick_numbers = picker(tuple(places[n] for n in self._numbers))
        self._without_gradient = tuple(i for i, r in enumerate(self._results) if f"d{r}" not in taken and self._parts)

    def _read(self, operators: tuple[Operator, ...], signature: OpSignature) -> tuple[_Part, ...]:
        parts: list[_Part] = []
        for op in operators:
            makes = tuple(r.name[1:] for r in op.signature.results)
            if not set(makes) <= set(self._tensors) or any(not r.name.startswith("d") for r in op.signature.results):
                found = f"a backward kernel that returns {', '.join(r.name for r in op.signature.results)}"
                self._refuse(signature, found, f"some of {', '.join(f'd{t}' for t in self._tensors)}")
            parts.append(
                _Part(op.given, tuple(a.name for a in op.signature.arguments if self._is_known(a.name)), makes)
            )
        return tuple(parts)

    def _is_known(self, name: str) -> bool:
        """Arguments of a backward kernel that the forward has not keep their defaults."""
        return name in self._arguments or name in self._results or (name[:1] == "d" and name[1:] in self._results)

    def save(self, ctx: Any, values: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """Keep what the backward names."""
        whole = (*values, *results)
        ctx.save_for_backward(*self._pick_saved(whole))
        if self._numbers:  # of an attribute PyTorch makes a dictionary
            ctx.numbers = self._pick_numbers(whole)
        if self._without_gradient:
            ctx.mark_non_differentiable(*(results[i] for i in self._without_gradient))

    def compute(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """A gradient for each argument, the last ones of the function whose context it is; None for numbers and for
        what needs none. JIT011 without a backward."""
        if not self._parts:
            fail(
                "JIT011",
                found=f"a gradient of {self._name}, which has no backward",
                required="an operator with a backward, where something before it needs a gradient",
            )
        known = dict(zip(self.saved, ctx.saved_tensors, strict=True))
        known |= dict(zip(self._numbers, ctx.numbers if self._numbers else (), strict=True))
        known |= {f"d{r}": g for r, g in zip(self._results, grads, strict=True)}
        needs = ctx.needs_input_grad[-len(self._arguments) :]
        needed = {n for n, needs in zip(self._arguments, needs, strict=True) if needs}
        found: dict[str, Any] = {}
        for part in self._parts:
            if needed.intersection(part.makes):
                gradients = as_tuple(part.run(**{name: known[name] for name in part.takes}))
                if len(gradients) != len(part.makes):
                    fail(
                        "JIT010",
                        found=f"{len(gradients)} gradients from the backward of {self._name}",
                        required=f"one, or None, for each of {', '.join(part.makes)}",
                    )
                found |= dict(zip(part.makes, gradients, strict=True))
        return tuple(found.get(n) if n in needed else None for n in self._arguments)

    def _refuse(self, signature: OpSignature, found: str, required: str) -> NoReturn:
        fail("JIT009", where=signature.kernel.where, found=f"{self._name}: {found}", required=required)

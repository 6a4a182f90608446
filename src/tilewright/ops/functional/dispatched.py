"""Operators of PyTorch's dispatcher that run several kernels, each defined once for CPU and CUDA."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NoReturn

from tilewright.diag import fail
from tilewright.ops.pytorch import is_plain, is_transformed, on_one_device, torch, wants_gradient
from tilewright.ops.transforms import transformable, without_wrappers

_library = torch.library.Library("tilewright", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_DEFINED: list[Composition] = []
_DEVICES = ("cpu", "cuda")


def compositions() -> tuple[Composition, ...]:
    """All that were made so far."""
    return tuple(_DEFINED)


class Composition:
    """The operator ``tilewright::`` of ``schema``: what it computes, the empty results of fake tensors, and its
    gradient (JIT011 without one), for which ``save`` keeps of a call what it needs."""

    def __init__(
        self,
        schema: str,
        compute: Callable[..., Any],
        fake: Callable[..., Any],
        gradient: Callable[..., Any] | None = None,
        save: Callable[..., None] | None = None,
    ) -> None:
        self.name, self.compute = schema.partition("(")[0], compute
        _DEFINED.append(self)
        define(schema, compute, fake)
        self.overload = getattr(torch.ops.tilewright, self.name).default
        kept, derived = save or _keep_nothing, gradient or self._refuse_gradient
        torch.library.register_autograd(f"tilewright::{self.name}", derived, setup_context=kept, lib=_library)
        self._transformed = transformable(self.name, self.overload, kept, derived)
        self._record = without_wrappers(_recorded(compute, kept, derived))
        self._mutates = "!" in schema

    def __call__(self, *values: Any) -> Any:
        """The results of a call with all arguments, in order; past the dispatcher, some 20 us, where only autograd
        would see it."""
        if is_transformed():
            return self._transformed.apply(*values)
        tensors = tuple([v for v in values if isinstance(v, torch.Tensor)])
        device = values[0].device.type
        if self._mutates or not is_plain(tensors) or device not in _DEVICES or torch.is_autocast_enabled(device):
            return self.overload(*values)
        return (self._record if wants_gradient(tensors) else self.compute)(*values)

    def _refuse_gradient(self, *_: Any) -> NoReturn:
        required = "tensors that need no gradient, or what comes before it differentiated once"
        fail("JIT011", found=f"a gradient of {self.name}", required=required)


def _recorded(compute: Callable[..., Any], save: Callable[..., None], gradient: Callable[..., Any]) -> Any:
    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            results = compute(*values)
            save(ctx, values, results)
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return gradient(ctx, *grads)

    return Recorded


def define(schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """An operator without a gradient, for CPU and CUDA."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=_TAGS)
    for key in map(str.upper, _DEVICES):
        _library.impl(name, _alone(compute), key)
    torch.library.register_fake(f"tilewright::{name}", on_one_device(name, fake), lib=_library)


def _alone(compute: Callable[..., Any]) -> Callable[..., Any]:
    """``compute``, whose operations autograd does not record and autocast does not cast. A tensor is its first
    argument."""
    unrecorded = torch.no_grad()(compute)

    def run(*values: Any) -> Any:
        device = values[0].device.type
        if not torch.is_autocast_enabled(device):
            return unrecorded(*values)
        with torch.autocast(device, enabled=False):
            return unrecorded(*values)

    return run


class AttentionPair:
    """An operator that returns (y, lse), and ``NAME_out``, which writes them; ``write`` takes what the operator takes
    and both results, ``empty`` makes these. ``gradient`` and ``save`` are a composition's; of the form that writes, and
    without them, a gradient is refused (JIT011), for the reason ``why``."""

    def __init__(
        self,
        name: str,
        formals: str,
        write: Callable[..., None],
        empty: Callable[..., tuple[Any, Any]],
        why: str,
        gradient: Callable[..., Any] | None = None,
        save: Callable[..., None] | None = None,
    ) -> None:
        self._name, self._write, self._empty, self._why = name, _alone(write), empty, why
        schema = f"{name}({formals}) -> (Tensor, Tensor)"
        self.operator = Composition(schema, self.compute, empty, gradient or self.refuse_gradient, save)
        define(f"{name}_out({formals}, Tensor(a!) out, Tensor(b!) lse) -> ()", self._write_apart, nothing)

    def compute(self, *given: Any) -> tuple[Any, Any]:
        """Both results, bypassing the dispatcher."""
        results = self._empty(*given)
        self._write(*given, *results)
        return results

    def _write_apart(self, *given: Any) -> None:
        """Into results that share no byte with what is read; RUN010 for others."""
        for result, read in product(given[-2:], given[:-2]):
            if isinstance(read, torch.Tensor) and torch._C._overlaps(result, read):
                found = f"{self._name} into memory of {tuple(result.shape)} that it also reads"
                fail("RUN010", found=found, required="out= that shares no byte with other arguments")
        self._write(*given)

    def refuse_gradient(self, *_: Any) -> NoReturn:
        """JIT011."""
        required = f"tensors that need no gradient, or torch.no_grad(): {self._why}"
        fail("JIT011", found=f"a gradient of {self._name}", required=required)


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """What a gradient that is refused needs."""


def nothing(*_: Any) -> None:
    """The fake implementation of an operator that only writes."""

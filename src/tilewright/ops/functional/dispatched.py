"""Operators of PyTorch's dispatcher that run several kernels, each defined once for CPU and CUDA."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tilewright.diag import fail
from tilewright.ops.pytorch import torch

_library = torch.library.Library("tilewright", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)


def define(schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """The operator ``tilewright::`` of ``schema``: what it computes, and the empty results of fake tensors."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=_TAGS)
    for key in ("CPU", "CUDA"):
        _library.impl(name, torch.no_grad()(compute), key)
    torch.library.register_fake(f"tilewright::{name}", fake, lib=_library)


def differentiate(name: str, gradient: Callable[..., Any], save: Callable[..., None] | None = None) -> None:
    """The gradient of an operator that is defined; ``save`` keeps of a call what it needs."""
    torch.library.register_autograd(f"tilewright::{name}", gradient, setup_context=save, lib=_library)


class AttentionPair:
    """An operator that returns (y, lse), and ``NAME_out``, which writes them; ``write`` takes what the operator takes
    and both results, ``empty`` makes these. A gradient is refused (JIT011), for the reason ``why``."""

    def __init__(
        self, name: str, formals: str, write: Callable[..., None], empty: Callable[..., tuple[Any, Any]], why: str
    ) -> None:
        self._name, self._write, self._empty, self._why = name, write, empty, why
        define(f"{name}({formals}) -> (Tensor, Tensor)", self.compute, empty)
        define(f"{name}_out({formals}, Tensor(a!) out, Tensor(b!) lse) -> ()", write, _nothing)
        differentiate(name, self.refuse_gradient)

    def compute(self, *given: Any) -> tuple[Any, Any]:
        """Both results, past the dispatcher."""
        results = self._empty(*given)
        self._write(*given, *results)
        return results

    def refuse_gradient(self, *_: Any) -> NoReturn:
        """JIT011."""
        required = f"tensors that need no gradient, or torch.no_grad(): {self._why}"
        fail("JIT011", found=f"a gradient of {self._name}", required=required)


def _nothing(*_: Any) -> None:
    """What a form with ``out=`` makes of fake tensors: it only writes."""

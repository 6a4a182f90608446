"""How a module of a model is computed instead, and whether that agrees with the module on random input."""

# PyTorch ships no types that our checker reads.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.ops.pytorch import Tensor, torch, wants_gradient

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}

Forward = Callable[..., Any]
"""A ``forward`` that takes the module and its input."""


@dataclass(frozen=True)
class Proposal:
    """How to compute a module, and the width of the input that it is tried on; or why not. ``trial`` is what is tried
    where that is not ``forward``; ``takes`` the names of what it takes beside that; ``experts``, among which the rows
    of the input choose two. ``otherwise`` is another way, where only a trial tells which is the module's. ``passes_by``
    are modules of it that are not called; ``probe`` calls what it is given and the input, and returns what is compared,
    where that is more than one result of one tensor."""

    operator: str = ""
    forward: Forward | None = None
    width: int = 0
    reason: str = ""
    trial: Forward | None = None
    takes: tuple[str, ...] = ()
    experts: int = 0
    otherwise: Forward | None = None
    passes_by: tuple[str, ...] = ()
    probe: Callable[..., Tensor] | None = None


def is_own(x: Tensor, parameters: Any, *, inference: bool, training: bool) -> bool:
    """Whether a module stays its own in a graph that ``torch.compile`` makes: there an operator is taken only on a GPU,
    and where it was measured to be faster than what Inductor makes of the module, without gradients or with
    (docs/measured/pytorch.md, "Operators of PyTorch")."""
    if not torch.compiler.is_compiling():
        return False
    wins = training if wants_gradient((x, *parameters)) else inference
    return not wins or not x.is_cuda


def own(module: Any, *given: Any, **named: Any) -> Any:
    """The result by the forward of the module's class, through no cast, which Dynamo would not follow."""
    return type(module).forward(module, *given, **named)  # pyright: ignore[reportUnknownVariableType]


def has_hooks(module: Any) -> bool:
    """Of its own, before or behind its forward or backward."""
    return any(getattr(module, name, None) for name in _HOOKS)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

NOTES = {
    (True, True): "",
    (True, False): "under torch.compile with gradients its own",
    (False, True): "under torch.compile without gradients its own",
    (False, False): "under torch.compile its own",
}
"""What the report tells of an operator that wins without gradients, and with."""


class _Tried(torch.nn.Module):
    """A module computed by ``run``, for a call with other parameters."""

    def __init__(self, module: Any, run: Forward) -> None:
        super().__init__()
        self.module, self.run = module, run

    def forward(self, *given: Any) -> Tensor:
        return self.run(self.module, *given)


def disagreement(module: Any, proposal: Proposal, forward: Forward | None) -> str:
    """How ``forward`` differs from the original on a few random rows; nothing if it does not. Parameters that say
    little, as those of a new model do (weights of one, projections of zero), are random ones meanwhile."""
    assert forward is not None
    first = next(module.parameters(), None)
    dtype = torch.float32 if first is None else first.dtype
    device = "cpu" if first is None else first.device
    if str(device) == "meta":
        return "its parameters are on the meta device: patch the model when it is loaded"
    generator, tolerance = torch.Generator().manual_seed(0), _TOLERANCE[dtype]
    telling = {f"module.{name}": _telling(p, generator) for name, p in module.named_parameters()}
    given = [t.to(device) for t in _example(proposal, dtype, generator)]
    on_gpu = [device] if given[0].is_cuda else []
    probe = proposal.probe or _called
    ways = [_Tried(module, partial(probe, way)) for way in (_original, forward)]
    for training in (False, True):  # dropout, say
        try:
            with torch.no_grad(), _mode(module, training), torch.random.fork_rng(on_gpu):
                expected, got = (torch.func.functional_call(way, telling, tuple(given)) for way in ways)
        except Exception as error:  # of a stranger's module
            return f"trying it failed: {error!r:.120}"
        if expected.dtype != got.dtype:
            return f"results are {got.dtype}, not {expected.dtype}"
        if expected.shape != got.shape or not torch.allclose(expected, got, rtol=tolerance, atol=tolerance):
            return f"results differ from its own{' in training' if training else ''}"
    return ""


def _original(module: Any, *given: Any, **named: Any) -> Any:
    return module(*given, **named)


def _called(way: Forward, module: Any, *given: Any) -> Tensor:
    return way(module, *given)


def _telling(parameter: Tensor, generator: Any) -> Tensor:
    """A vector, and what is zero throughout, of random numbers; another parameter as it is."""
    with torch.no_grad():
        if parameter.dim() > 1 and bool(parameter.any()):
            return parameter
        scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.5
        return (torch.randn(parameter.shape, generator=generator) * scale).to(parameter)


@contextmanager
def _mode(module: Any, training: bool) -> Generator[None]:
    """``module`` in training or evaluation."""
    before = [(each, each.training) for each in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for each, mode in before:
            each.training = mode


def _example(proposal: Proposal, dtype: Any, generator: Any) -> list[Tensor]:
    """A few random rows, and where experts are chosen, ids and weights; of a loss, targets."""
    x = torch.randn((3, 5, proposal.width), generator=generator).to(dtype)
    if proposal.probe is not None or not proposal.takes:
        return [x]
    if not proposal.experts:
        return [x.flatten(0, 1), torch.randint(0, proposal.width, (15,), generator=generator)]
    ids = torch.randint(0, proposal.experts, (15, 2), generator=generator)
    return [x.flatten(0, 1), ids, torch.rand((15, 2), generator=generator).to(dtype)]

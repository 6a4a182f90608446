"""``tw.patch(model)``: operators in place of a model's own modules, one instance at a time, and what was done and not.

A module is replaced by binding a ``forward`` to this very instance: its class, other models and its parameters stay as
they are, and ``undo`` takes the binding away. Each candidate is run once beside the original on random input.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, NoReturn, cast

from tilewright import ops
from tilewright.diag import type_shown
from tilewright.ops import head_norms
from tilewright.ops.functional.arguments import COMPUTED
from tilewright.ops.functional.experts import is_of_kernels
from tilewright.ops.proposals import NOTES, Forward, Proposal, disagreement, has_hooks, is_own, own
from tilewright.ops.pytorch import Tensor, torch
from tilewright.ops.registries import choose_attention, choose_loss

_nn = torch.nn


@dataclass(frozen=True)
class PatchEntry:
    """One module: its path, its class, the operator that replaces it, or why none does, or not always."""

    path: str
    kind: str
    operator: str = ""
    reason: str = ""

    def __str__(self) -> str:
        told = f"left: {self.reason}" if not self.operator else self.operator + (self.reason and f", {self.reason}")
        return f"{self.path or '(the model)'} ({self.kind}): {told}"


@dataclass
class Patched:
    """The result of ``patch``. Printed, it lists every module that was considered."""

    entries: list[PatchEntry] = field(default_factory=list[PatchEntry])
    _undo: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    @property
    def replaced(self) -> list[PatchEntry]:
        """Modules that operators compute."""
        return [e for e in self.entries if e.operator]

    @property
    def left(self) -> list[PatchEntry]:
        """Modules that were considered and left unchanged."""
        return [e for e in self.entries if not e.operator]

    def undo(self) -> None:
        """The model as it was; twice does no harm. What others have bound since stays."""
        while self._undo:
            self._undo.pop()()

    def bind(self, module: Any, forward: Forward) -> None:
        """Compute this instance by ``forward``."""
        bound = partial(forward, module)  # which is pickled and copied with the module, as no method of it is
        module.forward, module.__prepare_scriptable__ = bound, _refuse_script

        def undo() -> None:
            held = cast("dict[str, Any]", vars(module))
            held.pop("__prepare_scriptable__", None)
            if held.get("forward") is bound:
                del module.forward

        self._undo.append(undo)

    def choose_attention(self, model: Any) -> None:
        """Through the registry that a model of transformers asks; no other model has one."""
        chosen = choose_attention(model)
        if chosen is not None:
            reason, undo = chosen
            self.entries.append(PatchEntry("", type(model).__name__, "ops.attention" if undo else "", reason))
            if undo is not None:
                self._undo.append(undo)

    def choose_loss(self, model: Any) -> None:
        """Where a model of transformers keeps it."""
        chosen = choose_loss(model)
        if chosen is not None:
            kind, undo = chosen
            operator, reason = ("ops.cross_entropy", "") if undo else ("", "it is not the one of causal models")
            self.entries.append(PatchEntry("loss_function", kind, operator, reason))
            if undo is not None:
                self._undo.append(undo)

    def __str__(self) -> str:
        head = f"{len(self.replaced)} of {len(self.entries)} modules replaced"
        return "\n".join([head, *(f"  {entry}" for entry in self.entries)])


def patch(model: Any, *, check: bool = True) -> Patched:
    """Replace the norms, gated MLPs, experts, unaligned linear layers and losses of ``model``, and, in a model of
    transformers whose attention is ``sdpa``, that; returns the report, with ``undo()``.

    Modules with hooks, of dtypes that no kernel has, or already bound are left. With ``check`` each replacement is
    compared with the original on random rows, where the module lies, in training and in evaluation, and left if they
    disagree. A model that is compiled already is left, and so are such modules: patch first.
    """
    if not isinstance(model, _nn.Module):
        raise TypeError(f"patch takes a torch.nn.Module, not {type_shown(model)}")
    report = Patched()
    compiled = {path for path, module in model.named_modules() if _is_compiled(module)}
    if "" not in compiled:
        report.choose_attention(model)
        report.choose_loss(model)
    for path, module in model.named_modules():
        if path in compiled:
            report.entries.append(PatchEntry(path, type(module).__name__, reason="compiled already: patch it before"))
        if any(path == outer or not outer or path.startswith(f"{outer}.") for outer in compiled):
            continue
        proposal = _propose(module)
        if proposal is None:
            continue
        reason, forward = proposal.reason or _obstacle(module, proposal), proposal.forward
        if not reason:
            reason, forward = _chosen(module, proposal, check=check)
        if reason or forward is None:
            report.entries.append(PatchEntry(path, type(module).__name__, reason=reason))
            continue
        report.bind(module, forward)
        note = getattr(forward, "note", "")
        report.entries.append(PatchEntry(path, type(module).__name__, proposal.operator, note))
    return report


def _refuse_script() -> NoReturn:
    """What ``torch.jit.script`` asks a module for first."""
    raise TypeError("torch.jit.script does not read operators: undo() the patch before, or use torch.export or compile")


def _is_compiled(module: Any) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _chosen(module: Any, proposal: Proposal, *, check: bool) -> tuple[str, Forward | None]:
    """Why a module is left, or how it is computed."""
    if not check:
        return ("which of two norms it is only a check tells" if proposal.otherwise else ""), proposal.forward
    reason = disagreement(module, proposal, proposal.trial or proposal.forward)
    if reason and proposal.otherwise is not None and not disagreement(module, proposal, proposal.otherwise):
        return "", proposal.otherwise
    return reason, proposal.forward


# -- what is known of modules ---------------------------------------------------------------------------------------


def _propose(module: Any) -> Proposal | None:
    """Of modules of a known kind; None of others."""
    for rule in (_norm, _mlp, _experts, _linear, head_norms.propose, _attention, _loss):
        found = rule(module)
        if found is not None:
            return found
    return None


def _norm(module: Any) -> Proposal | None:
    if isinstance(module, _nn.LayerNorm | _nn.RMSNorm):
        if _own_forward(module) not in (_nn.LayerNorm.forward, _nn.RMSNorm.forward):
            return Proposal(reason="a subclass with a forward of its own")
        shape = tuple(module.normalized_shape)
        if len(shape) != 1:
            return Proposal(reason=f"it normalises {len(shape)} axes")
        if isinstance(module, _nn.LayerNorm):
            return Proposal("ops.layer_norm", _layer_forward, shape[0])
        return Proposal("ops.rms_norm", _rms_forward, shape[0])
    if not type(module).__name__.endswith("RMSNorm"):
        return None
    weight: Any = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1:
        return Proposal(reason="it has no weight of one axis")
    if isinstance(getattr(module, "variance_epsilon", None), float):
        return Proposal("ops.rms_norm", _named_rms_forward, len(weight))
    if isinstance(getattr(module, "eps", None), float):
        return Proposal("ops.rms_norm", _eps_rms_forward, len(weight), otherwise=_offset_rms_forward)
    return Proposal(reason="it has neither variance_epsilon nor eps")


def _of_one(*, inference: bool, training: bool) -> Callable[[Forward], Forward]:
    """Which takes its tensor by position, or by the name that the module's own has for it. Of a graph that
    ``torch.compile`` makes, without gradients or with, the operator is a part only where it was measured to be faster
    than what Inductor makes of the module (docs/measured/pytorch.md, "Operators of PyTorch"), and on a GPU."""

    def decorated(forward: Forward) -> Forward:
        @wraps(forward)
        def run(self: Any, *given: Any, **named: Any) -> Any:
            (x,) = (*given, *named.values())
            if is_own(x, self.parameters(), inference=inference, training=training):
                return own(self, x)
            return forward(self, x)

        cast("Any", run).note = NOTES[inference, training]
        return run

    return decorated


@_of_one(inference=False, training=True)
def _rms_forward(self: Any, x: Tensor) -> Tensor:
    eps = torch.finfo(torch.float32).eps if self.eps is None else self.eps  # PyTorch's, of 16-bit tensors too
    return ops.rms_norm(x, self.weight, eps=eps)


@_of_one(inference=False, training=True)
def _named_rms_forward(self: Any, x: Tensor) -> Tensor:
    if x.dtype != self.weight.dtype:  # some promote, others do not
        return own(self, x)
    return ops.rms_norm(x, self.weight, eps=self.variance_epsilon)


@_of_one(inference=False, training=True)
def _eps_rms_forward(self: Any, x: Tensor) -> Tensor:
    if x.dtype != self.weight.dtype:  # some promote, others do not
        return own(self, x)
    return ops.rms_norm(x, self.weight, eps=self.eps)


@_of_one(inference=False, training=True)
def _offset_rms_forward(self: Any, x: Tensor) -> Tensor:
    """Of Gemma and its kin, whose weight counts from 1."""
    if x.dtype != self.weight.dtype:  # some promote, others do not
        return own(self, x)
    return ops.rms_norm(x, 1.0 + self.weight.float(), eps=self.eps)


@_of_one(inference=True, training=True)
def _layer_forward(self: Any, x: Tensor) -> Tensor:
    return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)


def _mlp(module: Any) -> Proposal | None:
    """gate, up and down projections around an activation, as Llama and its kin name them."""
    parts: list[Any] = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj", "act_fn")]
    if any(part is None for part in parts):
        return None
    if not all(isinstance(part, _nn.Linear) for part in parts[:3]):
        return Proposal(reason="its projections are no torch.nn.Linear")
    kind, width = _activation(parts[3]), parts[0].in_features
    if kind == _SILU:
        return Proposal("ops.swiglu", _swiglu_forward, width, passes_by=_ACTIVATION)
    if kind:
        return Proposal("ops.geglu", _geglu_forward, width, passes_by=_ACTIVATION)
    return Proposal(reason=f"its activation {type(parts[3]).__name__} is neither SiLU nor GELU")


_ACTIVATION = ("act_fn",)
_SILU = "silu"
_TANH = ("GELUTanh", "PytorchGELUTanh", "NewGELUActivation")
"""What transformers calls them; its ``GELUActivation`` is the exact one."""


def _activation(act: Any) -> str:
    """``silu``, or of GELU its approximation: ``none`` or ``tanh``; empty for others."""
    name = type(act).__name__
    if isinstance(act, _nn.SiLU) or name in ("SiLU", "SiLUActivation") or act is _nn.functional.silu:
        return _SILU
    if name in _TANH:
        return "tanh"
    if isinstance(act, _nn.GELU) or name == "GELUActivation":
        return getattr(act, "approximate", "none")
    return ""


@_of_one(inference=False, training=False)
def _swiglu_forward(self: Any, x: Tensor) -> Tensor:
    if _activation(self.act_fn) != _SILU or has_hooks(self.act_fn):
        return own(self, x)
    return self.down_proj(ops.swiglu(self.gate_proj(x), self.up_proj(x)))


@_of_one(inference=True, training=True)
def _geglu_forward(self: Any, x: Tensor) -> Tensor:
    kind = _activation(self.act_fn)
    if kind in ("", _SILU) or has_hooks(self.act_fn):
        return own(self, x)
    return self.down_proj(ops.geglu(self.gate_proj(x), self.up_proj(x), approximate=kind))


def _experts(module: Any) -> Proposal | None:
    """Weights of all experts in two tensors, as transformers has them from 5.0: called with rows, ids and weights."""
    parts: list[Any] = [getattr(module, name, None) for name in ("gate_up_proj", "down_proj", "act_fn")]
    both, down, act = parts
    if not all(isinstance(t, torch.Tensor) and t.dim() == 3 for t in (both, down)):
        return None
    count, width, inner = down.shape
    asks = {
        "has_bias": "biases",
        "is_transposed": "transposed weights",
        "has_post_expert_norm": "a norm of each expert",
    }
    found = [told for name, told in asks.items() if getattr(module, name, False)]
    if not getattr(module, "is_concatenated", True) or tuple(both.shape) != (count, 2 * inner, width):
        found.append("gates that do not lie before the other half")
    if _activation(act) != _SILU:
        found.append("an activation that is not SiLU")
    if found:
        return Proposal(reason=f"its experts have {', '.join(found)}")
    return Proposal(
        "ops.experts",
        _experts_forward,
        width,
        trial=_experts_trial,
        takes=_CHOICES,
        experts=count,
        passes_by=_ACTIVATION,
    )


_CHOICES = ("top_k_index", "top_k_weights")


def _experts_trial(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    return ops.experts(hidden_states, top_k_index, top_k_weights, self.gate_up_proj, self.down_proj)


def _own_forward(module: Any) -> Any:
    return cast("Any", type(module)).forward


def _experts_forward(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """By kernels; where these do not run, by the module's own way."""
    is_as_tried = _activation(self.act_fn) == _SILU and not has_hooks(self.act_fn)
    if is_as_tried and is_of_kernels(hidden_states, self.gate_up_proj, self.down_proj):
        return _experts_trial(self, hidden_states, top_k_index, top_k_weights)
    return own(self, hidden_states, top_k_index, top_k_weights)


def _linear(module: Any) -> Proposal | None:
    if type(module) is not _nn.Linear:
        return Proposal(reason="a subclass of Linear") if isinstance(module, _nn.Linear) else None
    if module.weight.dtype not in (torch.float16, torch.bfloat16):
        return Proposal(reason=f"weights of {module.weight.dtype}: the kernel has float16 and bfloat16")
    if module.in_features % 8 == 0 and module.out_features % 8 == 0:
        return Proposal(reason="rows of whole 16 bytes, at which cuBLAS is as fast")
    return Proposal("ops.linear", _linear_forward, module.in_features)


@_of_one(inference=True, training=True)
def _linear_forward(self: Any, x: Tensor) -> Tensor:
    return ops.linear(x, self.weight, self.bias)


def _attention(module: Any) -> Proposal | None:
    if isinstance(module, _nn.MultiheadAttention):
        return Proposal(reason="torch.nn.MultiheadAttention has masks and fast paths of its own")
    return None


def _loss(module: Any) -> Proposal | None:
    if type(module) is not _nn.CrossEntropyLoss:
        return Proposal(reason="a subclass of CrossEntropyLoss") if isinstance(module, _nn.CrossEntropyLoss) else None
    return Proposal("ops.cross_entropy", _loss_forward, _CLASSES, takes=("target",))


_CLASSES = 7
"""Of the logits that a loss is tried on."""


def _loss_forward(self: Any, input: Tensor, target: Tensor) -> Tensor:
    options = {name: getattr(self, name) for name in ("ignore_index", "reduction", "label_smoothing")}
    return ops.cross_entropy(input, target, self.weight, **options)


# -- whether it may be replaced -------------------------------------------------------------------------------------


def _obstacle(module: Any, proposal: Proposal) -> str:
    """Why this instance is left; nothing if it is not."""
    if "forward" in vars(module):
        return "its forward is bound already"
    takes = tuple(inspect.signature(_own_forward(module)).parameters)[1:]
    if len(takes) != 1 + len(proposal.takes) or takes[1:] != proposal.takes:
        return f"its forward takes {', '.join(takes)}"
    if any(True for _ in module.buffers()):
        return "it has buffers, which its forward may change"
    if has_hooks(module) or any(has_hooks(getattr(module, name)) for name in proposal.passes_by):
        return "it has hooks, which may expect its own forward"
    dtypes = {p.dtype for p in module.parameters()}
    other = sorted(str(d) for d in dtypes if d not in COMPUTED)
    if other:
        return f"parameters of {', '.join(other)}"
    if len({p.device for p in module.parameters()}) > 1:
        return "its parameters lie on several devices"
    if any(type(p) not in (_nn.Parameter, torch.Tensor) for p in module.parameters()):
        return "parameters of a subclass of Tensor"
    return ""

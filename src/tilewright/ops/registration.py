"""``@tw.op``: a kernel as an operator of PyTorch.

Registered with ``torch.library.Library``, a third of what ``custom_op`` costs a call. Plain tensors pass even that by:
where no subclass, mode, transform or tracer would see the call, the kernel is launched from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, overload

from tilewright import Kernel
from tilewright.artifact.store import ArtifactStore
from tilewright.base.dtypes import DType
from tilewright.diag import fail, shown, type_shown
from tilewright.jit.calls import near_names
from tilewright.ops.execution import Execution, Fallback
from tilewright.ops.gradients import Backward, Gradients
from tilewright.ops.pytorch import Tensor, as_tuple, is_plain, is_transformed, on_one_device, torch, wants_gradient
from tilewright.ops.routes import Launch
from tilewright.ops.signature import REQUIRED, OpSignature, SchemaType, read_signature
from tilewright.ops.transforms import transformable, without_wrappers

_REGISTERED: dict[str, tuple[TorchOp, Any]] = {}
"""Each operator and its library by its name, so that a cell of a notebook may define it again."""


def operators() -> tuple[TorchOp, ...]:
    """All that were made so far."""
    return tuple(op for op, _ in _REGISTERED.values())


class TorchOp:
    """An operator of PyTorch. ``op(x, w, eps=1e-5)`` returns its results, ``op(x, w, out=y)`` writes them into ``y``.

    ``overload`` and ``out_overload`` are what ``torch.ops`` has of it.
    """

    def __init__(
        self,
        name: str,
        signature: OpSignature,
        fallback: Fallback | None,
        operators: tuple[TorchOp, ...] = (),
        function: Backward | None = None,
    ) -> None:
        self.name = name
        self.signature = signature
        self.__doc__ = signature.kernel.__doc__
        self.__name__ = signature.kernel.name
        self.__module__, self.__qualname__ = signature.kernel.fn.__module__, signature.kernel.fn.__qualname__
        self._execution = Execution(signature, fallback)
        self._find = self._execution.routes.find
        self._gradients = Gradients(signature, operators, function)
        self._formals = signature.tensors
        self._tensors = len(self._formals)
        self._count = len(signature.arguments)
        self._required = tuple(a.default is REQUIRED for a in signature.arguments)
        self._defaults = tuple(None if a.default is REQUIRED else a.default for a in signature.arguments)
        first = next((i for i in range(self._count) if not any(self._required[i:])), self._count)
        self._tails = {i: self._defaults[i:] for i in range(first, self._count + 1)}
        self._positions = {a.name: i for i, a in enumerate(signature.arguments)}
        self._single = len(signature.results) == 1
        self._mutates = bool(signature.mutated)
        self._is_replaced = False
        self.overload, self.out_overload = self._register()
        self._eager = _eager_function(self._execution.run_noted, self._gradients, self._single)
        self._record = without_wrappers(self._eager)
        self._transformed = transformable(self.__name__, self._forward, self._save, self._differentiate)

    def __repr__(self) -> str:
        return f"<op {self.name}{self.signature.schema}>"

    def __reduce__(self) -> str:
        """By its name in its module, and copied as the same, as functions are."""
        return self.__qualname__

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run on tensors of one device, in the order of the kernel's signature without its results; numbers and flags
        follow, or go by name; ``out`` of several results is a tuple. JIT010 for arguments that do not fit."""
        values = self._values(args, kwargs)
        if out is not None:
            return self._into(values, out)
        known = self._served(values)
        if known is not None:
            return known
        tensors = values[: self._tensors]
        self._check_call(tensors)
        if self._mutates:
            if wants_gradient(tensors):
                self._refuse_gradient("which changes an argument")
            return self._dispatched(*values)
        if not is_plain(tensors):
            return (self._transformed.apply if is_transformed() else self._dispatched)(*values)
        if wants_gradient(tensors):
            return self._eager.apply(None, *values)
        return self._computed(values)

    def known(self, *args: Any, out: Any = None) -> Any:
        """What the call returns if it is one such as was served before; None for any other, of which this does nothing.

        Functions ask it before they look at their arguments: a call that it serves goes by autocast and by dtypes that
        no kernel has, since its guard tells both."""
        values = (*args, *self._tails[len(args)])
        if out is None:
            return self._served(values)
        return out if self._served_into(values, self._results(out)) else None

    def note_rows(self, rows: tuple[Any, ...], args: tuple[Any, ...], shape: tuple[int, ...]) -> None:
        """Let ``known`` serve calls like that with ``args``, of which ``rows`` has those of two axes: its results have
        this shape."""
        tail = self._tails[len(args)]
        self._execution.routes.note_rows((*rows, *tail), (*args, *tail), shape)

    def _served(self, values: tuple[Any, ...]) -> Any:
        route = self._find(values)
        if route is None:
            return None
        if route.with_gradient and torch.is_grad_enabled():
            return self._record(route.launch, *values)
        results = route.launch(values)
        if results is None:
            return None
        return results[0] if self._single else results

    def _computed(self, values: tuple[Any, ...]) -> Any:
        results = self._execution.run_noted(values)
        return results[0] if self._single else results or None

    def _served_into(self, values: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
        """Whether the call was one such as was served before, and its results are in ``outs``."""
        known = self._execution.is_known_into(values, outs)
        if known:
            _changed((*(values[i] for i in self.signature.mutated), *outs) if self._mutates else outs)
        return known

    def _forward(self, *values: Any) -> Any:
        """Of a call that a transform has seen already."""
        known = self._served(values)
        if known is not None:
            return known
        if is_plain(values[: self._tensors]):
            return self._computed(values)
        return self._dispatched(*values)

    def _dispatched(self, *values: Any) -> Any:
        """By PyTorch's dispatcher, which finds the operator by its name."""
        self._check_name()
        return self.overload(*values)

    def given(self, **named: Any) -> Any:
        """The same with all arguments by name."""
        return self(*(named.get(a.name, a.default) for a in self.signature.arguments))

    def compile_for(self, values: tuple[Any, ...], results: tuple[Tensor, ...], store: Path) -> str:
        """Compile into the store at ``store`` what a call with these arguments launches on a GPU, unless it is there;
        returns its key. Fake tensors do, each as if it were allocated for itself."""
        return self._execution.compile_for(values, results, ArtifactStore(store))

    def _values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """One value for each argument."""
        tail = None if kwargs else self._tails.get(len(args))
        if tail is not None:
            return (*args, *tail)
        if len(args) > self._count:
            self._refuse_call(f"{len(args)} arguments")
        values = [*args, *self._defaults[len(args) :]]
        for name, value in kwargs.items():
            position = self._positions.get(name, -1)
            if position < len(args):
                self._refuse_call(f"an argument {name}" if position < 0 else f"two values for {name}")
            values[position] = value
        for position in range(len(args), self._count):
            name = self.signature.arguments[position].name
            if self._required[position] and name not in kwargs:
                self._refuse_call(f"no {name}")
        return tuple(values)

    def _into(self, values: tuple[Any, ...], out: Any) -> Any:
        """Results in tensors that are given; they need no gradient, as with PyTorch's own ``out=``."""
        outs = self._results(out)
        if self._served_into(values, outs):
            return out
        tensors = (*values[: self._tensors], *outs)
        self._check_call(values[: self._tensors])
        if not torch.compiler.is_compiling():  # where the operator's fake looks at them
            self._check_outs(values, outs)
        if wants_gradient(tensors):
            self._refuse_gradient("called with out=")
        if is_plain(tensors):
            self._execution.run_into_noted(values, outs)
            _changed((*(values[i] for i in self.signature.mutated), *outs))
        else:
            self._check_name()
            self.out_overload(*values, *outs)
        return out

    def _results(self, out: Any) -> tuple[Any, ...]:
        """What ``out`` is for each result: of one the tensor itself, of several a tuple or list."""
        return (out,) if self._single else as_tuple(out)

    # -- registration -------------------------------------------------------------------------------------------------

    def _register(self) -> tuple[Any, Any]:
        namespace, _, base = self.name.partition("::")
        if self.name in _REGISTERED:
            before, held = _REGISTERED.pop(self.name)
            before._is_replaced = True
            held._destroy()
        library = torch.library.Library(namespace, "FRAGMENT")
        _REGISTERED[self.name] = (self, library)
        tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
        signature, execution, single, tensors = self.signature, self._execution, self._single, self._tensors

        def run(*values: Any) -> Any:
            results = execution.run(values)
            _changed(tuple(values[i] for i in signature.mutated))
            return results[0] if single else results or None

        def fake(*values: Any) -> Any:
            given = [v for v in values[:tensors] if v is not None]
            like = next((v for v in given if v.is_meta), given[0])
            made = tuple(like.new_empty(shape, dtype=dtype) for shape, dtype in signature.described(values))
            return made[0] if single else made or None

        library.define(f"{base}{signature.schema}", tags=tags)
        torch.library.register_fake(self.name, on_one_device(self.__name__, fake), lib=library)
        for key in ("CPU", "CUDA"):
            library.impl(base, run, key)
        if not self._mutates:
            self._register_gradients(library)
        packet = getattr(getattr(torch.ops, namespace), base)
        if not signature.results:
            return packet.default, None
        self._register_out(library, base, tags)
        return packet.default, getattr(getattr(torch.ops, namespace), f"{base}_out").default

    def _register_gradients(self, library: Any) -> None:
        torch.library.register_autograd(self.name, self._differentiate, setup_context=self._save, lib=library)

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        self._gradients.save(ctx, inputs, (output,) if self._single else output)

    def _differentiate(self, ctx: Any, *grads: Any) -> Any:
        return self._gradients.compute(ctx, grads)

    def _register_out(self, library: Any, base: str, tags: tuple[Any, ...]) -> None:
        count, execution, signature = self._count, self._execution, self.signature

        def fake(*values: Any) -> None:
            self._check_outs(values[:count], values[count:])

        def run_into(*values: Any) -> None:
            execution.run_into(values[:count], values[count:])
            _changed((*(values[i] for i in signature.mutated), *values[count:]))

        library.define(f"{base}_out{signature.out_schema}", tags=tags)
        torch.library.register_fake(f"{self.name}_out", on_one_device(self.__name__, fake), lib=library)
        for key in ("CPU", "CUDA"):
            library.impl(f"{base}_out", run_into, key)

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _check_name(self) -> None:
        if self._is_replaced:
            fail(
                "JIT010",
                found=f"a call of {self.__name__}, whose name {self.name} another operator has taken",
                required="the one that was defined last, or a name of its own: @tw.op(name=...)",
            )

    def _check_call(self, tensors: tuple[Any, ...]) -> None:
        for formal, tensor in zip(self._formals, tensors, strict=True):
            left_out = tensor is None and formal.kind is SchemaType.OPTIONAL
            if not (left_out or isinstance(tensor, torch.Tensor) or hasattr(tensor, "__torch_function__")):
                found = f"{type(tensor).__name__} for the tensor {formal.name}"
                self._refuse_call(found, f"tensors of PyTorch: torch.as_tensor({formal.name}) makes one")

    def _check_outs(self, values: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        device = str(next(v for v in values if v is not None).device)
        required = tuple((*each, device) for each in self.signature.described(values))
        got = tuple(
            (tuple(t.shape), t.dtype, str(t.device)) if isinstance(t, torch.Tensor) else type(t).__name__ for t in outs
        )
        if got != required:
            fits = f"{required}, shape, dtype and device of each result of {self.__name__}"
            help_ = "call it without out=: results are then allocated and returned"
            fail("JIT010", found=f"out={got}", required=fits, help=help_)

    def _refuse_call(self, found: str, required: str = "") -> None:
        required = required or ", ".join(a.name for a in self.signature.arguments)
        written = f"{self.__name__}({', '.join(a.name for a in self.signature.tensors)})"
        help_ = f"write, for example: {written}"
        fail("JIT010", found=f"{found}, given to {self.__name__}", required=required, help=help_)

    def _refuse_gradient(self, why: str) -> None:
        required = "tensors that need no gradient, or torch.no_grad()"
        fail("JIT011", found=f"a gradient of {self.__name__}, {why}", required=required)


def _eager_function(run: Callable[[tuple[Any, ...]], tuple[Tensor, ...]], gradients: Gradients, single: bool) -> Any:
    """The gradients without the dispatcher, a third of what registered ones cost a call. Takes what launches the call
    by its route, or None, before the operator's arguments."""

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, launch: Launch | None, *values: Any) -> Any:
            results = None if launch is None else launch(values)
            if results is None:
                results = run(values)
            gradients.save(ctx, values, results)
            return results[0] if single else results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None, *gradients.compute(ctx, grads)

    return Eager


def _changed(tensors: tuple[Tensor, ...]) -> None:
    """Tell autograd that saved values of these are no longer what they were."""
    for tensor in tensors:
        if not tensor.is_inference():
            _increment_version(tensor)


_increment_version = torch.autograd.graph.increment_version


@overload
def op(kernel: Kernel) -> TorchOp: ...
@overload
def op(
    *,
    name: str = ...,
    outputs: Collection[str] | None = ...,
    mutates: Collection[str] = ...,
    dtypes: Mapping[str, DType | str] | None = ...,
    backward: Any = ...,
    fallback: Fallback | None = ...,
) -> Callable[[Kernel], TorchOp]: ...
def op(
    kernel: Kernel | None = None,
    *,
    name: str = "",
    outputs: Collection[str] | None = None,
    mutates: Collection[str] = (),
    dtypes: Mapping[str, DType | str] | None = None,
    backward: Any = None,
    fallback: Fallback | None = None,
    **unknown: object,
) -> TorchOp | Callable[[Kernel], TorchOp]:
    """Make a kernel an operator of PyTorch: ``y = op(x, w)``, also under autograd and ``torch.compile``.

    - ``outputs``: names of the tensors it returns; without, those that the body writes and never reads, optional ones
      left out. They are allocated row-major; their dimensions are those of the arguments.
    - ``mutates``: names of the tensors that it changes in place.
    - ``dtypes``: of results, an element type or the name of an argument of the same; a result ``dx`` is as ``x``,
      others are as the first tensor that is no ``tw.Unique`` or ``tw.Offsets``.
    - ``backward``: kernels or operators (one or a tuple), or a function over operators, joined by the names of what
      they take (``tilewright.ops.gradients``).
    - ``fallback``: a function of PyTorch for tensors of the CPU; without, the simulator runs them.
    - ``name``: ``"library::name"``; ``tilewright_ops::`` and the kernel's module and name if not given, numbered where
      they are taken. Compiled-graph caches go by it: change it when you change the backward. Of two operators of one
      given name the first keeps only its plain calls.

    Raises JIT009 for what has no schema or must be declared.
    """

    for option in unknown:
        fail(
            "JIT009",
            found=f"{option}= in tw.op",
            required=", ".join(f"{name}=" for name in _OPTIONS),
            help=near_names(option, _OPTIONS) or "leave it out",
        )

    def decorate(kernel: Kernel) -> TorchOp:
        if not isinstance(kernel, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
            fail("JIT009", found=type_shown(kernel), required="a kernel", help="write @tw.op above @tw.kernel")
        signature = read_signature(kernel, outputs, mutates, dtypes or {})
        operators, function = _backward(backward)
        return TorchOp(_identifier(name, kernel), signature, fallback, operators, function)

    return decorate if kernel is None else decorate(kernel)


def _identifier(name: str, kernel: Kernel) -> str:
    """The name, or one that nothing else has; JIT009 for what names no operator, or one that is not of ``op``."""
    if not name:
        written = f"{kernel.fn.__module__}_{kernel.fn.__qualname__}".replace("<locals>", "")
        base = _NAMESPACE + "".join(c if c.isalnum() else "_" for c in written).lstrip("_")
        numbered = (f"{base}_{i}" for i in count(2))
        return next(n for n in chain((base,), numbered) if n not in _REGISTERED)
    namespace, _, base = (name if "::" in name else _NAMESPACE + name).partition("::")
    whole = f"{namespace}::{base}"
    if not namespace.isidentifier() or not base.isidentifier() or base.startswith("__"):
        found = f"name={name!r}"  # in a class, as Inductor writes one, Python takes ``__name`` for another
        required = 'identifiers, "library::name", of which the second does not begin with "__"'
        fail("JIT009", where=kernel.where, found=found, required=required, help=f'write name="mine::{kernel.name}"')
    if whole not in _REGISTERED and hasattr(getattr(torch.ops, namespace), base):
        found = f"name={name!r}, an operator of another library"
        help = f'write name="mine::{base}"'
        fail("JIT009", where=kernel.where, found=found, required="a name that no other library has", help=help)
    return whole


_NAMESPACE = "tilewright_ops::"
_OPTIONS = ("name", "outputs", "mutates", "dtypes", "backward", "fallback")


def _backward(given: Any) -> tuple[tuple[TorchOp, ...], Backward | None]:
    """A backward as operators, which its kernels become, or as a function."""
    parts = as_tuple(given)
    if all(isinstance(part, Kernel | TorchOp) for part in parts):
        return tuple(op(part) if isinstance(part, Kernel) else part for part in parts), None
    if not callable(given):
        help = "pass the kernels of the gradients, backward=(dx, dw), or leave it out"
        fail("JIT009", found=f"backward={shown(given)}", required="kernels, operators, or one function", help=help)
    return (), given

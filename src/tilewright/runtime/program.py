"""A loaded program: dispatch of a call to its plan.

A repeated call does only this: ask PyTorch's guards whether its tensors are as before; read addresses; rewrite what
changed; launch. Tensors that no guard was made for are looked up by shape, strides, dtype and place. Everything else
(checks, choice of the variant, sizes, descriptors' fields) happens once per combination of shapes, strides, dtypes,
device, integer scalars and address alignment, as far as the artifact's expressions look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from tilewright.artifact import bundle
from tilewright.artifact.schema import Artifact, KernelImage, ScalarArgument, TensorArgument, Variant
from tilewright.artifact.well_formed import require_well_formed
from tilewright.base.cached import cached_property
from tilewright.base.expr import ExprError, first_of
from tilewright.base.readable import summary
from tilewright.diag import TilewrightError, fail, shown, type_shown
from tilewright.hw.target import TARGETS
from tilewright.hw.tensormap import MAP_BYTES
from tilewright.runtime import index_promises, tensor_guards
from tilewright.runtime.allocator import Allocator
from tilewright.runtime.arguments import TensorDescription, describe
from tilewright.runtime.binding import aliasing, bind, refuse_left_out
from tilewright.runtime.call_cache import CallCache
from tilewright.runtime.dependence import address_modulus, call_scalar
from tilewright.runtime.driver import LEGACY_STREAM, DriverLike, LaunchShape, process_driver
from tilewright.runtime.index_promises import Failures
from tilewright.runtime.plan import LaunchPlan
from tilewright.runtime.scalars import int_scalar, packed

_MAX_PLANS = 1024

_PLAIN = (tuple, list)

Key = tuple[object, ...]
Call = tuple[Sequence[object], tuple[int, ...], LaunchPlan | None, dict[str, TensorDescription] | None]
"""Of a call's arguments: what a key is made of, addresses, the plan if there is one, and their description, which
PyTorch's tensors, read in place, do not need. A plain tuple: it is made at every launch."""


class GuardedPlan(NamedTuple):
    """A plan with what arguments must be to be served by it: ``residues`` of addresses (position, modulus, rest), and
    values of integer scalars that decide (position, value)."""

    check: tensor_guards.Check
    data_ptr: Callable[[Any], int]
    plan: LaunchPlan
    residues: tuple[tuple[int, int, int], ...]
    fixed: tuple[tuple[int, int], ...]


class TensorMapCounts(NamedTuple):
    """Tensor maps of a program: ``kept`` for the shapes, strides and addresses that it was called with, their
    ``kept_bytes`` on the host, how many were ``encoded``, and how often one that was kept was ``reused``. A call at the
    addresses of the one before takes what the launch holds already, and counts for none."""

    kept: int
    kept_bytes: int
    encoded: int
    reused: int


Match = tuple[GuardedPlan, tuple[int, ...]]
"""The program that serves a call, and the addresses of its tensors."""


def load(artifact: Artifact | str | PathLike[str], driver: DriverLike | None = None) -> Program:
    """Make ``artifact``, or the bundle at a path, ready to launch. RUN013 where there is no GPU, ART001 to ART006 for
    what is no bundle."""
    if isinstance(artifact, str | PathLike):
        artifact = bundle.read(Path(artifact))
    elif not isinstance(artifact, Artifact):  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("ART001", found=type_shown(artifact), required="an Artifact, or the path of a bundle")
    require_well_formed(artifact)
    return Program(artifact, process_driver() if driver is None else driver)


class Program:
    """An artifact bound to the driver. Safe to call from several threads."""

    def __init__(self, artifact: Artifact, driver: DriverLike) -> None:
        self.artifact = artifact
        self._driver = driver
        self._one_device = driver.device_count() == 1
        self._libraries: dict[str, int] = {}
        self._devices: set[int] = set()
        self._failures: dict[tuple[str, int], Failures] = {}
        self._plans: dict[Key, LaunchPlan] = {}
        self._guarded = CallCache[GuardedPlan]()

        parameters = artifact.parameters
        self._names = tuple(p.name for p in parameters)
        self._tensors = [
            (i, p.name, address_modulus(artifact, p.name))
            for i, p in enumerate(parameters)
            if isinstance(p, TensorArgument)
        ]
        self._places = [(i, modulus) for i, _, modulus in self._tensors]
        self._pick = _picker([i for i, _ in self._places])
        scalars = [(i, p) for i, p in enumerate(parameters) if isinstance(p, ScalarArgument)]
        self._changing = [(i, s) for i, p in scalars if (s := call_scalar(artifact, p)) is not None]
        self._call_scalars = tuple(s for _, s in self._changing)
        changing = {i for i, _ in self._changing}
        self._key_scalars = [(i, p) for i, p in scalars if i not in changing]

    def launch(
        self,
        args: Sequence[object] | Mapping[str, object],
        stream: object = None,
        allocator: Allocator | None = None,
    ) -> None:
        """Queue the program on ``stream``.

        ``args`` are all parameters, in order or by name; a tensor is anything with ``data_ptr``/``stride``,
        ``__cuda_array_interface__`` or ``__dlpack__``. ``stream`` is a handle, an object with ``__cuda_stream__``, or
        None for the legacy default stream. ``allocator`` gives workspaces, which this call alone has; without one they
        come from a pool of our own. Refuses with RUN001 to RUN021.
        """
        values: Any = args
        if type(args) not in _PLAIN or len(args) != len(self._names):
            values = self._ordered(args)
        handle = LEGACY_STREAM if stream is None else stream_handle(stream)
        found = self.match(values)
        if found is not None:
            self.launch_match(found, values, handle, allocator)
            return
        key, addresses, plan, described = self._look_up(values, handle)
        if plan is None:
            plan = self._build(tuple(key), described, values, handle)
        self._run(plan, addresses, described, self.changing_values(values), handle, allocator)

    def launch_known(self, values: Sequence[object], stream: object = None, allocator: Allocator | None = None) -> bool:
        """``launch`` if such arguments were launched before; False, and nothing done, if they were not."""
        if len(values) != len(self._names):
            return False
        handle = LEGACY_STREAM if stream is None else stream_handle(stream)
        found = self.match(values)
        if found is not None:
            self.launch_match(found, values, handle, allocator)
            return True
        _, addresses, plan, described = self._look_up(values, handle)
        if plan is not None:
            self._run(plan, addresses, described, self.changing_values(values), handle, allocator)
        return plan is not None

    def match(self, values: Sequence[Any]) -> Match | None:
        """The program for all arguments, in order, if a guard recognises them as those of an earlier launch."""
        latest = self._guarded.latest
        if not latest:
            return None
        tensors = self._pick(values)
        if tensor_guards.has_nested(tensors):
            return None
        found = _matching(latest, tensors, values)
        if found is None:
            first = tensors[0]
            found = _matching(self._guarded.of_shape(first), tensors, values)
            if found is not None:
                self._guarded.touch(first, found[0])
        return found

    def launch_match(self, found: Match, values: Sequence[object], handle: int, allocator: Allocator | None) -> None:
        """Queue what ``match`` found for these values on the stream of a handle."""
        (_, _, plan, _, _), addresses = found
        self.launch_plan(plan, addresses, self.changing_values(values), handle, allocator)

    def launch_plan(
        self,
        plan: LaunchPlan,
        addresses: tuple[int, ...],
        scalars: tuple[int | float, ...],
        handle: int,
        allocator: Allocator | None,
    ) -> None:
        """Queue a plan of this program for tensors at these addresses and ``changing_values``."""
        if self._one_device and plan.only_launches and not index_promises.EVERY:
            plan.launch(addresses, scalars, handle)
        else:
            self._run(plan, addresses, None, scalars, handle, allocator)

    def deciding(self, values: Sequence[object]) -> tuple[int, ...]:
        """Of all parameters, in order, the scalars that decide what is launched: others are only handed on."""
        return tuple(int_scalar(p, values[i]) for i, p in self._key_scalars)

    @property
    def tensor_maps(self) -> TensorMapCounts:
        """How many tensor maps are remembered, and what that has saved so far."""
        plans = list(self._plans.values())
        kept = sum(plan.maps_kept for plan in plans)
        return TensorMapCounts(
            kept, kept * MAP_BYTES, sum(plan.maps_encoded for plan in plans), sum(plan.maps_reused for plan in plans)
        )

    def forget(self) -> None:
        """Forget which calls were served; the kernels stay loaded."""
        self._plans.clear()
        self._guarded.clear()

    def close(self) -> None:
        """Unload the kernels, and report no broken promises of earlier launches. A later launch loads them again."""
        self.forget()
        while self._failures:
            index_promises.forget(self._failures.popitem()[1])
        while self._libraries:
            self._driver.unload_library(self._libraries.popitem()[1])

    # -- a call -------------------------------------------------------------------------------------------------------

    def _look_up(self, values: Sequence[Any], handle: int) -> Call:
        """Key, addresses and plan, if there is one, of arguments that have PyTorch's methods."""
        key: list[object] = []
        addresses: list[int] = []
        one_device = self._one_device
        try:
            for i, modulus in self._places:
                tensor = values[i]
                address = tensor.data_ptr()
                if not address:  # no elements, or no memory: its description tells
                    return self._look_up_described(values, handle)
                addresses.append(address)
                # with one device only memory of the CPU is to be told apart, and a flag is cheaper than an object
                place = tensor.is_cuda if one_device else tensor.device
                if modulus:
                    key += (tensor.shape, tensor.stride(), tensor.dtype, place, tensor.is_neg(), address % modulus)
                else:
                    key += (tensor.shape, tensor.stride(), tensor.dtype, place, tensor.is_neg())
            for i, parameter in self._key_scalars:
                value = values[i]
                key.append(value if type(value) is int else int_scalar(parameter, value))
            plan = self._plans.get(tuple(key))
            if plan is not None:
                self._served(plan, values, addresses)
            return key, tuple(addresses), plan, None
        except TilewrightError:
            raise
        except Exception:  # another protocol, or a stranger's class, of which the description tells
            return self._look_up_described(values, handle)

    def _served(self, plan: LaunchPlan, values: Sequence[Any], addresses: Sequence[int]) -> None:
        """Guard what a plan serves once it is looked up again: at the first, second, fourth, ... time, since making a
        guard costs more than a look-up."""
        plan.looked_up += 1
        if plan.looked_up & (plan.looked_up - 1):
            return
        made = tensor_guards.guard(self._pick(values))
        if made is None:
            return
        places = enumerate(zip(addresses, self._places, strict=True))
        residues = tuple((n, modulus, address % modulus) for n, (address, (_, modulus)) in places if modulus)
        fixed = tuple((i, int_scalar(p, values[i])) for i, p in self._key_scalars)
        self._guarded.add(values[self._places[0][0]], GuardedPlan(*made, plan, residues, fixed))

    def _look_up_described(self, values: Sequence[object], handle: int) -> Call:
        """The same for arguments of the other protocols, whose description costs more than the launch."""
        described = self._describe(values, handle)
        key: list[object] = []
        for (_, name, modulus), tensor in zip(self._tensors, described.values(), strict=True):
            key += (
                tensor.shape,
                tensor.strides,
                tensor.dtype.name,
                tensor.device,
                tensor.on_cpu,
                tensor.read_only,
                name,
            )
            if modulus:
                key.append(tensor.address % modulus)
        key += (int_scalar(p, values[i]) for i, p in self._key_scalars)
        whole = tuple(key)
        return whole, tuple(t.address for t in described.values()), self._plans.get(whole), described

    def _run(
        self,
        plan: LaunchPlan,
        addresses: tuple[int, ...],
        described: dict[str, TensorDescription] | None,
        scalars: tuple[int | float, ...],
        handle: int,
        allocator: Allocator | None,
    ) -> None:
        if index_promises.EVERY:
            index_promises.report()
        allocator = allocator or self._driver
        if described is not None:
            for producer in {t.producer for t in described.values()} - {None, handle}:
                self._driver.wait_for(cast("int", producer), handle)
        if self._one_device and plan.only_launches:
            plan.run(addresses, scalars, handle, allocator)
            return
        if self._driver.current_context() == plan.context:
            plan.run(addresses, scalars, handle, allocator)
            return
        self._driver.push_context(plan.context)
        try:
            plan.run(addresses, scalars, handle, allocator)
        finally:
            self._driver.pop_context()

    def changing_values(self, values: Sequence[Any]) -> tuple[int | float, ...]:
        """Scalars that are only passed on, checked and in the form their slot packs."""
        if not self._changing:
            return ()
        out: list[int | float] = []
        for i, scalar in self._changing:
            value = values[i]
            plain = type(value) is scalar.plain and -scalar.limit <= value < scalar.limit
            out.append(value if plain else packed(scalar, value))
        return tuple(out)

    def _ordered(self, args: Sequence[object] | Mapping[str, object]) -> Sequence[object]:
        names = self._names
        if not isinstance(args, tuple) and isinstance(args, Mapping):
            missing, extra = [n for n in names if n not in args], [n for n in args if n not in names]
            if missing or extra:
                found = [f"no {n}" for n in missing] + [f"an unknown {n}" for n in extra]
                fail("RUN002", found=", ".join(found), required=", ".join(names))
            return tuple(args[n] for n in names)
        if not isinstance(args, tuple) and not isinstance(args, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            help = f"launch(({', '.join(names)},), stream): all arguments in one tuple"
            fail("RUN002", found=f"{type_shown(args)} for the arguments", required=", ".join(names), help=help)
        if len(args) != len(names):
            fail("RUN002", found=f"{len(args)} arguments", required=f"{len(names)}: {', '.join(names)}")
        return args

    # -- building a plan ----------------------------------------------------------------------------------------------

    def _describe(self, values: Sequence[object], handle: int) -> dict[str, TensorDescription]:
        return {name: describe(name, values[i], handle) for i, name, _ in self._tensors}

    def _build(
        self, key: Key, described: dict[str, TensorDescription] | None, values: Sequence[object], handle: int
    ) -> LaunchPlan:
        if described is None:
            described = self._describe(values, handle)
        device = self._device(described)
        scalars = {p.name: int_scalar(p, values[i]) for i, p in self._key_scalars}
        env = bind(self.artifact, described, scalars)
        context = self._driver.context(device)

        def kernel(image: KernelImage, shape: LaunchShape) -> int:
            if image.symbol not in self._libraries:
                self._libraries[image.symbol] = self._driver.load_library(image.cubin)
            return self._driver.kernel(self._libraries[image.symbol], image.symbol, device, shape)

        variant = self._variant_for(env)
        self._driver.push_context(context)
        try:
            pairs = aliasing(self.artifact, described)
            failures = self._failures_of(variant, device, context)
            plan = LaunchPlan(
                self.artifact, variant, env, pairs, self._call_scalars, self._driver, kernel, context, device, failures
            )
        finally:
            self._driver.pop_context()
        if len(self._plans) >= _MAX_PLANS:
            self._plans.pop(next(iter(self._plans)), None)
        self._plans[key] = plan
        return plan

    def _variant_for(self, env: Mapping[str, int]) -> Variant:
        """The first variant whose predicate holds; RUN015 or RUN021 where there is none, RUN017 where one divides by
        zero."""
        variants = self.artifact.variants
        try:
            number = self._first(env)
        except ExprError as error:
            fail("RUN017", found=f"a predicate: {error}", required="a value")
        if number is None:
            found, tried = _extents(env), "; ".join(f"{v.name}: {summary(v.predicate)}" for v in variants)
            refuse_left_out(self.artifact, env, found, f"one of {tried}")
            fail("RUN015", found=found, required=f"one of {tried}")
        return variants[number]

    @cached_property
    def _first(self) -> Callable[[Mapping[str, int]], int | None]:
        """The number of the first variant whose predicate holds."""
        return first_of([variant.predicate for variant in self.artifact.variants])

    def _failures_of(self, variant: Variant, device: int, context: int) -> Failures | None:
        """The counters of broken promises of a variant on a device."""
        if not variant.reports:
            return None
        (report,) = variant.reports
        key = (variant.name, device)
        if key not in self._failures:
            self._failures[key] = Failures(self.artifact.name, report.promises, self._driver, context)
        return self._failures[key]

    def _device(self, described: Mapping[str, TensorDescription]) -> int:
        """The device that holds the tensors, whose architecture must be the artifact's."""
        device = device_of(described, self._driver)
        if device not in self._devices:
            self._check_architecture(device)
            self._devices.add(device)
        return device

    def _check_architecture(self, device: int) -> None:
        major, minor = self._driver.capability(device)
        target = TARGETS[self.artifact.target]
        wanted = target.compute_capability
        exact = target.name[-1].isalpha()
        if (major, minor) != wanted and (exact or major != wanted[0] or minor < wanted[1]):
            fail(
                "RUN012",
                found=f"device {device} has compute capability {major}.{minor}",
                required=f"{wanted[0]}.{wanted[1]}{'' if exact else ' or a higher minor'}, for {target.name}",
                help="compile with --target for this device",
            )


def device_of(described: Mapping[str, TensorDescription], driver: DriverLike) -> int:
    """The one device that holds the tensors (0 when there is none to hold); RUN011."""
    places: dict[int, str] = {}
    for name, tensor in described.items():
        device = tensor.device
        if tensor.on_cpu:
            _misplaced(f"{name} is on the CPU")
        if device is None and tensor.address:
            device = driver.device_of(tensor.address)
            if device is None:
                _misplaced(f"{name} is at 0x{tensor.address:x}, which no GPU holds")
        if device is not None:
            places.setdefault(device, name)
    if len(places) > 1:
        _misplaced(", ".join(f"{name} on device {device}" for device, name in places.items()))
    return next(iter(places), 0)


def stream_handle(stream: object) -> int:
    """The handle of a stream argument; RUN018 for anything that is none."""
    if type(stream) is int and 0 <= stream < 1 << 64:
        return stream or LEGACY_STREAM
    try:
        handle = _declared_by(stream)
    except TilewrightError:
        raise
    except Exception as error:  # of a stranger's class
        found = f"{shown(stream)}, which raises {type(error).__name__}: {shown(str(error))}"
        fail("RUN018", found=found, required="None, a handle, or an object with __cuda_stream__")
    if not isinstance(handle, int) or isinstance(handle, bool) or not 0 <= handle < 1 << 64:
        fail("RUN018", found=shown(stream), required="None, a handle, or an object with __cuda_stream__")
    return handle or LEGACY_STREAM


def _declared_by(stream: Any) -> object:
    """What a stream says of itself, or the value as it is."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if not callable(protocol):
        # PyTorch's in older releases has an attribute instead; a handle may be of a subclass of int
        return stream if isinstance(stream, int) else getattr(stream, "cuda_stream", None)
    match protocol():
        case (int(), int(handle)):
            return handle
        case answer:
            found = f"{shown(stream)}, whose __cuda_stream__ is {shown(answer)}"
            fail("RUN018", found=found, required="(version, handle)")


def _picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that selects the values at these positions, of which there may be none or one."""
    count = len(positions)
    if list(positions) == list(range(count)):
        return itemgetter(slice(count))
    return itemgetter(*positions) if count > 1 else lambda values: (values[positions[0]],)


def _matching(plans: tuple[GuardedPlan, ...], tensors: Sequence[Any], values: Sequence[Any]) -> Match | None:
    """The first of these that serves a call."""
    for guarded in plans:
        check, data_ptr, plan, residues, fixed = guarded
        if check(*tensors):
            addresses = tuple(map(data_ptr, tensors))
            if addresses == plan.latest or has_residues(residues, addresses):
                for i, value in fixed:
                    if type(values[i]) is not int or values[i] != value:
                        break
                else:
                    return guarded, addresses
    return None


def has_residues(residues: Sequence[tuple[int, int, int]], addresses: tuple[int, ...]) -> bool:
    """Whether the addresses are aligned as a plan's were."""
    for position, modulus, rest in residues:  # no generator, which takes three times as long
        if addresses[position] % modulus != rest:
            break
    else:
        return True
    return False


# -- small ----------------------------------------------------------------------------------------------------------


def _extents(env: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in env.items() if "." not in name) or "no extents"


def _misplaced(found: str) -> NoReturn:
    fail("RUN011", found=found, required="all tensors in the memory of one CUDA device")

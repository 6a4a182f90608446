"""The object that ``@tw.kernel`` returns."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.artifact.schema import MAX_EXTENT, Artifact, Obligation
from tilewright.artifact.store import ArtifactStore, Shipped, digest
from tilewright.base.dtypes import DTYPES, DType, dtype_named, dtypes_near, f32, i32
from tilewright.base.number import number_of
from tilewright.base.readable import summary, when
from tilewright.diag import Location, TilewrightError, fail, shown
from tilewright.diag.configuration import Configuration
from tilewright.hw.target import MAX_VECTOR_BYTES, SM90A, TARGETS, Target
from tilewright.jit import lazy, pytorch
from tilewright.jit.assembler_warning import assembler_warning
from tilewright.jit.cached_binding import CallForm, Pick, are_alike, form_of
from tilewright.jit.calls import Call, bind, by_name, is_hashable, near_names
from tilewright.jit.fingerprint import compiler_identity, fingerprint, fingerprint_of
from tilewright.jit.index_handles import PlannedIndices, opened
from tilewright.jit.outputs import allocated, uses_of
from tilewright.lang.params import KernelFunction
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.lang.source_locations import within_stack

if TYPE_CHECKING:
    from tilewright.compiler.planned import PlannedKernel as Variant
    from tilewright.compiler.planned import PlannedProgram
    from tilewright.compiler.program import Planner
    from tilewright.compiler.specialisation import Request
    from tilewright.jit.tuning import Tuning
    from tilewright.runtime import Program
    from tilewright.runtime.allocator import Allocator
    from tilewright.runtime.arguments import TensorDescription
    from tilewright.runtime.program import Match
    from tilewright.schedule.facts import CallFacts


@cache
def _unpinned() -> Schedule:
    """The schedule of kernels without one."""
    return Schedule(dependent=Configuration.from_environment().dependent or None)


_UNSEEN: Any = object()
_MAX_PLANS = 256
_MOST_TIMED = 64
"""Schedules that ``tune`` times."""
_AS_WRITTEN = {
    "dtypes": 'dtypes={"x": "bf16"}',
    "static": 'static={"N": 4096}',
    "schedule": "schedule=tw.Schedule(warps=4)",
    "facts": "leave it out for row-major tensors with aligned rows",
}


def _keep(store: ArtifactStore, key: str, artifact: Artifact) -> None:
    """Put what was compiled into the store. A disk that refuses is reported once and costs the next process time."""
    try:
        store.put(key, artifact)
    except TilewrightError as error:
        if error.code != "ART008":
            raise
        warnings.warn(f"{error}\nthe kernel runs; it is compiled again next time", RuntimeWarning, stacklevel=2)


def refuse_uncovered(program: PlannedProgram, symbols: Mapping[str, int], where: Location | None = None) -> NoReturn:
    """Arguments that no variant of a program serves (RUN015), as the runtime says it of an artifact."""
    tried = "; ".join(summary(variant.predicate) for variant in program.variants)
    found = ", ".join(f"{name} = {value}" for name, value in symbols.items() if "." not in name)
    fail("RUN015", where=where, found=found, required=f"one of {tried}")


def _by_method(certificate: Iterable[Obligation]) -> Iterator[str]:
    """The obligations of one kind and method in a line each; those of a protocol are counted."""
    details = dict[tuple[str, str], list[str]]()
    for o in certificate:
        details.setdefault((o.name.partition(" ")[0], o.method), []).append(o.detail)
    for (kind, method), every in details.items():
        told = ", ".join(dict.fromkeys(filter(None, every)))
        number = f", {len(every)} obligations" if kind == "protocol" else ""
        yield f"{kind}{number}: {method}" + f" ({told})" * bool(told)


class Kernel:
    """A kernel function with its compiled programs. Call it on tensors, ``compile`` it ahead, or ``explain`` it."""

    def __init__(self, function: KernelFunction):
        self.function = function
        self.__name__ = function.name
        self.__doc__ = function.fn.__doc__
        self._forms: dict[Hashable, CallForm | None] = {}
        self._picks: dict[tuple[Hashable, frozenset[str]], tuple[Kernel, Pick]] = {}
        self._optional = function.optional
        self._partial: dict[frozenset[str], Kernel] = {}
        self._with_planned: dict[frozenset[str], Kernel] = {}
        self._programs: list[tuple[dict[str, Hashable], Program]] = []  # the latest first
        self._of_class: dict[Request, Program] = {}
        self._tuned: dict[Hashable, list[tuple[tuple[int, ...], Program]]] = {}  # by tensors, then scalars that decide
        self._unwritten: set[str] = set()
        self._asked_to_build: set[tuple[Request, str]] = set()
        self._planners: dict[tuple[Request, str], Planner] = {}
        self._plans: dict[tuple[Request, str | None, tuple[tuple[str, int], ...] | None], PlannedProgram] = {}

    def __repr__(self) -> str:
        return f"<kernel {self.function.name} at {self.function.where}>"

    # -- ahead of time --------------------------------------------------------------------------------------------
    def compile(self, *target: str | Target, debug: bool = False, **options: Any) -> Artifact:
        """Compile without arguments.

        ``target`` is one of ``TARGETS`` or its name, by default ``sm_90a``. Options: ``dtypes`` per tensor (f32 where
        none is given); ``static`` extents fixed now, by dimension name; a ``schedule``; ``facts`` of the tensors
        (row-major, 16-byte aligned where none are given); others are the kernel's compile-time keywords.
        ``bias=None`` compiles without the optional tensor ``bias``.
        A ``debug`` build gives up waits that don't end, says which, and checks that the roles keep step; kernels with
        ``on_out_of_range="trap"`` trap there at indices that lead outside.
        Raises ``TilewrightError`` with the reason if the kernel can't be compiled or proved.
        """
        if type(debug) is not bool:
            fail("LNG029", found=f"debug={shown(debug)}", required="True or False", help="debug=True")
        kernel, request = self._asked(*target, **options)
        return kernel._artifact(replace(request, debug=debug), ahead=True)

    def ship(self, store: ArtifactStore, *target: str | Target, **options: Any) -> tuple[str, bool]:
        """Compile into ``store`` what a call with these dtypes, facts and keywords looks up, unless it is there; takes
        the arguments of ``compile``. Returns the key, and whether it was compiled. For kernels of this package, whose
        keys no Python changes."""
        kernel, request = self._asked(*target, **options)
        code = fingerprint(kernel.function.fn, dict(request.signature.keywords))
        assert code is not None, f"{self.function.name} reads what no key tells"
        key = kernel._key(request, code)
        if store.get(key) is not None:
            return key, False
        validate = Configuration.from_environment().validation is not False
        store.put(key, kernel._built(kernel._plan(request), validate))
        return key, True

    def plan(self, *target: str | Target, **options: Any) -> PlannedProgram:
        """The variants in the order in which a launch tries their predicates, before code is generated: both IRs,
        certificate and notes of each, and the classes that are left out. Takes the arguments of ``compile``."""
        kernel, request = self._asked(*target, **options)
        return kernel._plan(request)

    def explain(self, *target: str | Target, **options: Any) -> str:
        """The plan in words; takes the arguments of ``compile``."""
        program = self.plan(*target, **options)
        on = program.request.target.name
        lines = [f"{self.function.name} for {on}"]
        lines += [f"  left out: {left}" for left in program.left_out]
        lines.append(f"  {len(program.variants)} kernel(s); a launch takes the first whose condition holds")
        for variant in program.variants:
            lines.append(f"  {variant.transport.sym_name.data}: {when(variant.predicate)}")
            lines += [f"    {note}" for note in variant.remarks(on)]
            lines += [f"    proved {line}" for line in _by_method(variant.certificate)]
        return "\n".join(lines)

    def without(self, absent: frozenset[str]) -> Kernel:
        """The kernel without these optional tensors: programs of their own."""
        if not absent:
            return self
        partial = self._partial.get(absent)
        if partial is None:
            partial = self._partial[absent] = Kernel(self.function.without(absent))
        return partial

    def with_planned(self, names: frozenset[str]) -> Kernel:
        """The kernel for calls in which plans have made these tensors: programs of their own, which no other call
        finds."""
        partial = self._with_planned.get(names)
        if partial is None:
            partial = self._with_planned[names] = Kernel(self.function.with_planned(names))
        return partial

    def _asked(
        self,
        target: str | Target = SM90A,
        *arguments: object,
        dtypes: Mapping[str, DType | str] | None = None,
        static: Mapping[str, int] | None = None,
        schedule: Schedule | None = None,
        facts: CallFacts | None = None,
        **keywords: Hashable,
    ) -> tuple[Kernel, Request]:
        """The kernel without the optional tensors that are given as None, and what is asked for ahead of a call."""
        if arguments or not isinstance(target, (str, Target)):  # pyright: ignore[reportUnnecessaryIsInstance]
            names = ", ".join(t.name for t in self.function.tensors)
            fail(
                "JIT004",
                found=", ".join(map(shown, (target, *arguments))),
                required=f"one target: {', '.join(TARGETS)}",
                help=f'say dtypes={{"{self.function.tensors[0].name}": "bf16"}} for arguments; '
                f"a call {self.function.name}({names}) compiles by itself",
            )
        absent = frozenset(name for name in self._optional if name in keywords and keywords[name] is None)
        kernel, given = self.without(absent), {name: v for name, v in keywords.items() if name not in absent}
        return kernel, kernel._ahead(target, dtypes, static, schedule, facts, given)

    def _ahead(
        self,
        target: str | Target,
        dtypes: Mapping[str, DType | str] | None,
        static: Mapping[str, int] | None,
        schedule: Schedule | None,
        facts: CallFacts | None,
        keywords: Mapping[str, Hashable],
    ) -> Request:
        options: tuple[tuple[str, object, type], ...] = (
            ("dtypes", dtypes, Mapping),
            ("static", static, Mapping),
            ("schedule", schedule, Schedule),
            ("facts", facts, lazy.specialisation.CallFacts),
        )
        for name, value, kind in options:
            if value is not None and not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
                fail(
                    "LNG029",
                    found=f"{name}={shown(value)}",
                    required="a mapping of names" if kind is Mapping else f"a {kind.__name__}",
                    help=_AS_WRITTEN[name],
                )
        for option, names in (("dtypes", dtypes), ("static", static)):
            for name in names or ():
                if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                    fail("LNG029", found=f"{shown(name)} in {option}", required="names", help=_AS_WRITTEN[option])
        for name, extent in (static or {}).items():
            if isinstance(extent, int) and extent > MAX_EXTENT:  # pyright: ignore[reportUnnecessaryIsInstance]
                fail(
                    "LNG029",
                    found=f"{name} = {extent}",
                    required=f"an extent of at most {MAX_EXTENT}, which is all that a launch serves",
                    help="leave it out: extents that are not static are those of a call",
                )
        for name, value in keywords.items():
            if not is_hashable(value):
                fail(
                    "LNG029",
                    found=f"{name}={shown(value)}",
                    required="a hashable value",
                    help="give a tuple for a list",
                )
        return self._request(self._target(target), self._dtypes(dtypes or {}), keywords, facts, static, schedule)

    # -- calls ----------------------------------------------------------------------------------------------------
    def __call__(self, /, *args: object, stream: object = None, budget: float | None = None, **kwargs: object) -> Any:
        """Run on tensors: on their device, or in the simulator for arrays of NumPy and PyTorch in the host's memory.

        Results are written in place. Those that a call leaves out are allocated, row-major and of the dtype of the
        first tensor of floats (of the first tensor where none is), and returned: one, or a tuple of several in the
        order of the signature.
        ``stream`` is a handle or an object with ``__cuda_stream__``; None is PyTorch's current stream on the device of
        its tensors, for others the legacy default stream. ``budget`` is the most work that the simulator may do, in
        thread-register operations.
        """
        if self._launch_as_before(args, kwargs, stream):
            return None
        pytorch.require_seen((*args, *kwargs.values()))
        if any(isinstance(value, PlannedIndices) for value in (*args, *kwargs.values())):
            names, opened_ = opened(self.function, by_name(self.function, args, kwargs))
            return self.with_planned(names)(stream=stream, budget=budget, **opened_)
        on_gpu = pytorch.first_on_gpu((*args, *kwargs.values()))
        allocator = None
        if on_gpu is not None:
            allocator = pytorch.allocator(on_gpu)
            if stream is None:
                stream = pytorch.current_stream(on_gpu)
        given = by_name(self.function, args, kwargs)
        made = {} if self._has_results(given) else allocated(self.function, given)
        run = self._run if on_gpu is not None else pytorch.untraced(self._run)
        run(given | made, stream, allocator, budget)
        self.check_results(made)
        results = tuple(made.values())
        return results if len(results) > 1 else next(iter(results), None)

    def _launch_as_before(self, args: tuple[object, ...], kwargs: Mapping[str, object], stream: object) -> bool:
        """Launch tensors of PyTorch of the kinds of an earlier call; False, and nothing done, for any other call."""
        form_key: Hashable = (len(args), *kwargs) if kwargs else len(args)
        form = self._forms.get(form_key, _UNSEEN)
        if form is _UNSEEN:
            form = self._forms[form_key] = form_of(self.function, len(args), tuple(kwargs))
        if form is None:
            return False
        values = (*args, *kwargs.values(), *form.defaults)
        absent = form.absent(values)
        selected = self._picks.get((form_key, absent))
        if selected is None:
            kernel = self.without(absent)
            selected = self._picks[form_key, absent] = (kernel, form.pick(absent))
        kernel, pick = selected
        return kernel.launch_guarded(pick(values), form.compile_time(values), stream)

    def tune(self, /, *args: object, best: int = 8, schedules: Iterable[Schedule] = (), **kwargs: object) -> Tuning:
        """Time schedules on a call's tensors, and take the quickest for calls with tensors of these shapes and strides,
        and with these scalars where they decide what is launched.

        Takes the arguments of a call, CUDA tensors; what they hold is as before afterwards. Timed are the schedule that
        the cost model chooses, and ``schedules``, or where none are given up to ``best`` (2 to 64) in all: those that
        the model puts next. Each is compiled and proved as any other; one that the kernel can't have is listed with the
        reason. Median device time of 11 launches, the L2 cache flushed before each, in turn. A schedule must be quicker
        by 1 % to replace the model's. In this process only: ``compile(schedule=result.schedule)`` pins it ahead.
        Waits for the device. JIT013 for arrays in the host's memory and for other values of ``best``.
        """
        if type(best) is not int or not 2 <= best <= _MOST_TIMED:
            required = f"how many schedules to time, 2 to {_MOST_TIMED}"
            fail("JIT013", found=f"best = {shown(best)}", required=required, help="leave it out to time eight")
        try:
            wanted = (schedules,) if isinstance(schedules, Schedule) else tuple(schedules)
        except (TypeError, NotImplementedError):
            help = "write schedules=[tw.Schedule(warps=4), ...]"
            fail("JIT013", found=f"schedules={shown(schedules)}", required="tw.Schedule(...), or several", help=help)
        for each in wanted:
            if not isinstance(each, Schedule):  # pyright: ignore[reportUnnecessaryIsInstance]
                help = "write schedules=[tw.Schedule(warps=4), ...]"
                fail("JIT013", found=f"{shown(each)} among the schedules", required="tw.Schedule(...) each", help=help)
        pytorch.require_seen((*args, *kwargs.values()))
        given = by_name(self.function, args, kwargs)
        names, given = opened(self.function, given)
        if not self._has_results(given):
            given |= allocated(self.function, given)
        absent = frozenset(name for name in self._optional if given.get(name) is None)
        kernel = (self.with_planned(names) if names else self).without(absent)
        call = bind(kernel.function, (), {name: value for name, value in given.items() if name not in absent})
        if _any_on_host(call.tensors.values()):
            fail("JIT013", found="arrays in the host's memory", required="tensors on a GPU")
        return kernel._timed(call, best, wanted)

    def _timed(self, call: Call, best: int, schedules: tuple[Schedule, ...]) -> Tuning:
        """``tune`` with all tensors."""
        described = lazy.runtime.describe_all(call.tensors)
        request = self._request_of(described, call.keywords)
        interface = lazy.requests.interface(request, self._planner(request).traces({}))
        symbols = lazy.runtime.check(interface, described, call.scalars)
        values = (*call.tensors.values(), *call.scalars.values())
        proposed = schedules or islice(self._planner(request).alternatives(symbols), 2 * best)
        found: list[tuple[Schedule, Program]] = []
        refused: list[tuple[Schedule, str]] = []
        texts: set[Hashable] = set()
        for schedule in dict.fromkeys((request.schedule, *proposed)):
            if len(found) == best and not schedules:
                break
            try:
                artifact = self._serving(replace(request, schedule=schedule), symbols)
            except TilewrightError as error:
                refused.append((schedule, error.diagnostics[0].summary))
                continue
            same = tuple(image.source.replace(image.symbol, "") for image in artifact.kernels)
            if same not in texts:
                texts.add(same)
                found.append((schedule, lazy.runtime.load(artifact)))
        tuning, quickest = lazy.tuning.tune(found, refused, values, described, interface)
        kind, scalars = (request, lazy.tuning.layouts_of(described)), quickest.deciding(values)
        others = [tuned for tuned in self._tuned.get(kind, ()) if tuned[0] != scalars]
        self._tuned[kind] = [(scalars, quickest), *others]
        for _, program in self._programs:  # those that served such calls before
            program.forget()
        self._programs = [(dict(call.keywords), quickest), *self._programs]
        return tuning

    def _serving(self, request: Request, symbols: Mapping[str, int]) -> Artifact:
        """The program that one schedule launches for these extents."""
        program, variant = self._variant_for(request, symbols)
        validate = bool(Configuration.from_environment().validation)
        return self._built(replace(program, variants=(variant,)), validate)

    def launch_guarded(self, values: tuple[object, ...], keywords: Mapping[str, Hashable], stream: object) -> bool:
        """``launch`` on the stream, if not None, or on PyTorch's current one, if PyTorch's guards tell that such
        tensors were launched before; False, and nothing done, if they do not."""
        matched = self.match(values, keywords)
        if matched is None:
            return False
        program, found = matched
        plan = found[0].plan
        handle = pytorch.raw_stream(plan.device) if stream is None else lazy.runtime.stream_handle(stream)
        allocator = None if plan.only_launches else pytorch.allocator_on(plan.device)
        program.launch_match(found, values, handle, allocator)
        return True

    def match(self, values: tuple[object, ...], keywords: Mapping[str, Hashable]) -> tuple[Program, Match] | None:
        """The program that would serve such arguments, where PyTorch's guards tell that they were launched before."""
        for known, program in self._programs:
            if are_alike(known, keywords):
                found = program.match(values)
                if found is not None:
                    return program, found
        return None

    def _has_results(self, given: Mapping[str, object]) -> bool:
        return all(t.name in given or t.optional for t in self.function.tensors)

    def _run(
        self, given: Mapping[str, object], stream: object, allocator: Allocator | None, budget: float | None
    ) -> None:
        """A call with all its tensors, by name."""
        absent = frozenset(name for name in self._optional if given.get(name) is None)
        if absent:
            rest = {name: value for name, value in given.items() if name not in absent}
            partial = self.without(absent)
            partial._run(rest, stream, allocator, budget)
            self._unwritten |= partial._unwritten
            return
        call = bind(self.function, (), given)
        if _any_on_host(call.tensors.values()):
            if stream is not None:
                lazy.runtime.stream_handle(stream)
            self._simulate(call, budget)
            return
        self.launch((*call.tensors.values(), *call.scalars.values()), call.keywords, stream, allocator)

    def launch(
        self,
        values: tuple[object, ...],
        keywords: Mapping[str, Hashable],
        stream: object,
        allocator: Allocator | None,
    ) -> None:
        """Launch with all tensors, then all scalars, in the order of the signature, and the keywords that are not as
        their defaults: what ``bind`` makes of a call."""
        if self._launch_known(values, keywords, stream, allocator):
            return
        tensors = {t.name: value for t, value in zip(self.function.tensors, values, strict=False)}
        described = lazy.runtime.describe_all(tensors, stream)
        request = self._request_of(described, keywords)
        for scalars, tuned in self._tuned.get((request, lazy.tuning.layouts_of(described)), ()) if self._tuned else ():
            if tuned.deciding(values) == scalars:
                tuned.launch(values, stream, allocator)
                return
        if request not in self._of_class:
            artifact = self._artifact(request, ahead=False)
            self._note_uses(artifact)
            program = self._of_class[request] = lazy.runtime.load(artifact)
            self._programs = [(dict(keywords), program), *self._programs]
        self._of_class[request].launch(values, stream, allocator)

    def _request_of(self, described: Mapping[str, TensorDescription], keywords: Mapping[str, Hashable]) -> Request:
        """The request of a call with these tensors; RUN003 for a tensor with other axes than its parameter."""
        for param in self.function.tensors:  # facts of an axis that there is not would be planned for
            shape, declared = described[param.name].shape, ", ".join(map(str, param.dims))
            if len(shape) != len(param.dims):
                required = f"{len(param.dims)} dimensions, {param.name}[{declared}]"
                fail("RUN003", found=f"{param.name} has shape {tuple(shape)}", required=required)
        seen = {n: lazy.specialisation.Observed(d.dtype, d.address, d.shape, d.strides) for n, d in described.items()}
        target = next(
            (t for t in TARGETS.values() if t.compute_capability == lazy.runtime.capability(described)), SM90A
        )
        return self._request(
            target, {n: t.dtype for n, t in seen.items()}, keywords, lazy.specialisation.observe_facts(seen)
        )

    def _launch_known(
        self,
        values: tuple[object, ...],
        keywords: Mapping[str, Hashable],
        stream: object,
        allocator: Allocator | None,
    ) -> bool:
        """Launch by the program that served such arguments before, if there is one. Others are served by the program of
        their own class: one that assumes less of its arguments would take them too, and take longer."""
        programs = self._programs
        for place, (known, program) in enumerate(programs):
            if are_alike(known, keywords) and program.launch_known(values, stream, allocator):
                if place:  # the next call is likely another such
                    self._programs = [programs[place], *programs[:place], *programs[place + 1 :]]
                return True
        return False

    def check_results(self, names: Collection[str]) -> None:
        """JIT008 if a program of this kernel that was made so far leaves one of these tensors as it was: allocated for
        a call, it would come back unwritten."""
        left = self._unwritten and self._unwritten.intersection(names)
        if left:
            fail(
                "JIT008",
                where=self.function.where,
                found=f"{', '.join(sorted(left))}, which this program of {self.function.name} does not write",
                required="a result that every program of the kernel writes",
                help="allocate it and pass it, or write it on every path of the body",
            )

    def _note_uses(self, interface: Artifact) -> None:
        """Compare what a program does with its source; JIT008 if it writes what that does not show."""
        uses = uses_of(self.function.fn)
        if uses is None:
            return
        written = {t.name for t in interface.tensors if t.access.writes}
        hidden = written - uses.written - uses.unclear
        if hidden:
            fail(
                "JIT008",
                where=self.function.where,
                found=f"{', '.join(sorted(hidden))}, written by code that the kernel's source does not show",
                required="stores to parameters by their own names",
            )
        self._unwritten |= {t.name for t in interface.tensors if t.name in uses.written} - written

    def _simulate(self, call: Call, budget: float | None) -> None:
        with within_stack(self.function.where):
            self._run_simulated(call, budget)

    def _run_simulated(self, call: Call, budget: float | None) -> None:
        tensors = {n: lazy.arrays.of_tensor(t) if pytorch.is_on_cpu(t) else t for n, t in call.tensors.items()}
        described = {name: lazy.arrays.describe(name, value) for name, value in tensors.items()}
        seen = {n: lazy.specialisation.Observed(d.dtype, d.address, d.shape, d.strides) for n, d in described.items()}
        request = self._request(
            SM90A, {n: t.dtype for n, t in seen.items()}, call.keywords, lazy.specialisation.observe_facts(seen)
        )
        request = replace(request, debug=self.function.on_out_of_range == "trap")
        interface = lazy.requests.interface(request, self._planner(request).traces({}))
        self._note_uses(interface)
        symbols = lazy.runtime.check(interface, described, call.scalars)
        arrays = lazy.arrays.only_arrays(tensors)
        program, variant = self._variant_for(request, symbols)
        allowed = lazy.simulate.DEFAULT_BUDGET if budget is None else number_of(budget)
        if allowed is None or not allowed >= 0:
            fail(
                "JIT001",
                found=f"budget = {shown(budget)}",
                required="a number of thread-register operations, at least 0",
                help="leave it out for the default",
            )
        self._warn_of_assembler(program, variant)
        steps, scratch = variant.steps, variant.scratch
        kept = {s.name: s.allocate(symbols) for s in scratch if s.kept}
        lazy.simulate.run_steps(steps, scratch, arrays | kept, call.scalars, symbols=symbols, budget=allowed)
        broken = variant.broken(kept)
        if broken:
            lazy.runtime.index_promises.refuse(self.function.name, broken)

    def _warn_of_assembler(self, program: PlannedProgram, variant: Variant) -> None:
        """Warn once of a class that is simulated and would not be compiled, with the compiler's reason."""
        known = (program.request, str(variant.predicate))
        if known in self._asked_to_build:
            return
        self._asked_to_build.add(known)
        warning = assembler_warning(program, variant, self.function.where)
        if warning:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    def _variant_for(self, request: Request, symbols: Mapping[str, int]) -> tuple[PlannedProgram, Variant]:
        """The program, and its variant that dispatch would pick: mostly the one planned for these extents alone,
        unless these strides fail what its tensor copies need."""
        for extents in (symbols, None):
            program = self._plan(request, extents)
            for variant in program.variants:
                if variant.predicate.evaluate(symbols):
                    return program, variant
        refuse_uncovered(self._plan(request), symbols, self.function.where)

    # -- requests -------------------------------------------------------------------------------------------------
    def _request(
        self,
        target: Target,
        dtypes: Mapping[str, DType],
        keywords: Mapping[str, Hashable],
        facts: CallFacts | None = None,
        static: Mapping[str, int] | None = None,
        schedule: Schedule | None = None,
    ) -> Request:
        signature = Signature.of(dtypes, static=static, keywords=keywords)
        known = facts if facts is not None else lazy.specialisation.default_facts(self.function)
        return lazy.specialisation.Request(self.function, signature, known, target, schedule or _unpinned())

    def _plan(self, request: Request, extents: Mapping[str, int] | None = None) -> PlannedProgram:
        """Remembered for these extents and for all, as long as what the body reads from Python is known to be the
        same."""
        code = fingerprint(self.function.fn, dict(request.signature.keywords))
        keys = [(request, code, None), (request, code, _as_planned(extents or {}))]
        for key in keys if code is not None else ():
            if key in self._plans:
                return self._plans[key]
        with within_stack(self.function.where):
            planned = self._planner(request).program(extents)
        if code is not None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[keys[extents is not None]] = planned
        return planned

    def _planner(self, request: Request) -> Planner:
        """Kept like the plans that it makes: other extents of a class that has been planned take its kernel."""
        code = fingerprint(self.function.fn, dict(request.signature.keywords))
        planner = self._planners.get((request, code)) if code is not None else None
        if planner is None:
            planner = lazy.program.Planner(request)
            if code is not None:
                if len(self._planners) >= _MAX_PLANS:
                    self._planners.pop(next(iter(self._planners)))
                self._planners[request, code] = planner
        return planner

    def _artifact(self, request: Request, *, ahead: bool) -> Artifact:
        """From the store, from what was shipped, or compiled and stored; ``ahead`` of time or at a call.

        Where no fingerprint tells what tracing reads, the traced programs are the key; what is traced while assembling
        could then differ under an equal key, and is not stored.
        """
        code = fingerprint(self.function.fn, dict(request.signature.keywords))
        planned = self._plan(request) if code is None else None
        traced = planned.traces.text if planned is not None else ""
        key = self._key(request, code or traced)
        configuration = Configuration.from_environment()
        store = ArtifactStore(configuration.store)
        validate = ahead if configuration.validation is None else configuration.validation
        found = store.get(key) or Shipped(configuration.shipped).get(key)
        if found is None or (validate and not request.debug and not found.compared):
            planned = planned or self._plan(request)
            found = self._built(planned, validate)
            if code is not None or planned.traces.text == traced:
                _keep(store, key, found)
        return found

    def _key(self, request: Request, code: str) -> str:
        """The key in the store: kernel, request and compiler."""
        told = {name: fingerprint_of(value) for name, value in request.signature.keywords}
        function, signature = self.function, replace(request.signature, keywords=tuple(told.items()))
        what = (
            *(function.name, function.tensors, function.scalars, function.numerics, function.on_out_of_range),
            function.sentinel,
            *(signature, request.facts, request.target.name, str(request.schedule), request.debug),
        )
        return digest((compiler_identity(), code, *map(repr, what)))

    def _built(self, planned: PlannedProgram, validate: bool) -> Artifact:
        with within_stack(self.function.where):
            return lazy.build.build(planned, validate=validate)

    def _dtypes(self, given: Mapping[str, DType | str]) -> dict[str, DType]:
        result = {t.name: f32 if t.promise is None else i32 for t in self.function.tensors}
        for name, value in given.items():
            dtype = dtype_named(value) if isinstance(value, str) else value
            if not isinstance(dtype, DType):
                near = " or ".join(map(str, dtypes_near(str(value))))
                fail(
                    "JIT003",
                    where=self.function.where,
                    found=f"{name} of {value if isinstance(value, str) else shown(value)}",
                    required=", ".join(DTYPES),
                    help=f"did you mean {near}?" if near else "",
                )
            result[name] = dtype
        return result

    def _target(self, target: str | Target) -> Target:
        if isinstance(target, Target):
            return target
        if target not in TARGETS:
            help = near_names(target, TARGETS)
            fail("JIT004", where=self.function.where, found=shown(target), required=", ".join(TARGETS), help=help)
        return TARGETS[target]


def _as_planned(extents: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """What a plan depends on: of addresses their place in a vector, so that new arrays of old extents plan nothing."""
    return tuple(sorted((n, v % MAX_VECTOR_BYTES if n.endswith(".address") else v) for n, v in extents.items()))


def _any_on_host(values: Iterable[object]) -> bool:
    """Whether one of these is an array that runs in the simulator."""
    return any(lazy.is_array(value) or pytorch.is_on_cpu(value) for value in values)

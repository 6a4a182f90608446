"""Consistency of an artifact beyond the types of its fields: every reference resolves, every size is possible.

``ART006`` names the first inconsistency. Checked when a bundle is written and again when one is read, so that neither a
compiler bug nor an untrusted bundle reaches the runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NoReturn

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    SCHEMA_VERSION,
    Artifact,
    Copy,
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    KernelArg,
    KernelImage,
    Launch,
    Pointer,
    ScalarArgument,
    TensorArgument,
    TensorMapArg,
    TensorPointer,
    Variant,
    WorkspacePointer,
    workspace_address,
)
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Const, Expr, unsolved
from tilewright.diag import fail
from tilewright.hw.target import TARGETS, Target

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
INT_SCALARS = frozenset({"i32", "i64", "u32", "bool"})
FLOAT_SCALARS = frozenset({"f32", "f16", "bf16"})
_MAX_PARAMETERS, _MAX_RANK, _MAX_STEPS, _MAX_NAME = 4096, 64, 4096, 1000


def require_well_formed(artifact: Artifact) -> None:
    """Refuse an inconsistent artifact (ART002, ART006)."""
    if artifact.schema_version != SCHEMA_VERSION:
        fail("ART002", found=f"schema version {artifact.schema_version}", required=f"schema version {SCHEMA_VERSION}")
    target = TARGETS.get(artifact.target)
    if target is None:
        _refuse("target", artifact.target, f"one of {', '.join(TARGETS)}")
    if len(artifact.parameters) > _MAX_PARAMETERS or len(artifact.name) > _MAX_NAME:
        found = f"{len(artifact.parameters)} parameters, a name of {len(artifact.name)} characters"
        _refuse("parameters", found, f"at most {_MAX_PARAMETERS}, and {_MAX_NAME} characters")
    _unique("parameters", (p.name for p in artifact.parameters))
    _unique("kernels", (k.symbol for k in artifact.kernels))
    _unique("programs", (p.name for p in artifact.programs))
    for parameter in artifact.parameters:
        _check_parameter(parameter)
    known = symbols_of(artifact)
    for i, fact in enumerate(artifact.facts):
        _check_expr(f"facts[{i}]", fact, known)
    unknown = sorted(unsolved(d for p in artifact.tensors for d in p.dims))
    if unknown:
        _refuse("parameters", f"the symbol {unknown[0]}", "symbols whose values the extents of tensors give")
    dimensions = {name for p in artifact.tensors for d in p.dims for name in d.symbols}
    for bound in artifact.bounds:
        if bound.symbol not in dimensions:
            _refuse(f"bounds.{bound.symbol}", bound.symbol, "a dimension of a parameter")
    for i, left in enumerate(artifact.left_out):
        _check_expr(f"left_out[{i}]", left.predicate, known)
    named = [p.name for p in artifact.programs]
    for name in named:
        if not _IDENTIFIER.fullmatch(name):
            _refuse("programs", repr(name), "an identifier")
    for kernel in artifact.kernels:
        _check_kernel(kernel, target)
        if unknown := set(kernel.made_of) - set(named):
            _refuse(f"kernels.{kernel.symbol}.made_of", min(unknown), f"one of {', '.join(named) or 'no programs'}")
    if not artifact.variants:
        _refuse("variants", "none", "at least one")
    for i, variant in enumerate(artifact.variants):
        _VariantCheck(artifact, variant, f"variants[{i}]", known).run()


def symbols_of(artifact: Artifact) -> frozenset[str]:
    """Every symbol an expression of this artifact may use."""

    def names() -> Iterator[str]:
        for p in artifact.parameters:
            if isinstance(p, TensorArgument):
                yield f"{p.name}.address"
                yield from (f"{p.name}.stride{i}" for i in range(p.rank))
                yield from (name for d in p.dims for name in d.symbols)
            elif p.dtype in INT_SCALARS:
                yield p.name

    return frozenset(names())


def _check_parameter(parameter: TensorArgument | ScalarArgument) -> None:
    where = f"parameters.{parameter.name}"
    if not _IDENTIFIER.fullmatch(parameter.name):
        _refuse(where, repr(parameter.name), "an identifier")
    if isinstance(parameter, ScalarArgument):
        if parameter.dtype not in INT_SCALARS | FLOAT_SCALARS:
            _refuse(where, parameter.dtype, f"one of {', '.join(sorted(INT_SCALARS | FLOAT_SCALARS))}")
        return
    if parameter.dtype not in DTYPES:
        _refuse(where, parameter.dtype, f"one of {', '.join(DTYPES)}")
    if parameter.rank > _MAX_RANK:
        _refuse(where, f"{parameter.rank} dimensions", f"at most {_MAX_RANK}")
    for dim in parameter.dims:
        match dim:
            case Const(value) if value >= 0:
                pass
            case _ if dim.symbols and all(map(_IDENTIFIER.fullmatch, dim.symbols)):
                pass
            case _:
                _refuse(where, f"the extent {dim}", "an expression of symbols, or a constant that is not negative")


def _check_kernel(kernel: KernelImage, target: Target) -> None:
    where = f"kernels.{kernel.symbol}"
    if not _IDENTIFIER.fullmatch(kernel.symbol):
        _refuse(where, repr(kernel.symbol), "an identifier")
    if not 1 <= kernel.threads <= target.max_threads_per_cta:
        _refuse(f"{where}.threads", kernel.threads, f"1 to {target.max_threads_per_cta}")
    if not all(1 <= n <= 16 for n in kernel.cluster):
        _refuse(f"{where}.cluster", kernel.cluster, "1 to 16 CTAs a dimension")
    used = kernel.shared_bytes + kernel.static_shared_bytes
    if kernel.shared_bytes < 0 or not 0 <= used <= target.shared_per_cta_bytes:
        _refuse(f"{where}.shared_bytes", used, f"0 to {target.shared_per_cta_bytes}")


class _VariantCheck:
    """One variant's steps, in order, with the descriptor slots filled so far."""

    def __init__(self, artifact: Artifact, variant: Variant, where: str, known: frozenset[str]) -> None:
        self.variant = variant
        self.where = where
        self.known = known
        self.kernels = {k.symbol for k in artifact.kernels}
        self.tensors = {p.name for p in artifact.tensors}
        self.outputs = {p.name for p in artifact.tensors if p.access.writes}
        self.offsets = frozenset(s for s in known if not s.endswith(".address"))
        self.floats = {
            p.name for p in artifact.parameters if isinstance(p, ScalarArgument) and p.dtype in FLOAT_SCALARS
        }
        self.slots: set[int] = set()

    def run(self) -> None:
        _check_expr(f"{self.where}.predicate", self.variant.predicate, self.known)
        for i, size in enumerate(self.variant.workspace):
            _check_expr(f"{self.where}.workspace[{i}]", size, self.known)
        if len(self.variant.reports) > 1:
            _refuse(f"{self.where}.reports", len(self.variant.reports), "one at most")
        for report in self.variant.reports:
            if not 0 <= report.workspace < len(self.variant.workspace):
                blocks = len(self.variant.workspace)
                _refuse(f"{self.where}.reports", f"workspace {report.workspace}", f"one of the variant's {blocks}")
            if not 1 <= len(report.promises) <= _MAX_PARAMETERS:
                _refuse(f"{self.where}.reports", f"{len(report.promises)} promises", f"1 to {_MAX_PARAMETERS}")
        if len(self.variant.steps) > _MAX_STEPS:
            _refuse(f"{self.where}.steps", f"{len(self.variant.steps)} steps", f"at most {_MAX_STEPS}")
        for i, step in enumerate(self.variant.steps):
            where = f"{self.where}.steps[{i}]"
            match step:
                case Launch(kernel, grid, args):
                    if kernel not in self.kernels:
                        _refuse(where, f"kernel {kernel}", "a kernel of the artifact")
                    for extent in grid:
                        _check_expr(f"{where}.grid", extent, self.known)
                    for j, arg in enumerate(args):
                        self.check_arg(f"{where}.args[{j}]", arg)
                case Copy(source, destination, size_bytes):
                    self.check_arg(f"{where}.source", source)
                    self.check_destination(f"{where}.destination", destination)
                    _check_expr(f"{where}.size_bytes", size_bytes, self.known)
                case Fill(destination, pattern, width_bytes, count):
                    self.check_destination(f"{where}.destination", destination)
                    if width_bytes not in (1, 2, 4) or not 0 <= pattern < 1 << 8 * width_bytes:
                        _refuse(where, f"pattern {pattern} of {width_bytes} bytes", "1, 2 or 4 bytes that hold it")
                    _check_expr(f"{where}.count", count, self.known)
                case EncodeTensorMap(slot, recipe):
                    if not 0 <= slot < len(self.variant.steps) or slot in self.slots:
                        _refuse(f"{where}.slot", slot, "a slot not yet encoded, numbered from 0")
                    blocks = {workspace_address(i) for i in range(len(self.variant.workspace))}
                    _check_recipe(f"{where}.recipe", recipe, self.known, self.known | blocks)
                    self.slots.add(slot)

    def check_destination(self, where: str, pointer: Pointer) -> None:
        """Check the destination of a host step's write: a tensor that the program may write, or a workspace."""
        if isinstance(pointer, TensorPointer) and pointer.name not in self.outputs:
            _refuse(where, f"tensor {pointer.name}", "a tensor that the program writes")
        self.check_arg(where, pointer)

    def check_arg(self, where: str, arg: KernelArg) -> None:
        match arg:
            case TensorPointer(name, offset):
                if name not in self.tensors:
                    _refuse(where, f"tensor {name}", "a tensor parameter")
                _check_expr(f"{where}.offset", offset, self.offsets)
            case WorkspacePointer(index, offset):
                if not 0 <= index < len(self.variant.workspace):
                    _refuse(where, f"workspace {index}", f"one of the variant's {len(self.variant.workspace)}")
                _check_expr(f"{where}.offset", offset, self.offsets)
            case IntScalar(value, bits):
                if bits not in (32, 64):
                    _refuse(where, f"{bits} bits", "32 or 64 bits")
                _check_expr(where, value, self.known)
            case FloatScalar(name):
                if name not in self.floats:
                    _refuse(where, f"scalar {name}", "a floating scalar parameter")
            case TensorMapArg(slot):
                if slot not in self.slots:
                    _refuse(where, f"descriptor slot {slot}", "a slot encoded by an earlier step")


def _check_recipe(where: str, recipe: TensorMapRecipe, known: frozenset[str], known_to_address: frozenset[str]) -> None:
    rank = recipe.rank
    if not 1 <= rank <= 5:
        _refuse(where, f"rank {rank}", "rank 1 to 5")
    if (len(recipe.strides_bytes), len(recipe.box), len(recipe.element_strides)) != (rank - 1, rank, rank):
        _refuse(where, "fields of another rank", f"{rank - 1} strides, {rank} box extents, {rank} element strides")
    if not all(1 <= b <= 256 for b in recipe.box) or not all(1 <= s <= 8 for s in recipe.element_strides):
        _refuse(where, f"box {recipe.box}, element strides {recipe.element_strides}", "1 to 256, 1 to 8")
    _check_expr(where, recipe.address, known_to_address)
    for e in (*recipe.dims, *recipe.strides_bytes):
        _check_expr(where, e, known)


def _check_expr(where: str, e: Expr, known: frozenset[str]) -> None:
    unknown = sorted(e.symbols - known)
    if unknown:
        _refuse(where, f"{e} uses {', '.join(unknown)}", "dimensions, strides, addresses and integer scalars")


def _unique(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            _refuse(where, f"two called {name}", "one each")
        seen.add(name)


def _refuse(where: str, found: object, required: str) -> NoReturn:
    fail("ART006", found=f"{where}: {found}", required=required)

"""Proves the certificate of a variant's steps again, from the kernels' IR: for untrusted bundles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.artifact.schema import CHECKED, Launch, Obligation, Variant
from tilewright.base.expr import OWN, Const, Expr, Sym
from tilewright.compiler.proofs.collapsed_dimensions import certify_collapsed, tensors_of
from tilewright.compiler.proofs.program_match import ProgramMismatchError
from tilewright.compiler.proofs.retiled import require_retiled
from tilewright.compiler.proofs.rewritten import certify_rewritten
from tilewright.compiler.proofs.steps import certify_queue, certify_workspaces
from tilewright.compiler.reliance import BROKEN, BY_EACH_CTA, UNWRITTEN, promises_of
from tilewright.compiler.workspaces import COPY, StagedTensor
from tilewright.diag import TilewrightError
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class _ReadKernel:
    """A kernel that a step launches, parsed from its IR."""

    tile: tile.Kernel
    transport: t.Kernel
    workspaces: Mapping[str, StagedTensor]
    collapsed: Mapping[str, Expr]
    originals: tuple[tile.Kernel, ...]

    @property
    def binding(self) -> Mapping[str, Expr]:
        """The values that a launch passes for symbols of no argument."""
        return {name: count for item in self.workspaces.values() for name, count in item.given}


def steps_reproved(
    variant: Variant,
    kernels: Mapping[str, t.Kernel],
    programs: Mapping[str, tile.Kernel],
    originals: Mapping[str, tuple[tile.Kernel, ...]],
) -> tuple[tuple[Obligation, ...], tuple[str, ...]]:
    """The obligations shown of a variant's steps, and what is left open: why something is not proved, and claims of the
    certificate that no proof shows. ``originals`` are the programs that kernels were derived from."""
    launched = [s.kernel for s in variant.steps if isinstance(s, Launch)]
    missing = [symbol for symbol in launched if symbol not in kernels or symbol not in programs]
    if missing or not launched:
        return (), (f"{variant.name}: no texts of {', '.join(missing) or 'a kernel'}",)
    try:
        read = {s: _read(kernels[s], programs[s], originals.get(s, ())) for s in launched}
        every = [read[symbol] for symbol in launched]
        kept = {report.workspace for report in variant.reports}
        found = (
            *certify_workspaces(variant.steps, read, variant.predicate, kept),
            *certify_queue(every[-1], variant.steps),
            *certify_rewritten(every, variant.predicate),
            *certify_collapsed(every[-1], variant.predicate),
        )
        _require_one_program([whole for kernel in every for whole in kernel.originals])
    except TilewrightError as error:
        return (), (f"{variant.name}: {'; '.join(d.found for d in error.diagnostics)}",)
    except ProgramMismatchError as why:
        return (), (f"{variant.name}: made of programs that differ: {why}",)
    known = {*found, *_checks(every)}
    claims = (o for o in variant.certificate if o not in known)
    return found, tuple(
        f"{variant.name}: the certificate says {o.name} {o.detail} by {o.method}, which is not shown" for o in claims
    )


def _read(kernel: t.Kernel, source: tile.Kernel, originals: tuple[tile.Kernel, ...]) -> _ReadKernel:
    kinds = tensors_of(source)
    placed: dict[str, StagedTensor] = {}
    for w in kernel.workspaces or ():
        name, kind = w.tensor.data, kinds[w.tensor.data]
        dims, extents = (tuple(d.expr for d in several) for several in (kind.dims, w.extents))
        own = tuple((d.name, e) for d, e in zip(dims, extents, strict=True) if isinstance(d, Sym) and OWN in d.name)
        strides = tuple(s.expr for s in w.strides)
        dense = (axis for axis, stride in enumerate(strides) if stride == Const(1))
        items = (StagedTensor(name.removesuffix(COPY), kind.element, dims, axis, w.index.data, own) for axis in dense)
        layouts = (i for i in items if (i.extents, i.strides, i.size_bytes) == (extents, strides, w.size_bytes.expr))
        item = next(layouts, None)
        if item is None:
            raise ValueError(f"{name} has another layout than tensors in workspaces have")
        placed[name] = item
    collapsed = {c.symbol.data: c.value.expr for c in kernel.collapsed or ()}
    return _ReadKernel(source, kernel, placed, collapsed, originals)


def _require_one_program(originals: Sequence[tile.Kernel]) -> None:
    """``ProgramMismatchError`` where the programs differ in more than their tile sizes."""
    for other in originals[1:]:
        require_retiled(originals[0], other)


def _checks(kernels: list[_ReadKernel]) -> Iterator[Obligation]:
    """The obligation that steps which set flags check a promise, which ``promise_tests`` executes, or that each CTA
    checks it, which the proof of its gate shows."""
    judged = kernels[-1].tile.judged is not None
    for promise in promises_of(kernels[-1].tile):
        if judged:
            yield Obligation(str(promise), CHECKED, BY_EACH_CTA)
        for number, kernel in enumerate(kernels[:-1], 1):
            if BROKEN in kernel.workspaces:
                by = f"by step {number} of {len(kernels)}, before any store, {UNWRITTEN}"
                yield Obligation(str(promise), CHECKED, by)

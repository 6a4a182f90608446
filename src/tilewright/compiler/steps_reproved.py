"""What a variant's certificate says of its steps, proved again from the kernels' texts: for bundles of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.artifact.schema import CHECKED, Launch, Obligation, Variant
from tilewright.base.expr import OWN, Const, Expr, Sym
from tilewright.compiler.proofs.collapsed import certify_collapsed, tensors_of
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
    """A kernel that a step launches, as its texts have it."""

    tile: tile.Kernel
    transport: t.Kernel
    workspaces: Mapping[str, StagedTensor]
    collapsed: Mapping[str, Expr]
    wholes: tuple[tile.Kernel, ...]

    @property
    def binding(self) -> Mapping[str, Expr]:
        """What a launch passes for symbols that are no argument's."""
        return {name: count for item in self.workspaces.values() for name, count in item.given}


def steps_reproved(
    variant: Variant,
    kernels: Mapping[str, t.Kernel],
    programs: Mapping[str, tile.Kernel],
    wholes: Mapping[str, tuple[tile.Kernel, ...]],
) -> tuple[tuple[Obligation, ...], tuple[str, ...]]:
    """What is shown of a variant's steps, and what is left open: why something is not proved, and what its certificate
    says that nothing shows. ``wholes`` are the programs that kernels were made of."""
    launched = [s.kernel for s in variant.steps if isinstance(s, Launch)]
    missing = [symbol for symbol in launched if symbol not in kernels or symbol not in programs]
    if missing or not launched:
        return (), (f"{variant.name}: no texts of {', '.join(missing) or 'a kernel'}",)
    try:
        read = {s: _read(kernels[s], programs[s], wholes.get(s, ())) for s in launched}
        every = [read[symbol] for symbol in launched]
        kept = {report.workspace for report in variant.reports}
        found = (
            *certify_workspaces(variant.steps, read, variant.predicate, kept),
            *certify_queue(every[-1], variant.steps),
            *certify_rewritten(every, variant.predicate),
            *certify_collapsed(every[-1], variant.predicate),
        )
        _require_one_program([whole for kernel in every for whole in kernel.wholes])
    except TilewrightError as error:
        return (), (f"{variant.name}: {'; '.join(d.found for d in error.diagnostics)}",)
    except ProgramMismatchError as why:
        return (), (f"{variant.name}: made of programs that differ: {why}",)
    known = {*found, *_checks(every)}
    claims = (o for o in variant.certificate if o not in known)
    return found, tuple(
        f"{variant.name}: the certificate says {o.name} {o.detail} by {o.method}, which is not shown" for o in claims
    )


def _read(kernel: t.Kernel, source: tile.Kernel, wholes: tuple[tile.Kernel, ...]) -> _ReadKernel:
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
    return _ReadKernel(source, kernel, placed, collapsed, wholes)


def _require_one_program(wholes: Sequence[tile.Kernel]) -> None:
    """``ProgramMismatchError`` where they differ in more than the sizes of their tiles."""
    for other in wholes[1:]:
        require_retiled(wholes[0], other)


def _checks(kernels: list[_ReadKernel]) -> Iterator[Obligation]:
    """That a step which sets flags judges a promise: ``promise_tests`` executes them; or that each CTA does, which is
    the proof of its gate."""
    judged = kernels[-1].tile.judged is not None
    for promise in promises_of(kernels[-1].tile):
        if judged:
            yield Obligation(str(promise), CHECKED, BY_EACH_CTA)
        for number, kernel in enumerate(kernels[:-1], 1):
            if BROKEN in kernel.workspaces:
                by = f"by step {number} of {len(kernels)}, before any store, {UNWRITTEN}"
                yield Obligation(str(promise), CHECKED, by)

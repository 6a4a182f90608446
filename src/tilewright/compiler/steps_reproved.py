"""What a variant's certificate says of its steps, proved again from the kernels' texts: for bundles of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.artifact.schema import CHECKED, Launch, Obligation, Variant
from tilewright.base.expr import OWN, Const, Expr, Sym
from tilewright.compiler.proofs.collapsed import certify_collapsed, tensors_of
from tilewright.compiler.proofs.rewritten import in_cluster, in_parts, in_rest, in_swapped_operands, is_rest
from tilewright.compiler.proofs.steps import certify_workspaces
from tilewright.compiler.reliance import BROKEN, UNWRITTEN, promises_of
from tilewright.compiler.workspaces import COPY, StagedTensor
from tilewright.diag import TilewrightError
from tilewright.tile import dialect as tile
from tilewright.tile.program_sums import ProgramSum
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class _ReadKernel:
    """A kernel that a step launches, as its texts have it."""

    tile: tile.Kernel
    transport: t.Kernel
    workspaces: Mapping[str, StagedTensor]
    collapsed: Mapping[str, Expr]


def steps_reproved(
    variant: Variant, kernels: Mapping[str, t.Kernel], programs: Mapping[str, tile.Kernel], *, executed: bool
) -> tuple[tuple[Obligation, ...], tuple[str, ...]]:
    """What is shown of a variant's steps, and what is left open: why something is not proved, and what its certificate
    says that nothing shows. ``executed``: launches of it and of other variants agreed, which stands for the identity by
    which its program was rewritten; the program that it was is in no bundle."""
    launched = [s.kernel for s in variant.steps if isinstance(s, Launch)]
    missing = [symbol for symbol in launched if symbol not in kernels or symbol not in programs]
    if missing or not launched:
        return (), (f"{variant.name}: no texts of {', '.join(missing) or 'a kernel'}",)
    try:
        read = {symbol: _read(kernels[symbol], programs[symbol]) for symbol in launched}
        kept = {report.workspace for report in variant.reports}
        found = (
            *certify_workspaces(variant.steps, read, variant.predicate, kept),
            *certify_collapsed(read[launched[-1]], variant.predicate),
        )
    except TilewrightError as error:
        return (), (f"{variant.name}: {'; '.join(d.found for d in error.diagnostics)}",)
    every = [read[symbol] for symbol in launched]
    own = every[-1].tile
    rests = (in_rest(variant.predicate) for w in programs.values() if is_rest(w, own, variant.predicate))
    found += tuple(dict.fromkeys(rests))
    known = {*found, *_checks(every), *(_rewritings(every) if executed else ())}
    claims = (o for o in variant.certificate if o not in known)
    return found, tuple(
        f"{variant.name}: the certificate says {o.name} {o.detail} by {o.method}, which is not shown" for o in claims
    )


def _read(kernel: t.Kernel, source: tile.Kernel) -> _ReadKernel:
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
    return _ReadKernel(source, kernel, placed, {c.symbol.data: c.value.expr for c in kernel.collapsed or ()})


def _checks(kernels: list[_ReadKernel]) -> Iterator[Obligation]:
    """That a step which sets flags judges a promise: ``promises_kept`` executes them."""
    for promise in promises_of(kernels[-1].tile):
        for number, kernel in enumerate(kernels[:-1], 1):
            if BROKEN in kernel.workspaces:
                by = f"by step {number} of {len(kernels)}, before any store, {UNWRITTEN}"
                yield Obligation(str(promise), CHECKED, by)


def _rewritings(kernels: list[_ReadKernel]) -> Iterator[Obligation]:
    """The words for how the last kernels may have been rewritten, by what their texts are."""
    last = kernels[-1]
    yield in_swapped_operands()
    yield from (in_cluster(op.parts.data) for op in last.tile.walk() if isinstance(op, ProgramSum))
    counts = (given for item in last.workspaces.values() for _, given in item.given)
    yield from map(in_parts, counts)

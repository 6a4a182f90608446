"""``map`` and ``descriptor`` find what is changed in a lowered kernel; without its certificate none is emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from xdsl.dialects.builtin import ArrayAttr, IntAttr

from support import products as p
from tilewright.base.expr import Const, sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel, PlannedProgram
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.obligations import missing, prove_descriptors
from tilewright.compiler.tracing import Tracing
from tilewright.diag import TilewrightError
from tilewright.hw.tensormap import Swizzle
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import OperandNumbers, TmaAttr, TmaNumbers, WgmmaOperandAttr
from tilewright.transport.text import transport_kernel
from tilewright.verify.rules import Rule

pytestmark = pytest.mark.sample(3)


@pytest.fixture(scope="module")
def product() -> PlannedKernel:
    return plan(p.request(p.nn, bm=128, bn=128)).variants[0]


def first(kernel: t.Kernel, kind: type, index: int = 0) -> t.TransportOp:
    return [op for op in kernel.walk() if isinstance(op, kind)][index]


def retold(change: Callable[[TmaNumbers], TmaNumbers], index: int = 0) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        op = first(kernel, a.TensorMap, index)
        op.attributes["descriptor"] = TmaAttr(change(op.numbers))

    return apply


def reread(change: Callable[[OperandNumbers], OperandNumbers]) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        op = first(kernel, a.Wgmma)
        op.attributes["b_operand"] = WgmmaOperandAttr(change(op.b_operand.data))

    return apply


def moved(kind: type, attribute: str, by: int, index: int = 0) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        op = first(kernel, kind, index)
        op.attributes[attribute] = ExprAttr.of(op.attributes[attribute].expr + by)

    return apply


def shifted(kind: type, dimension: int, by: int) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        op = first(kernel, kind)
        coords = [c.expr + by * (i == dimension) for i, c in enumerate(op.coords)]
        op.attributes["coords"] = ArrayAttr([ExprAttr.of(c) for c in coords])

    return apply


def exchanged(kernel: t.Kernel) -> None:
    """Two instructions read the left operand's steps of k in the wrong order."""
    one, other = first(kernel, a.Wgmma), first(kernel, a.Wgmma, 1)
    one.attributes["a_offset"], other.attributes["a_offset"] = other.attributes["a_offset"], one.attributes["a_offset"]


MAPS: dict[str, Callable[[t.Kernel], None]] = {
    "address": retold(lambda n: replace(n, address=n.address + 16)),
    "extent": retold(lambda n: replace(n, dims=(n.dims[0], n.dims[1] + 1))),
    "stride": retold(lambda n: replace(n, strides_bytes=(n.strides_bytes[0] + 16,))),
    "axes": retold(lambda n: replace(n, axes=(0, 1))),
    "coordinate": shifted(a.TmaLoad, 1, 1),
    "stored coordinate": shifted(a.TmaStore, 1, 64),
    "landing": moved(a.TmaLoad, "offset", 16),
    "swizzle of the copy": retold(lambda n: replace(n, swizzle=Swizzle.B64)),
    "box": retold(lambda n: replace(n, box=(64, 64))),
    "stride of the operand": reread(lambda n: replace(n, stride_bytes=512)),
    "major": reread(lambda n: replace(n, major=1 - n.major)),
    "start": moved(a.Wgmma, "b_offset", 32),
    "k on both sides": exchanged,
    "panel": moved(a.StoreMatrix, "offset", 16),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_moved_element_is_found(name: str, product: PlannedKernel) -> None:
    lowered = product.transport.clone()
    assert isinstance(prove_copies(product.tile, lowered), Proved)
    MAPS[name](lowered)
    assert isinstance(prove_copies(product.tile, lowered), Refuted)


DESCRIPTORS: dict[str, tuple[str, Callable[[t.Kernel], None]]] = {
    "stride": ("TMA012", retold(lambda n: replace(n, strides_bytes=(sym("a.stride0") * 2 + 2,)))),
    "address": ("TMA010", retold(lambda n: replace(n, address=n.address + 8))),
    "box": ("TMA", retold(lambda n: replace(n, box=(64, 257)))),
    "span": ("TMA", retold(lambda n: replace(n, box=(128, 128)))),
    "shared address": ("TMA", moved(a.TmaLoad, "offset", 16)),
    "bytes": ("box bytes", lambda k: first(k, a.TmaLoad).attributes.update(box_bytes=IntAttr(64))),
    "operand": ("descriptor", reread(lambda n: replace(n, stride_bytes=n.stride_bytes + 16))),
    "unswizzled": ("descriptor", reread(lambda n: replace(n, swizzle=Swizzle.NONE))),
    "start": ("start", moved(a.Wgmma, "b_offset", 8)),
    "region": ("alignment", moved(a.Wgmma, "b_region", 64)),
    "size": ("region", lambda k: first(k, a.Wgmma).attributes.update(b_bytes=IntAttr(64))),
}


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_descriptor_that_is_not_legal_is_found_in_the_text(name: str, product: PlannedKernel) -> None:
    lowered = product.transport.clone()
    assert check_descriptors(transport_kernel(str(lowered))) == check_descriptors(lowered)
    assert check_descriptors(lowered).faults == ()
    word, change = DESCRIPTORS[name]
    change(lowered)
    judged = check_descriptors(transport_kernel(str(lowered)))
    assert any(fault.name.startswith(word) for fault in judged.faults), [str(f) for f in judged.faults]
    assert isinstance(prove_descriptors(check_descriptors(lowered)), Refuted)


def test_what_the_class_does_not_say_is_a_fault(product: PlannedKernel) -> None:
    lowered = product.transport.clone()
    lowered.attributes["assumptions"] = ArrayAttr([x for x in lowered.assumptions if "address" not in x.text])
    assert {f.name for f in check_descriptors(lowered).faults} == {"TMA010"}
    lowered.attributes["assumptions"] = ArrayAttr([x for x in product.transport.assumptions if "stride" not in x.text])
    assert isinstance(prove_copies(product.tile, lowered), Refuted)  # the stride may be another than the map's


def test_each_missing_obligation_blocks_emission(product: PlannedKernel) -> None:
    assert missing(product.certificate, product.transport) == ()
    request = p.request(p.nn)
    program = PlannedProgram(request, (product,), (), Tracing(request))
    for left_out in range(len(product.certificate)):
        rest = (*product.certificate[:left_out], *product.certificate[left_out + 1 :])
        with pytest.raises(TilewrightError, match="CRT004"):
            build(replace(program, variants=(replace(product, certificate=rest),)))
    names = [o.name for o in product.certificate]
    assert {"guards", "once", "domain", "map", "descriptor"} < set(names)
    assert {f"protocol {rule.obligation}" for rule in Rule} < set(names)
    assert Const(1) == product.predicate

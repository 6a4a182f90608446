"""PTX of walks over programs: which way one of the coordinates counts is seen."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pytest
from xdsl.ir import Operation, SSAValue

from support import transport
from tilewright.artifact.schema import Launch
from tilewright.base.dtypes import f32
from tilewright.base.expr import Sym
from tilewright.codegen.assemble import compile_text
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.launch_recipe import recipe
from tilewright.transport import dialect as t
from tilewright.validate.transport_to_ptx import compare

Way: TypeAlias = Literal["descending", "ascending"]
WAYS: tuple[Way, Way] = ("descending", "ascending")


def walked(way: Way) -> t.Kernel:
    """A thread of each of 6 x 5 programs writes where its program lies; ``j`` counts outside of ``i``."""

    def build(y: SSAValue) -> list[Operation]:
        one = t.Registers("one", f32, 1)
        store = t.Store(y, one.buffer, [Sym("i"), Sym("j")], transport.TID.eq(0)).at("user.py:1", "store y")
        body = t.block([one, transport.fill(1.0, one.buffer), store])
        names, extents = ["i", "j"], [transport.M, transport.N]
        if way == "descending":
            return [t.Programs(names, extents, False, body, 33, descending="j")]
        return [t.Programs(names, extents, False, body, 33, ascending="j")]

    tensor = transport.tensor("y", [transport.M, transport.N])
    return transport.kernel({"y": tensor}, build, assumptions=[transport.M.eq(6), transport.N.eq(5)])


@pytest.mark.parametrize("written", WAYS)
@pytest.mark.parametrize("meant", WAYS)
def test_which_way_a_coordinate_counts_is_seen(written: Way, meant: Way) -> None:
    kernel = walked(written)
    ptx, *_ = compile_text(emit_kernel(kernel).source, "sm_90a", "k")
    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    found = compare(walked(meant), ptx, launch.args, launch.grid[0], 1)
    assert (found == ()) is (written == meant)

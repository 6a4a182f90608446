"""The kernels of an example as they are compiled and launched, for tests of what is said of their PTX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.schema import Artifact, KernelArg, Launch
from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.expr import Expr
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.transport import dialect as t
from tilewright.transport.text import transport_kernel
from tilewright.validate.transport_to_ptx import ALL, compare


@dataclass(frozen=True)
class Compiled:
    """A kernel as it is launched."""

    kernel: t.Kernel
    ptx: str
    arguments: tuple[KernelArg, ...]
    grid: Expr

    def differences(self, ptx: str | None = None, most: int = ALL) -> list[str]:
        """What the validator says of its PTX, or of another text, up to ``most`` differences."""
        text = self.ptx if ptx is None else ptx
        return [str(d) for d in compare(self.kernel, text, self.arguments, self.grid, most)]


@cache
def compiled(example: str, dtype: str = "bf16", schedule: Schedule | None = None) -> dict[str, Compiled]:
    """The kernels of an example, by variant; where all is pinned, one with the example's name."""
    case = EXAMPLES_BY_NAME[example]
    dtypes = {name: d.name for name, d in case.tensor_dtypes(DTYPES[dtype]).items()}
    return _kernels(case.kernel.compile(dtypes=dtypes, schedule=schedule))


@cache
def compiled_for(example: str, dtype: str, extents: tuple[tuple[str, int], ...]) -> dict[str, Compiled]:
    """The same of the variant that serves these extents alone."""
    arrays, _ = EXAMPLES_BY_NAME[example].arrays(dict(extents), DTYPES[dtype])
    return _kernels(serving(example, DTYPES[dtype], {n: np.ascontiguousarray(a) for n, a in arrays.items()}))


@cache
def of_each_kind(example: str, dtype: str) -> dict[str, Compiled]:
    """The kernels of an example, of variants that are made of the same ops the first."""
    program = plan(_request(example, DTYPES[dtype]))
    first = {frozenset(op.name for op in v.transport.walk()): v for v in reversed(program.variants)}
    return _kernels(build(replace(program, variants=tuple(first.values()), left_out=())))


def _kernels(artifact: Artifact) -> dict[str, Compiled]:
    found: dict[str, Compiled] = {}
    for variant in artifact.variants:
        launch = variant.steps[-1]
        assert isinstance(launch, Launch)
        image = artifact.kernel(launch.kernel)
        found[variant.name] = Compiled(transport_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0])
    return found


def serving(name: str, dtype: DType, arrays: Mapping[str, np.ndarray]) -> Artifact:
    """An example with the one variant that serves a launch on contiguous arrays: of 20 examples the time is a sixth
    of that of all their variants."""
    case = EXAMPLES_BY_NAME[name]
    sizes: dict[str, int] = {}
    for tensor in case.kernel.tensors:
        array = arrays[tensor.name]
        sizes |= {dim: extent for dim, extent in zip(tensor.dims, array.shape, strict=True) if isinstance(dim, str)}
        sizes |= {f"{tensor.name}.stride{i}": step // array.itemsize for i, step in enumerate(array.strides)}
        sizes[f"{tensor.name}.address"] = 0
    return build(replace(plan(_request(name, dtype), sizes), left_out=()))


def _request(name: str, dtype: DType) -> Request:
    case = EXAMPLES_BY_NAME[name]
    signature = Signature.of(case.tensor_dtypes(dtype), static=None, keywords=dict(case.keywords))
    return Request(case.kernel, signature, default_facts(case.kernel), SM90A, Schedule())

"""The kernels of an example as they are compiled and launched, for tests of what is said of their PTX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.schema import KernelArg, Launch
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Expr
from tilewright.lang.schedule import Schedule
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
    artifact = case.kernel.compile(dtypes=dtypes, schedule=schedule)
    found: dict[str, Compiled] = {}
    for variant in artifact.variants:
        launch = variant.steps[-1]
        assert isinstance(launch, Launch)
        image = artifact.kernel(launch.kernel)
        found[variant.name] = Compiled(transport_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0])
    return found

"""The simulator: executes Transport IR on NumPy data and reports what the hardware would do wrong with it.

It is an oracle, so it shares no code with what it judges: fragments, descriptors and addresses are decoded here, from
the IR's text and the vendor's manuals, and nothing of ``layout``, ``legal`` or the provers is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp

from tilewright.diag import fail
from tilewright.simulate.arguments import bind
from tilewright.simulate.budget import DEFAULT_BUDGET, check_budget
from tilewright.simulate.execute import launch
from tilewright.simulate.report import SimulationReport
from tilewright.simulate.steps import LaunchStep, WorkspaceTensor, run_steps
from tilewright.simulate.symbols import Array
from tilewright.transport.dialect import Kernel

__all__ = ["DEFAULT_BUDGET", "LaunchStep", "SimulationReport", "WorkspaceTensor", "run", "run_steps"]


def run(
    kernel: Kernel | ModuleOp,
    tensors: Mapping[str, Array],
    scalars: Mapping[str, int | float] | None = None,
    *,
    grid_size: int | None = None,
    budget: float = DEFAULT_BUDGET,
    seed: int = 0,
) -> SimulationReport:
    """Run a kernel on arrays of any strides, which it reads and writes in place.

    ``tensors`` and ``scalars`` are named as the kernel's arguments; 16-bit floats are ``float16`` and
    ``ml_dtypes.bfloat16`` arrays. ``grid_size`` is the number of CTAs of a persistent kernel (default 3), ``seed``
    chooses the order in which they run. Raises ``TilewrightError``: SIM001 for more than ``budget`` thread-register
    operations, before anything is written; SIM006 to SIM008 for arguments the kernel was not built for; the other SIM
    codes for what the kernel does wrong.
    """
    op = _kernel(kernel)
    arguments = bind(op, tensors, scalars or {})
    check_budget(op, arguments.symbols, budget)
    return launch(op, arguments, grid_size, seed)


def _kernel(op: Kernel | ModuleOp) -> Kernel:
    if isinstance(op, Kernel):
        return op
    kernels = [inner for inner in op.body.block.ops if isinstance(inner, Kernel)]
    if len(kernels) != 1:
        names = ", ".join(k.sym_name.data for k in kernels) or "none"
        fail("SIM013", found=f"{len(kernels)} kernels: {names}", required="one transport.kernel")
    return kernels[0]

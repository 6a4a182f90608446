"""CONTRIBUTING's worked examples, followed to the letter in a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.rule_cases import LIMITS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()

USES_THE_FUNCTION = """
import math
import numpy as np
import tilewright as tw

@tw.kernel
def grown(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x.shape[0], 64)
    y[m] = tw.erfc(tw.exp(x[m]))

x = np.linspace(-3, 1, 100, dtype=np.float32)
y = np.empty_like(x)
grown(x, y)
np.testing.assert_allclose(y, [math.erfc(math.exp(v)) for v in x], rtol=1e-4)
assert tw.erfc(0.5) == math.erfc(0.5)
artifact = grown.compile()
assert "erfcf(" in artifact.kernels[0].source
assert artifact.kernels[0].undecided == (), artifact.kernels[0].undecided
"""

USES_THE_CODE = """
from tilewright.cli.commands import app
from tilewright.diag import TilewrightError, fail

try:
    fail("CODE", found="a", required="b", help="c")
except TilewrightError as error:
    print(error)
app(["explain", "CODE"])
"""


USES_THE_RULE = """
from tilewright.cli.commands import app
from tilewright.hw.rules import limits
from tilewright.legal.predicates import broken

BASE, CASES = {base}, {cases}
rule = limits.RULES[-1]
for case, ids in zip(CASES, ([], [rule.id]), strict=True):
    fields = dict(BASE) | dict(case)
    assert [v.rule for v in broken(limits.RULES, fields, 90, limits.ENUMERATORS)] == ids
app(["explain", rule.id])
"""

OP = """
@irdl_op_definition
class Clamp(TransportOp):
    \"\"\"In a map's body: ``min(max(x, low), high)``.\"\"\"

    name = "transport.clamp"
    x = operand_def(TileType)
    low = operand_def(TileType)
    high = operand_def(TileType)
    result = result_def(TileType)

    def __init__(self, x: SSAValue, low: SSAValue, high: SSAValue):
        super().__init__(operands=[x, low, high], result_types=[x.type])


"""

USES_THE_OP = """
import numpy as np
import tilewright as tw

@tw.kernel(numerics="fast")
def clamped(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x.shape[0], 64)
    y[m] = tw.minimum(tw.maximum(x[m], -1.0), 2.0)

x = np.linspace(-3, 3, 100, dtype=np.float32)
y = np.empty_like(x)
clamped(x, y)
np.testing.assert_array_equal(y, x.clip(-1, 2))
(variant, *_) = clamped.plan().variants
assert "transport.clamp" in str(variant.transport)
for image in clamped.compile().kernels:
    assert image.undecided == (), image.undecided
    methods = {o.name: o.method for o in image.certificate}
    assert methods["lowering"] == methods["ptx"] == "translation validation", methods
"""

FENCE = """
@irdl_op_definition
class FenceProxyAsyncAll(SyncOp):
    \"\"\"fence.proxy.async: as FenceProxyAsync, of accesses to any state space.\"\"\"

    name = "transport.fence_proxy_async_all"
    INSTRUCTION: ClassVar = "fence.proxy.async"


"""

USES_THE_FENCE = """
import ml_dtypes
import numpy as np
import tilewright as tw

@tw.kernel
def matmul(x: tw.Tensor["M", "K"], y: tw.Tensor["N", "K"], z: tw.Tensor["M", "N"], *, bm: int = 128, bn: int = 128):
    m, n = tw.grid(z, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        acc += tw.dot(x[m, k], y[n, k].T)
    z[m, n] = acc

rng = np.random.default_rng(3)
x, y = (rng.normal(size=(128, 128)).astype(ml_dtypes.bfloat16) for _ in range(2))
z = np.empty((128, 128), ml_dtypes.bfloat16)
matmul(x, y, z)
np.testing.assert_allclose(z.astype(float), x.astype(float) @ y.astype(float).T, rtol=1e-2, atol=0.1)
artifact = matmul.compile(dtypes=dict.fromkeys("xyz", tw.bf16))
image = next(i for i in artifact.kernels if "fence_proxy_async_all" in i.transport_ir)
assert 'fence.proxy.async;' in image.source
assert image.undecided == (), image.undecided
methods = {o.name: o.method for o in image.certificate}
assert methods["lowering"] == methods["ptx"] == "translation validation", methods
assert any(name.startswith("protocol") for name in methods), methods
"""

USES_THE_TARGET = """
import tilewright as tw

@tw.kernel
def doubled(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x.shape[0], 64)
    y[m] = x[m] * 2

artifact = doubled.compile("sm_120")
assert ".target sm_120" in artifact.kernels[0].ptx
assert artifact.kernels[0].cubin
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sources, which the process of ``run`` imports."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src" / "tilewright"


def run(sources: Path, program: str) -> subprocess.CompletedProcess[str]:
    file = sources.parent.parent / "program.py"
    file.write_text(program)
    store = {
        "TILEWRIGHT_VALIDATION": "1",
        "TILEWRIGHT_STORE": str(file.parent / "store"),
        "PYTHONPATH": str(sources.parent),
    }
    return subprocess.run([sys.executable, file], env=os.environ | store, capture_output=True, text=True, check=False)


def insert(file: Path, behind: str, line: str) -> None:
    """Puts ``line`` behind the first match of the pattern."""
    text = file.read_text()
    at = re.search(behind, text, re.MULTILINE)
    assert at is not None, f"{file.name} has no {behind}"
    file.write_text(text[: at.end()] + line + text[at.end() :])


def change(file: Path, old: str, new: str) -> None:
    """Puts ``new`` in every place of ``old``, of which there is one at least."""
    text = file.read_text()
    assert old in text, f"{file.name} has no {old}"
    file.write_text(text.replace(old, new))


def quoted(pattern: str) -> str:
    """What CONTRIBUTING says to write."""
    found = re.search(pattern, TEXT)
    assert found is not None, f"CONTRIBUTING has no {pattern}"
    return found.group(1)


def test_a_new_function_is_a_row_its_export_and_what_nvrtc_makes_of_it(sources: Path) -> None:
    row = quoted(r"(ERFC = .*)")
    insert(sources / "lang/elementwise_table.py", r"^    ERF = .*\n", f"    {row}\n")
    insert(sources / "lang/elementwise.py", r"^erf = .*\n", f"{quoted(r'`(erfc = _unary[^`]*)`')}\n")
    for names in (r"    erf,\n", r'    "erf",\n'):
        insert(sources / "__init__.py", names, names.replace("erf", "erfc").replace(r"\n", "\n"))
    tool = sources.parent.parent / "tools" / "validation_library.py"
    tool.parent.mkdir()
    shutil.copy(ROOT / "tools" / tool.name, tool)
    line = quoted(r'`("erfc": [^`]*)`')
    insert(tool, r'    "erf": .*\n', f"    {line}\n")
    subprocess.run([sys.executable, tool], check=True)
    done = run(sources, USES_THE_FUNCTION)
    assert done.returncode == 0, done.stderr


def test_a_new_error_code_is_an_entry_and_a_line(sources: Path) -> None:
    file = sources / "diag/catalogue/run.py"
    code = quoted(r"`fail\(\"(RUN\d+)\"")
    numbers = sorted(re.findall(r'"(RUN\d+)"', file.read_text()))
    assert code == f"RUN{int(numbers[-1][3:]) + 1:03d}", "the example takes the next free number"
    text = file.read_text()
    entry = f'    Code("{code}", "managed memory", "It moves.", bad="x", good="y", source="a guide"),\n'
    file.write_text(text[: text.rindex(")")] + entry + ")\n")
    done = run(sources, USES_THE_CODE.replace("CODE", code))
    assert done.returncode == 0, done.stderr
    assert f"error[{code}]: managed memory" in done.stdout
    assert f"{code}: managed memory\n\nIt moves.\n\nwrong:\n    x" in done.stdout


def test_a_new_rule_is_a_row_and_an_entry(sources: Path) -> None:
    insert(sources / "hw/rules/limits.py", r"(?s)RULES: .*\n(?=\)\n)", f"    {quoted(r'    (HardwareRule.*)')}\n")
    insert(sources / "diag/catalogue/lim.py", r"(?s)= \(.*\n(?=\)\n)", f"    {quoted(r'    (_code.*)')}\n")
    cases = quoted(r'    "LIM008": (.*),')
    done = run(sources, USES_THE_RULE.format(base=LIMITS, cases=cases))
    assert done.returncode == 0, done.stderr
    assert "LIM008: more than 8 warpgroups" in done.stdout


@pytest.mark.slow
def test_a_new_target_is_a_module(sources: Path) -> None:
    targets = sources / "hw/target"
    row = f"{quoted(r'    (from tilewright.hw.target.row .*)')}\n\n{quoted(r'    (SM120 = .*)')}\n"
    (targets / "sm_120.py").write_text(row)
    insert(targets / "__init__.py", r"^from .* SM100A\n", f"{quoted(r'    (from .* SM120 as SM120)')}\n")
    insert(targets / "__init__.py", r"\(SM80, SM90A, SM100A(?=\))", ", SM120")
    done = run(sources, USES_THE_TARGET)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_new_op_of_transport_is_said_in_four_rooms(sources: Path) -> None:
    file = sources / "transport/ops/elementwise.py"
    insert(file, r'raise VerifyException\(f"one of [^\n]*\n\n\n', OP.lstrip())
    insert(file, r"^OPS = \[", "Clamp, ")
    name = "from tilewright.transport.ops.elementwise import Approximate as Approximate\n"
    insert(sources / "transport/dialect.py", name, name.replace("Approximate", "Clamp"))
    for path in ("codegen/scalars.py", "simulate/compute.py", "validate/tile_to_transport/scalars.py"):
        line = quoted(rf"\| `src/tilewright/{path}` \| `([^`]*)`")
        prefix = "" if path.startswith("simulate") else "t."
        at = rf"(?=        case {prefix}Approximate)"
        insert(sources / path, at, f"        case {prefix}Clamp():\n            {line}\n")
    insert(sources / "simulate/compute.py", r"^    Approximate,\n", "    Clamp,\n")
    unpack = quoted(r"scalars.py` \| `(x, low, high = [^`]*)`")
    both = 'return self.binary("min", dtype, self.binary("max", dtype, x, low)[0], high)'
    body = f"            case t.Clamp():\n                {unpack}\n                {both}\n"
    insert(sources / "validate/scalars.py", r"(?=            case t.Approximate)", body)
    transformation = quoted(r"(    def _clamp(?:.*\n)+?\n)").replace("\n    ", "\n")
    file = sources / "schedule/transforms/numerics.py"
    method = "\n".join(f"    {line}" if line else "" for line in transformation.strip().splitlines())
    insert(file, r"(?=    def _function)", f"{method}\n\n")
    insert(file, r"        self\._rewrite\(self\._sum\)\n", "        self._rewrite(self._clamp)\n")
    done = run(sources, USES_THE_OP)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_an_op_that_synchronises_is_said_in_six_files(sources: Path) -> None:
    def line(path: str) -> str:
        return quoted(rf"`src/tilewright/{path}`[^`]*`([^`]*FenceProxyAsyncAll[^`]*)`")

    insert(sources / "transport/ops/tensor_copies.py", r"(?=^OPS = )", FENCE.lstrip())
    insert(sources / "transport/ops/tensor_copies.py", r"^OPS = \[", "FenceProxyAsyncAll, ")
    name = "from tilewright.transport.ops.tensor_copies import FenceProxyAsync as FenceProxyAsync\n"
    insert(sources / "transport/asynchronous.py", name, name.replace("Async", "AsyncAll"))
    for path in ("transport/to_protocol_ops.py", "codegen/asynchronous_ops.py", "validate/transport_ir/barriers.py"):
        insert(sources / path, r"^    a\.FenceProxyAsync: .*\n", f"    {line(path)}\n")
    change(sources / "simulate/asynchronous_ops.py", "case a.FenceProxyAsync():", line("simulate/asynchronous_ops.py"))
    emitting = [f for f in (sources / "schedule/hopper").glob("*.py") if "a.FenceProxyAsync()" in f.read_text()]
    assert emitting
    for file in emitting:
        change(file, "a.FenceProxyAsync()", "a.FenceProxyAsyncAll()")
    done = run(sources, USES_THE_FENCE)
    assert done.returncode == 0, done.stderr

"""Without the extra `compiler`: what is compiled runs, and everything else names the extra."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from support.runtime_alone import command_alone, run_alone
from tilewright.artifact import bundle
from tilewright.codegen import assemble
from tilewright.ops.kernels import add

pytestmark = pytest.mark.sample(2)

ROOT = Path(__file__).parents[2]

LAUNCHES = """
from support.fake_driver import FakeDriver, FakeTensor
from tilewright.artifact import bundle
from tilewright.codegen import assemble
from tilewright.runtime import load

driver = FakeDriver(locations={address: 0 for address in (512, 1024, 2048)})
x, y, z = (FakeTensor(address, (100,)) for address in driver.locations)
load(bundle.read(sys.argv[1]), driver).launch((x, y, z))
print(len(driver.launches))
"""

CALLS_NUMPY = """
import types

class ndarray:
    pass

sys.modules["numpy"] = types.SimpleNamespace(ndarray=ndarray)  # of another package's NumPy, without ours
from tilewright.ops.kernels import add
add(ndarray(), ndarray(), ndarray())
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "add.bundle"
    dtypes = dict.fromkeys(("x", "y", "z"), tw.bf16)
    bundle.write_folder(add.compile(dtypes=dtypes), folder)
    return folder


def test_a_bundle_is_launched(shipped: Path) -> None:
    done = run_alone(LAUNCHES, str(shipped))
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("part", ["plan", "certificate", "source", "ptx", "tile", "transport"])
def test_a_bundle_is_shown(shipped: Path, part: str) -> None:
    done = command_alone("show", str(shipped), "--part", part)
    assert (done.returncode, done.stderr) == (0, "")
    assert "add" in done.stdout


NEEDS_NOTHING = (
    ["--help"],
    ["show-config"],
    ["explain", "JIT005"],
    ["explain", "TMA012"],
    ["rules", "--topic", "wgmma"],
    ["show", "layout", "(8,8):(8,1)"],
    ["show", "banks", "32:32"],
    ["explain", "wgmma", "--tile", "128x64", "--dtype", "bf16"],
)


@pytest.mark.parametrize("command", NEEDS_NOTHING, ids=" ".join)
def test_commands_that_need_no_extra(command: list[str]) -> None:
    done = command_alone(*command)
    assert (done.returncode, done.stderr) == (0, "")


NEEDS = (
    ["compile", "examples/add.py:add", "--out", "add.bundle"],
    ["demo"],
    ["build", "ops", "--only", "add"],
    ["run", "BUNDLE"],
    ["validate", "BUNDLE"],
    ["check", "examples/protocols/gemm.py:pingpong"],
    ["explain", "tma", "--shape", "4100x4100", "--dtype", "bf16", "--box", "128x64"],
)


@pytest.mark.parametrize("command", NEEDS, ids=" ".join)
def test_commands_that_need_the_compiler_name_the_extra(command: list[str], shipped: Path, tmp_path: Path) -> None:
    words = [str(shipped) if w == "BUNDLE" else str(ROOT / w) if w.startswith("examples/") else w for w in command]
    words = [str(tmp_path / w) if w == "add.bundle" else w for w in words]
    store = {"TILEWRIGHT_STORE": str(tmp_path / "store"), "TILEWRIGHT_SHIPPED": str(tmp_path / "shipped")}
    done = command_alone(*words, **store)
    assert done.returncode == 2
    assert "JIT005" in done.stderr
    assert "pip install 'tilewright[compiler]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_calls_that_would_be_simulated_name_the_extra() -> None:
    error = run_alone(CALLS_NUMPY).stderr.splitlines()
    assert any("error[JIT005]" in line for line in error)
    assert error[-1].startswith("help: pip install 'tilewright[compiler]'")


def test_compiling_without_nvrtc_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages are there, but not the library that one of them brings."""

    def missing(*_: object) -> None:
        raise RuntimeError('Failure finding "libnvrtc.so.13"\nsearched everywhere')

    monkeypatch.setattr(assemble.nvrtc, "nvrtcCreateProgram", missing)
    with pytest.raises(tw.TilewrightError, match=r"(?s)JIT005.*nvidia-cuda-nvrtc; Failure finding .libnvrtc.so.13.\n"):
        assemble.assemble("", "sm_90a", "none")

"""Installs the distributions of a folder into clean environments and tries them, as somebody who has nothing else.

    python tools/try_wheel.py dist

The runtime alone: what is installed, the time of the import, the command line, a shipped artifact that is shown and
launched on a recorded driver, and the diagnostic of what is missing. With the extra `compiler`: a kernel compiled and
simulated. The sdist builds to the same bytes as the wheel. Needs pip, here or in the interpreter of this environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_WHEEL_BYTES = 60_000_000
MAX_IMPORT_SECONDS = 0.100
NOT_OF_THE_RUNTIME = ("numpy", "ml_dtypes", "xdsl", "z3", "islpy", "egglog", "flint", "torch")

SHIPPED = """
import sys
from tilewright.runtime import driver
from support.fake_driver import FakeDriver, FakeTensor

fake = FakeDriver(locations={1 << 20: 0, 1 << 24: 0, 1 << 28: 0})
driver.Driver = lambda: fake
from tilewright.ops.kernels import add
add(*(FakeTensor(address, (1000,)) for address in fake.locations))
print(len(fake.launches), "launched")
"""
SIMULATED = """
import numpy as np
from tilewright.ops.kernels import add

x = np.arange(1000, dtype=np.float32)
z = np.empty_like(x)
add(x, x, z)
assert (z == 2 * x).all()
"""
IMPORT = "import time; t = time.process_time(); import tilewright; print(time.process_time() - t)"


class Environment:
    """A fresh virtual environment, outside of which nothing of this checkout is seen."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        self._folder = folder

    def install(self, what: str) -> None:
        begin = time.perf_counter()
        check([*pip(), "--python", str(self.bin / "python"), "install", "-q", what], self._folder)
        tell(f"pip install {Path(what).name}", f"{time.perf_counter() - begin:.0f} s")

    def python(self, program: str, **environment: str) -> str:
        return check([str(self.bin / "python"), "-c", program], self._folder, environment)

    def command(self, *arguments: str, status: int = 0) -> str:
        return check([str(self.bin / "tilewright"), *arguments], self._folder, status=status)


def pip() -> list[str]:
    """pip of this environment, or where it has none of the interpreter that made it."""
    made_by = Path(sys.base_prefix) / "bin" / Path(sys.executable).name
    for python in (sys.executable, str(made_by), "python3"):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return [python, "-m", "pip", "--disable-pip-version-check"]
    sys.exit("no pip")


def check(command: Sequence[str], cwd: Path, environment: dict[str, str] | None = None, status: int = 0) -> str:
    """Output of a process, both streams; ends this one with it unless it ends with ``status``."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TILEWRIGHT"))}
    env |= {"TILEWRIGHT_STORE": str(cwd / "store")} | (environment or {})
    done = subprocess.run(command, cwd=cwd, env=env, text=True, capture_output=True, check=False)
    if done.returncode != status:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def require(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"not so: {what}")


def tell(what: str, result: str) -> None:
    print(f"{what}: {result}", flush=True)


def runtime_alone(environment: Environment, wheel: Path) -> None:
    """The wheel without extras."""
    environment.install(str(wheel))
    for name in NOT_OF_THE_RUNTIME:
        found = environment.python(f"import importlib.util; print(importlib.util.find_spec({name!r}))")
        require(found == "None\n", f"{name} is not installed")
    seconds = min(float(environment.python(IMPORT)) for _ in range(5))
    require(seconds <= MAX_IMPORT_SECONDS, f"import tilewright takes at most {MAX_IMPORT_SECONDS} s, not {seconds:.3f}")
    tell("import tilewright", f"{seconds * 1e3:.0f} ms of processor time")
    require("build" in environment.command("--help"), "--help lists the commands")
    shipped = re.search(r"^shipped = (.*)  \(default\)$", environment.command("show-config"), re.MULTILINE)
    require(shipped is not None, "show-config names the shipped folder")
    artifacts = sorted(Path(shipped[1]).rglob("*.twb")) if shipped else []
    require(bool(artifacts), "the wheel has shipped artifacts")
    for path in artifacts:
        require("for sm_90a" in environment.command("show", str(path)), f"show {path.name}")
    tell("shipped artifacts", f"{len(artifacts)} shown")
    tell("a shipped operator", environment.python(SHIPPED, PYTHONPATH=str(ROOT / "tests")).strip())
    refused = environment.command("compile", f"{ROOT}/examples/add.py:add", "--out", "add.bundle", status=2)
    require("error[JIT005]" in refused and "pip install 'tilewright[compiler]'" in refused, "JIT005 names the extra")
    tell("compile", "refused, and the extra is named")


def with_compiler(environment: Environment, wheel: Path) -> None:
    """The wheel with the extra ``compiler``."""
    environment.install(f"{wheel}[compiler]")
    environment.python(SIMULATED)
    out = environment.command("compile", f"{ROOT}/examples/softmax.py:softmax", "--out", "softmax.bundle")
    tell("compile", next(line for line in out.splitlines() if "proved" in line))
    require("softmax for sm_90a" in environment.command("show", "softmax.bundle"), "the bundle is shown")


def same_wheel(sdist: Path, wheel: Path, folder: Path) -> None:
    """What the sdist builds to has the wheel's bytes."""
    folder.mkdir()
    check(["tar", "-xzf", str(sdist)], folder)
    (source,) = folder.iterdir()
    check([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "out")], source)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, folder / "out" / wheel.name)]
    require(digests[0] == digests[1], f"{sdist.name} builds to {wheel.name}")
    tell(sdist.name, "builds to the same wheel")


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    size = wheel.stat().st_size
    require(size <= MAX_WHEEL_BYTES, f"the wheel has at most {MAX_WHEEL_BYTES} bytes, not {size}")
    tell(wheel.name, f"{size / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as temporary:
        same_wheel(sdist, wheel, Path(temporary) / "sdist")
        environment = Environment(Path(temporary) / "clean")
        runtime_alone(environment, wheel)
        with_compiler(environment, wheel)


if __name__ == "__main__":
    main()

"""Writes the library functions that the validator takes for granted: ``python tools/validation_library.py [--check]``.

NVRTC compiles each function of CUDA alone, of one f32; ``validate.library`` evaluates the PTX. The names of CUDA's
functions stand here again: the validator must not take them from what it judges. ``--check`` compares with the file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tilewright.codegen.assemble import assemble  # noqa: E402

LIBRARY = ROOT / "src" / "tilewright" / "validate" / "library.ptx"
FUNCTIONS = {
    "exp": "expf(x)",
    "exp2": "exp2f(x)",
    "log": "logf(x)",
    "log2": "log2f(x)",
    "sqrt": "sqrtf(x)",
    "rsqrt": "rsqrtf(x)",
    "tanh": "tanhf(x)",
    "sigmoid": "1.f / (1.f + expf(-x))",
    "erf": "erff(x)",
    "log1p": "log1pf(x)",
    "expm1": "expm1f(x)",
    "floor": "floorf(x)",
    "ceil": "ceilf(x)",
    "round": "rintf(x)",
}


def written() -> str:
    """The PTX of all functions."""
    kernels = (
        f'extern "C" __global__ void f32_{name}(float x, float* y) {{ *y = {text}; }}'
        for name, text in FUNCTIONS.items()
    )
    return assemble("\n".join(kernels), "sm_90a", "library").ptx.rstrip("\0")


def main() -> None:
    """Writes the file, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where the file is another")
    check = parser.parse_args().check
    text = written()
    if not check:
        LIBRARY.write_text(text)
    elif text != LIBRARY.read_text():
        raise SystemExit(f"{LIBRARY.name} is not what NVRTC makes of these functions")


main()

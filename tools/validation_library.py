"""Writes the library functions that the validator takes for granted: ``python tools/validation_library.py [--check]``.

NVRTC compiles each function alone, of one f32 or two; ``validate.library`` evaluates the PTX. The names of CUDA's
functions stand here again: the validator must not take them from what it judges. Functions that are our own text
(``OWN``) are the code generator's at the time of writing; ``tests/validate/test_library.py`` executes the file and
compares its functions with exact values. ``--check`` compares with the file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tilewright.codegen.assemble import assemble  # noqa: E402
from tilewright.codegen.prelude import prelude  # noqa: E402

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
    "trunc": "truncf(x)",
    "log10": "log10f(x)",
    "cbrt": "cbrtf(x)",
    "asin": "asinf(x)",
    "acos": "acosf(x)",
    "atan": "atanf(x)",
    "sinh": "sinhf(x)",
    "cosh": "coshf(x)",
    "asinh": "asinhf(x)",
    "acosh": "acoshf(x)",
    "atanh": "atanhf(x)",
}
OF_TWO = {"pow": "powf(x, z)", "atan2": "atan2f(x, z)", "hypot": "hypotf(x, z)", "fmod": "fmodf(x, z)"}
OWN_OF_TWO = {"mod": "floor_mod_f32(x, z)", "floordiv": "floor_div_f32(x, z)"}
OWN = {"sin": "sine(x)", "cos": "cosine(x)", "tan": "tangent(x)"}


def written() -> str:
    """The PTX of all functions."""
    entries = [(name, "float x", text) for name, text in (FUNCTIONS | OWN).items()]
    entries += [(name, "float x, float z", text) for name, text in (OF_TWO | OWN_OF_TWO).items()]
    kernels = [
        f'extern "C" __global__ void f32_{name}({given}, float* y) {{ *y = {text}; }}' for name, given, text in entries
    ]
    source = "\n".join([prelude([*OWN.values(), *OWN_OF_TWO.values()]), *kernels])
    return assemble(source, "sm_90a", "library").ptx.rstrip("\0")


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

"""How far sine, cosine and tangent are from the exact values: ``python tools/trigonometry.py [--step 1]``.

The text of ``codegen.trigonometry`` is compiled for this machine with g++ (its intrinsics as they are defined, no
contraction) and compared with the C library's functions of f64 at every ``step``-th float that is not negative; that
the sign alone differs for negative ones is compared at every 9,973rd. Takes some four minutes for all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tilewright.codegen.trigonometry import FUNCTIONS  # noqa: E402

BOUNDS = {"sine": 1.54, "cosine": 1.54, "tangent": 3.23}
HOST = r"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define __device__ static inline
#define __forceinline__ __attribute__((always_inline))
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ll2double_rn(long long a) { return (double)a; }
static float __double2float_rn(double a) { return (float)a; }
static int __float2int_rn(float a) { return a != a ? 0 : (int)lrintf(a); }  // asked below 2^16 only
static unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return n & 31 ? high << (n & 31) | low >> (32 - (n & 31)) : high;
}
static unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const uint64_t both = (uint64_t)b << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= (unsigned)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
"""
MAIN = r"""
static double ulp(double x) { int e; frexp(x, &e); return ldexp(1.0, e - 24 < -149 ? -149 : e - 24); }
int main(int, char** argv) {
  double worst[3] = {};
  float at[3] = {};
  for (uint64_t i = 0; i < 0x7f800000u; i += atoi(argv[1])) {
    const float x = __uint_as_float((unsigned)i);
    const double s = sin((double)x), c = cos((double)x), exact[3] = {s, c, s / c};
    const float found[3] = {sine(x), cosine(x), tangent(x)};
    for (int k = 0; k < 3; ++k) {
      const double error = fabs(found[k] - exact[k]) / ulp(exact[k]);
      if (!(error <= worst[k])) worst[k] = error, at[k] = x;
    }
    if (i % 9973) continue;
    const float left[3] = {sine(-x), cosine(-x), tangent(-x)}, right[3] = {-found[0], found[1], -found[2]};
    if (memcmp(left, right, sizeof left)) return printf("signs differ at %a\n", x), 1;
  }
  for (int k = 0; k < 3; ++k) printf("%.4f %a\n", worst[k], at[k]);
}
"""


def measured(step: int) -> dict[str, tuple[float, str]]:
    """The greatest distance of each function, in units of the last place, and where it is."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "all.cpp"), Path(folder, "all")
        source.write_text("\n".join([HOST, *FUNCTIONS.values(), MAIN]))
        flags = ("-O2", "-march=native", "-ffp-contract=off", "-Wno-unused-result")
        subprocess.run(["g++", *flags, source, "-o", program], check=True)
        lines = subprocess.run([program, str(step)], check=True, capture_output=True, text=True).stdout.splitlines()
    found = [line.split() for line in lines]
    return {name: (float(error), at) for name, (error, at) in zip(BOUNDS, found, strict=True)}


def main() -> None:
    """Prints the distances; ends with 1 where one is beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1)
    found = measured(parser.parse_args().step)
    for name, (error, at) in found.items():
        print(f"{name}: at most {error} ulp, at {at}")
    if any(not error <= BOUNDS[name] for name, (error, _) in found.items()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

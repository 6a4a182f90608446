"""The device functions that emitted code may call; only those used are printed, so that the file stays readable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from tilewright.codegen.asynchronous_prelude import FUNCTIONS as _ASYNCHRONOUS
from tilewright.codegen.conversion import FUNCTIONS as _CONVERSIONS
from tilewright.codegen.debug import FUNCTIONS as _DEBUG
from tilewright.codegen.trigonometry import FUNCTIONS as _TRIGONOMETRY
from tilewright.hw.approximations import APPROXIMATIONS
from tilewright.lang.enums import AtomicFn


def _approximation(name: str, instruction: str) -> str:
    return f"""__device__ __forceinline__ float {name}_approx(float x) {{
  float y;
  asm("{instruction} %0, %1;" : "=f"(y) : "f"(x));
  return y;
}}"""


_NARROW_INTEGERS = {"i8": (-128, 127), "i16": (-32768, 32767), "u8": (0, 255), "u16": (0, 65535)}
_NARROW_TYPES = {"i8": "signed char", "i16": "short", "u8": "unsigned char", "u16": "unsigned short"}


def _narrow_of_f32(name: str, least: int, most: int) -> str:
    return f"""__device__ __forceinline__ int {name}_of_f32(float x) {{
  const int y = i32_of_f32(x);
  return y < {least} ? {least} : y > {most} ? {most} : y;
}}"""


def _extreme(fn: AtomicFn) -> str:
    """An extremum of f32 in memory, which red has not (PTX ISA 9.1, 9.7.13.7): of bits without a sign as s32, of those
    with one the other way round as u32, for there the greater number is the lesser float. Each NaN becomes the one that
    is beyond all."""
    turned = AtomicFn.MIN if fn is AtomicFn.MAX else AtomicFn.MAX
    return f"""__device__ __forceinline__ void red_{fn}(float* at, float x) {{
  const int bits = x != x ? (int)0x{fn.nan_bits:x}u : __float_as_int(x);
  asm volatile(
    "{{.reg .pred minus; setp.lt.s32 minus, %1, 0;\\n"
    "@!minus red.global.{fn}.s32 [%0], %1;\\n"
    "@minus red.global.{turned}.u32 [%0], %1;}}"
    :: "l"(at), "r"(bits) : "memory");
}}"""


def _rounded_to(name: str, kind: str) -> str:
    return f"""__device__ __forceinline__ int {name}_round(int x) {{
  return (int)({kind})x;
}}"""


_FUNCTIONS: dict[str, str] = {
    # The vector that begins `by` elements of so many bytes before `at`, of the two in which it lies.
    "shifted": """__device__ __forceinline__ uint4 shifted(const uint4* at, int by, int size) {
  const uint4 a = at[-1], b = at[0];
  unsigned w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  const int bytes = by * size;
  if (size <= 8) {
    #pragma unroll
    for (int i = 7; i > 1; --i) w[i] = bytes & 8 ? w[i - 2] : w[i];
  }
  if (size <= 4) {
    #pragma unroll
    for (int i = 7; i > 0; --i) w[i] = bytes & 4 ? w[i - 1] : w[i];
  }
  if (size <= 2) {
    #pragma unroll
    for (int i = 7; i > 0; --i) w[i] = bytes & 2 ? __byte_perm(w[i - 1], w[i], 0x5432) : w[i];
  }
  if (size <= 1) {
    #pragma unroll
    for (int i = 7; i > 3; --i) w[i] = bytes & 1 ? __byte_perm(w[i - 1], w[i], 0x6543) : w[i];
  }
  return make_uint4(w[4], w[5], w[6], w[7]);
}""",
    "nothing": """const __device__ uint4 no_elements = {0u, 0u, 0u, 0u};
template <class T> __device__ __forceinline__ const T* nothing(const T*) {
  return reinterpret_cast<const T*>(&no_elements);
}""",
    # Every operand has a quotient: of 0 it is 0, and that of the least number by -1 wraps, as in NumPy.
    "wrap_neg": """__device__ __forceinline__ int wrap_neg(int a) { return (int)(0u - (unsigned)a); }
__device__ __forceinline__ unsigned wrap_neg(unsigned a) { return 0u - a; }
__device__ __forceinline__ long long wrap_neg(long long a) { return (long long)(0ull - (unsigned long long)a); }""",
    "floor_div": """template <class T> __device__ __forceinline__ T floor_div(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return wrap_neg(a);
  T q = a / b;
  return q - (T)((a % b != 0) && ((a < 0) != (b < 0)));
}
__device__ __forceinline__ unsigned floor_div(unsigned a, unsigned b) { return b == 0u ? 0u : a / b; }""",
    "floor_mod": """template <class T> __device__ __forceinline__ T floor_mod(T a, T b) {
  if (b == 0 || b == -1) return 0;
  T m = a % b;
  return m + ((m != 0 && ((m < 0) != (b < 0))) ? b : (T)0);
}
__device__ __forceinline__ unsigned floor_mod(unsigned a, unsigned b) { return b == 0u ? 0u : a % b; }""",
    "shift_left": """__device__ __forceinline__ int shift_left(int a, int n) {
  return (unsigned)n < 32u ? (int)((unsigned)a << n) : 0;
}
__device__ __forceinline__ unsigned shift_left(unsigned a, unsigned n) { return n < 32u ? a << n : 0u; }
__device__ __forceinline__ long long shift_left(long long a, long long n) {
  return (unsigned long long)n < 64ull ? (long long)((unsigned long long)a << n) : 0;
}""",
    "shift_right": """__device__ __forceinline__ int shift_right(int a, int n) {
  return a >> ((unsigned)n < 32u ? n : 31);
}
__device__ __forceinline__ unsigned shift_right(unsigned a, unsigned n) { return n < 32u ? a >> n : 0u; }
__device__ __forceinline__ long long shift_right(long long a, long long n) {
  return a >> ((unsigned long long)n < 64ull ? n : 63);
}""",
    # As NumPy has them (npy_divmod): the remainder of C, moved to the divisor's sign; zeros have a sign, too.
    "floor_div_f32": """__device__ __forceinline__ float floor_div_f32(float a, float b) {
  if (b == 0.f) return a / b;
  const float m = fmodf(a, b);
  float q = __fsub_rn(a, m) / b;
  if (m != 0.f && ((m < 0.f) != (b < 0.f))) q = __fsub_rn(q, 1.f);
  if (q == 0.f) return copysignf(0.f, a / b);
  const float down = floorf(q);
  return __fsub_rn(q, down) > 0.5f ? __fadd_rn(down, 1.f) : down;
}""",
    "floor_mod_f32": """__device__ __forceinline__ float floor_mod_f32(float a, float b) {
  const float m = fmodf(a, b);
  if (m == 0.f) return copysignf(0.f, b);
  return ((m < 0.f) != (b < 0.f)) ? __fadd_rn(m, b) : m;
}""",
    "bf16_get": """__device__ __forceinline__ float bf16_get(unsigned word, int half) {
  return __uint_as_float(half ? (word & 0xffff0000u) : (word << 16));
}""",
    "bf16_pack": """__device__ __forceinline__ unsigned bf16_pack(float low, float high) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}""",
    "bf16_bits": """__device__ __forceinline__ unsigned short bf16_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}""",
    "bf16_round": """__device__ __forceinline__ float bf16_round(float x) {
  return __uint_as_float((unsigned)bf16_bits(x) << 16);
}""",
    "f16_get": """__device__ __forceinline__ float f16_get(unsigned word, int half) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)(half ? word >> 16 : word & 0xffffu)));
  return x;
}""",
    "f16_pack": """__device__ __forceinline__ unsigned f16_pack(float low, float high) {
  return (unsigned)f16_bits(low) | ((unsigned)f16_bits(high) << 16);
}""",
    "f16_bits": """__device__ __forceinline__ unsigned short f16_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}""",
    "f16_round": """__device__ __forceinline__ float f16_round(float x) {
  return f16_get(f16_bits(x), 0);
}""",
    # PTX ISA 9.1, cvt: of two packed 8-bit floats the second operand is the lower; beyond the largest they saturate.
    # sm_80 has no such conversions. There e5m2 is the upper half of an f16, e4m3 a float whose exponent is 120 too low.
    "e4m3_get": """__device__ __forceinline__ float e4m3_get(unsigned word, int part) {
  const unsigned bits = (word >> (8 * part)) & 0xffu;
#if __CUDA_ARCH__ >= 890
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)bits));
  return f16_get(pair, 0);
#else
  const float size = __uint_as_float((bits & 0x7fu) << 20) * 0x1p120f;
  const float x = (bits & 0x7fu) == 0x7fu ? __int_as_float(0x7fffffff) : size;
  return bits & 0x80u ? -x : x;
#endif
}""",
    "e5m2_get": """__device__ __forceinline__ float e5m2_get(unsigned word, int part) {
  return f16_get((word >> (8 * part) << 8) & 0xff00u, 0);
}""",
    # both of a half word at once: every 8-bit float is an f16
    "e4m3_pair": """__device__ __forceinline__ unsigned e4m3_pair(unsigned word, int half) {
#if __CUDA_ARCH__ >= 890
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)(word >> (16 * half))));
  return pair;
#else
  return f16_pack(e4m3_get(word, 2 * half), e4m3_get(word, 2 * half + 1));
#endif
}""",
    "e5m2_pair": """__device__ __forceinline__ unsigned e5m2_pair(unsigned word, int half) {
  const unsigned both = word >> (16 * half);
  return ((both << 8) & 0xff00u) | ((both << 16) & 0xff000000u);
}""",
    "float8_bits": """__device__ __forceinline__
unsigned char float8_bits(float x, int fraction, int bias, float largest) {
  // to nearest even: below the least normal number by adding one whose last place is theirs
  const float size = fminf(fabsf(x), largest);
  const float places = __uint_as_float((unsigned)(151 - bias - fraction) << 23);
  const int drop = 23 - fraction;
  const unsigned word = __float_as_uint(size);
  const unsigned even = word + ((1u << (drop - 1)) - 1u) + ((word >> drop) & 1u);
  const unsigned normal = (even >> drop) - ((unsigned)(127 - bias) << fraction);
  const unsigned tiny = __float_as_uint(size + places) - __float_as_uint(places);
  const bool small = size < __uint_as_float((unsigned)(128 - bias) << 23);
  const unsigned sign = (__float_as_uint(x) >> 24) & 0x80u;
  return (unsigned char)(sign | (x != x ? 0x7fu : small ? tiny : normal));
}""",
    "e4m3_bits": """__device__ __forceinline__ unsigned char e4m3_bits(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(x));
  return (unsigned char)pair;
#else
  return float8_bits(x, 3, 7, 448.f);
#endif
}""",
    # Elements that are only moved keep their infinities; conversions to e5m2 have none (e5m2_finite).
    "e5m2_bits": """__device__ __forceinline__ unsigned char e5m2_bits(float x) {
  const unsigned word = __float_as_uint(x);
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(x));
#else
  const unsigned char pair = float8_bits(x, 2, 15, 57344.f);
#endif
  return (word & 0x7fffffffu) == 0x7f800000u ? (unsigned char)(word >> 24 & 0x80u | 0x7cu) : (unsigned char)pair;
}""",
    "e5m2_finite": """__device__ __forceinline__ float e5m2_finite(float x) {
  return fabsf(x) == __int_as_float(0x7f800000) ? copysignf(57344.f, x) : x;
}""",
    "e4m3_round": """__device__ __forceinline__ float e4m3_round(float x) {
  return e4m3_get(e4m3_bits(x), 0);
}""",
    "e5m2_round": """__device__ __forceinline__ float e5m2_round(float x) {
  return e5m2_get(e5m2_bits(x), 0);
}""",
    "tf32_round": """__device__ __forceinline__ float tf32_round(float x) {
  unsigned word;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
  return __uint_as_float(word);
}""",
    # PTX ISA 9.1, cvt: a float beyond the integers gives the nearest of them, NaN 0 and in 64 bits the least integer.
    **{f"{name}_of_f32": _narrow_of_f32(name, *ends) for name, ends in _NARROW_INTEGERS.items()},
    "u32_of_f32": """__device__ __forceinline__ unsigned u32_of_f32(float x) {
  unsigned y;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}""",
    "i32_of_f32": """__device__ __forceinline__ int i32_of_f32(float x) {
  int y;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}""",
    "i64_of_f32": """__device__ __forceinline__ long long i64_of_f32(float x) {
  long long y;
  asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(y) : "f"(x));
  return y;
}""",
    **{f"{name}_round": _rounded_to(name, kind) for name, kind in _NARROW_TYPES.items()},
    "put16": """__device__ __forceinline__ void put16(unsigned& word, int half, unsigned short bits) {
  word = half ? ((word & 0xffffu) | ((unsigned)bits << 16)) : ((word & 0xffff0000u) | bits);
}""",
    "put8": """__device__ __forceinline__ void put8(unsigned& word, int part, unsigned char bits) {
  word = (word & ~(0xffu << (8 * part))) | ((unsigned)bits << (8 * part));
}""",
    "max_nan": """__device__ __forceinline__ float max_nan(float a, float b) {
  float x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}""",
    **{f"red_{fn}": _extreme(fn) for fn in (AtomicFn.MIN, AtomicFn.MAX)},
    "multiply_add": """__device__ __forceinline__ int multiply_add(int a, int b, int c) {  // no choice between two sums
  int x;
  asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
  return x;
}""",
    "min_nan": """__device__ __forceinline__ float min_nan(float a, float b) {
  float x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}""",
    "sigmoid": """__device__ __forceinline__ float sigmoid(float x) {
  return 1.f / (1.f + expf(-x));
}""",
    **{f"{name}_approx": _approximation(name, a.instruction) for name, a in APPROXIMATIONS.items()},
    "exponent_scale": """__device__ __forceinline__ float exponent_scale(float c, float b) {
  float least = __uint_as_float(min(0x7f7fffffu - __float_as_uint(fabsf(c)), 0x7215ffffu) + 0x0d6a0001u);  // 2^28 / |c|
  unsigned power = (__float_as_uint(c) & 0x80000000u) | (0x8e800000u - (__float_as_uint(b) & 0x7f800000u));
  return fabsf(b) >= least ? __uint_as_float(power) : c;
}""",
    "argmax_take": """template <class V> __device__ __forceinline__ bool argmax_take(V a, int i, V b, int j) {
  // does (b, j) replace (a, i)? NaN counts as greatest; of equals the lower index stays
  bool na = a != a, nb = b != b;
  return nb ? (!na || j < i) : (!na && (b > a || (b == a && j < i)));
}""",
    **_TRIGONOMETRY,
    **_CONVERSIONS,
    **_ASYNCHRONOUS,
    **_DEBUG,
}

_PLACES = {name: place for place, name in enumerate(_FUNCTIONS)}
_LONGEST = max(map(len, _FUNCTIONS))


def prelude(lines: Iterable[str]) -> str:
    """Definitions of every prelude function that ``lines`` (or another used one) call, dependencies first."""
    used: set[str] = set()
    pending = list(_called_in("\n".join(dict.fromkeys(lines))))  # half of a kernel's lines stand there twice
    while pending:
        name = pending.pop()
        if name not in used:
            used.add(name)
            pending += _calls(name)
    ordered: dict[str, None] = {}

    def place(name: str) -> None:
        if name not in ordered:
            for other in _calls(name):
                place(other)
            ordered[name] = None

    for name in _in_order(used):
        place(name)
    return "\n\n".join(_FUNCTIONS[name] for name in ordered)


def _called_in(text: str) -> set[str]:
    """The prelude's functions that ``text`` calls: words before a parenthesis."""
    ends = {part[-_LONGEST - 1 :] for part in text.split("(")[:-1]}
    return _PLACES.keys() & {re.split(r"\W", end)[-1] for end in ends}


@cache
def _calls(name: str) -> tuple[str, ...]:
    """Those that one of them calls, in their order; its own name stands there too."""
    return _in_order(_called_in(_FUNCTIONS[name]) - {name})


def _in_order(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=_PLACES.__getitem__))

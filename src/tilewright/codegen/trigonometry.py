"""sine, cosine and tangent of f32: reduced by quarter turns, in registers for arguments of every size.

CUDA's ``sinf`` keeps the product with 2/pi of arguments from 105,615 on in local memory, in a loop. Here, from 65,536
on, it is 96 bits of 2/pi, those that count modulo whole turns, times the significand (Payne and Hanek, 1983), chosen
without branches, so that the validator can follow. Below, pi/2 is subtracted in three parts (Cody and Waite, 1980);
the first difference is exact. The polynomials are minimax fits on the eighth of a turn.

Over all 2^31 positive floats, in the arithmetic of this text: sine and cosine are within 1.54, the tangent within 3.23
ulp of the exact value (``tools/trigonometry.py``); of the negative ones the sign alone differs.
"""

from __future__ import annotations

FUNCTIONS: dict[str, str] = {
    "chosen": """__device__ __forceinline__ unsigned chosen(unsigned a, unsigned b, unsigned bit) {
  return __byte_perm(a, b, 0x3210u + 0x4444u * bit);
}""",
    "quarter_turns_of_large": """// x = n * pi/2 + r for |x| >= 2^16; n modulo 4. NaN for infinities.
__device__ __forceinline__ float quarter_turns_of_large(float x, int& n) {
  const unsigned bits = __float_as_uint(x), m = (bits & 0x7fffffu) | 0x800000u, place = (bits >> 23 & 255u) - 120u;
  // the words of 0 and 2/pi from word place / 32 on, by the three bits of that number
  const unsigned four = place >> 7 & 1u, two = place >> 6 & 1u, one = place >> 5 & 1u;
  const unsigned w0 = chosen(0u, 0xf534ddc0u, four), w1 = chosen(0xa2f9836eu, 0xdb629599u, four);
  const unsigned w2 = chosen(0x4e441529u, 0x3c439041u, four), w3 = chosen(0xfc2757d1u, 0xfe5163abu, four);
  const unsigned v0 = chosen(w0, w2, two), v1 = chosen(w1, w3, two), v2 = chosen(w2, 0xf534ddc0u, two);
  const unsigned v3 = chosen(w3, 0xdb629599u, two), v4 = chosen(0xf534ddc0u, 0x3c439041u, two);
  const unsigned u0 = chosen(v0, v1, one), u1 = chosen(v1, v2, one), u2 = chosen(v2, v3, one), u3 = chosen(v3, v4, one);
  const unsigned a = __funnelshift_l(u1, u0, place), b = __funnelshift_l(u2, u1, place);
  const unsigned c = __funnelshift_l(u3, u2, place);
  const unsigned long long low = (unsigned long long)m * b + ((unsigned long long)m * c >> 32);
  // quarter turns modulo 4, of which 62 bits lie behind the point
  const unsigned long long turns = ((unsigned long long)(m * a) << 32) + low;
  const int whole = (int)(turns >> 62) + (int)(turns >> 61 & 1u), negative = (int)bits >> 31;
  const float part = __double2float_rn(__dmul_rn(__ll2double_rn((long long)(turns << 2)), 0x1.921fb54442d18p-64));
  n = (whole ^ negative) - negative;
  return __fadd_rn(__fmul_rn(x, 0.f), __uint_as_float(__float_as_uint(part) ^ (bits & 0x80000000u)));
}""",
    "quarter_turns": """// x = n * pi/2 + r, |r| <= pi/4 and a little; n modulo 4.
__device__ __forceinline__ float quarter_turns(float x, int& n) {
  if (fabsf(x) >= 65536.f) return quarter_turns_of_large(x, n);
  n = __float2int_rn(__fmul_rn(x, 0x1.45f306p-1f));  // 2/pi
  const float j = (float)n;
  const float r = fmaf(j, -0x1.4442dp-24f, fmaf(j, -0x1.921fb4p+0f, x));  // pi/2 in three floats
  return fmaf(j, -0x1.84698ap-48f, r);
}""",
    "quarter_wave": """// The sine of r, or with odd its cosine; with the sign of bit 1 of n.
__device__ __forceinline__ float quarter_wave(float r, bool odd, int n) {
  const float s = __fmul_rn(r, r), first = odd ? 1.f : r;
  float p = fmaf(odd ? 0x1.9a022ap-16f : 0.f, s, odd ? -0x1.6c0c8cp-10f : -0x1.994e82p-13f);
  p = fmaf(p, s, odd ? 0x1.55554ap-5f : 0x1.110760p-7f);
  p = fmaf(p, s, odd ? -0.5f : -0x1.555546p-3f);
  p = fmaf(p, fmaf(s, first, 0.f), first);  // of -0 it is -0
  return __uint_as_float(__float_as_uint(p) ^ ((unsigned)n << 30 & 0x80000000u));
}""",
    "sine": """__device__ __forceinline__ float sine(float x) {
  int n;
  const float r = quarter_turns(x, n);
  return quarter_wave(r, n & 1, n);
}""",
    "cosine": """__device__ __forceinline__ float cosine(float x) {
  int n;
  const float r = quarter_turns(x, n);
  return quarter_wave(r, !(n & 1), n + 1);
}""",
    "tangent": """__device__ __forceinline__ float tangent(float x) {
  int n;
  const float r = quarter_turns(x, n);
  return quarter_wave(r, n & 1, n) / quarter_wave(r, !(n & 1), n + 1);
}""",
}
"""Functions of the prelude."""

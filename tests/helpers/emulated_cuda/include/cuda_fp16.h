// Half precision as CUDA's header has it: every operation computes in float and rounds to nearest.
// (Two roundings of one sum, product, quotient or root give what one does: float is wide enough.)
#pragma once
#include "emulated.h"

namespace emulated {

inline float widened(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu, sign = uint32_t(half & 0x8000u) << 16;
  // A product with a power of two is exact, of subnormal numbers too.
  const float value = from_bits<float>(magnitude << 13) * 0x1p112f;
  const uint32_t bits = uint32_t(to_bits(value));
  return from_bits<float>((magnitude >= 0x7c00u ? bits | 0x7f800000u : bits) | sign);
}

inline uint16_t rounded(float wide) {
  const uint32_t given = uint32_t(to_bits(wide)), bits = given & 0x7fffffffu;
  const uint16_t sign = uint16_t(given >> 16 & 0x8000u);
  if (bits > 0x7f800000u) return sign | 0x7fffu;
  if (bits >= 0x477ff000u) return sign | 0x7c00u;
  if (bits < 0x38800000u)  // the sum rounds where the last bit of a subnormal number is
    return sign | uint16_t(to_bits(from_bits<float>(bits) + 0.5f) - to_bits(0.5f));
  return sign | uint16_t((bits + 0xfffu + (bits >> 13 & 1) - 0x38000000u) >> 13);
}

}  // namespace emulated

struct __half_raw { uint16_t bits; };
struct __half {
  uint16_t bits;
  __half() = default;
  __half(const __half_raw& raw) : bits(raw.bits) {}
  __half(float value) : bits(emulated::rounded(value)) {}
  __half(double value) : __half(float(value)) {}
  __half(int value) : __half(float(value)) {}
  __half(unsigned value) : __half(float(value)) {}
  __half(long value) : __half(float(value)) {}
  __half(unsigned long value) : __half(float(value)) {}
  __half(long long value) : __half(float(value)) {}
  __half(unsigned long long value) : __half(float(value)) {}
  operator float() const { return emulated::widened(bits); }
  // By which volatile ones are copied.
  operator __half_raw() const volatile { return {bits}; }
  __half& operator=(const __half_raw& raw) { return bits = raw.bits, *this; }
  void operator=(const __half_raw& raw) volatile { bits = raw.bits; }
};
using half = __half;
struct alignas(4) __half2 { half x, y; };
using half2 = __half2;
inline half2 make_half2(half x, half y) { return {x, y}; }

#define EMULATED_HALF_BINARY(name, operation)                                                 \
  inline half operator operation(half a, half b) { return half(float(a) operation float(b)); } \
  inline half& operator operation##=(half& a, half b) { return a = a operation b; }           \
  inline half name(half a, half b) { return a operation b; }
EMULATED_HALF_BINARY(__hadd, +)
EMULATED_HALF_BINARY(__hsub, -)
EMULATED_HALF_BINARY(__hmul, *)
EMULATED_HALF_BINARY(__hdiv, /)
#define EMULATED_HALF_COMPARISON(name, operation)                                      \
  inline bool operator operation(half a, half b) { return float(a) operation float(b); } \
  inline bool name(half a, half b) { return a operation b; }
EMULATED_HALF_COMPARISON(__hgt, >)
EMULATED_HALF_COMPARISON(__hlt, <)
EMULATED_HALF_COMPARISON(__hge, >=)
EMULATED_HALF_COMPARISON(__hle, <=)
EMULATED_HALF_COMPARISON(__heq, ==)
EMULATED_HALF_COMPARISON(__hne, !=)
inline half operator-(half a) { return half(-float(a)); }
#define EMULATED_HALF_UNARY(name, function) \
  inline half name(half x) { return half(function(float(x))); }
EMULATED_HALF_UNARY(hexp, expf)
EMULATED_HALF_UNARY(hexp2, exp2f)
EMULATED_HALF_UNARY(hexp10, exp10f)
EMULATED_HALF_UNARY(hlog, logf)
EMULATED_HALF_UNARY(hlog2, log2f)
EMULATED_HALF_UNARY(hlog10, log10f)
EMULATED_HALF_UNARY(hsqrt, sqrtf)
EMULATED_HALF_UNARY(hrsqrt, rsqrtf)
EMULATED_HALF_UNARY(hrcp, 1.0f /)
EMULATED_HALF_UNARY(hsin, sinf)
EMULATED_HALF_UNARY(hcos, cosf)
EMULATED_HALF_UNARY(hfloor, floorf)
EMULATED_HALF_UNARY(hceil, ceilf)
EMULATED_HALF_UNARY(htrunc, truncf)
EMULATED_HALF_UNARY(hrint, rintf)
EMULATED_HALF_UNARY(__habs, fabsf)
EMULATED_HALF_UNARY(__hneg, -)
inline half __hfma(half a, half b, half c) { return half(fmaf(a, b, c)); }
inline bool __hisnan(half x) { return (x.bits & 0x7fffu) > 0x7c00u; }

inline float __half2float(half x) { return x; }
inline half __float2half(float x) { return half(x); }
inline half __float2half_rn(float x) { return half(x); }
inline unsigned short __half_as_ushort(half x) { return x.bits; }
inline half __ushort_as_half(unsigned short x) { return emulated::from_bits<half>(x); }
inline half2 __half2half2(half x) { return {x, x}; }

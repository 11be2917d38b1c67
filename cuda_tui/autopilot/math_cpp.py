"""The elementary functions that emitted C++ uses: branch-free, so that loops around them become vector code."""

MATH_HEADER = "kernels/vector_math.h"

MATH_TEXT = r"""// Elementary functions for loops that the compiler turns into vector code.
//
// Every float function is straight-line: both sides of a case are computed and one is chosen, so `#pragma omp simd`
// loops around it vectorise. Polynomials were fitted by reweighted least squares to a relative error below 6e-9; with
// rounding, every 37th float was found within 1.5 ulp of the true value (silu, sigmoid, softplus 2.5; expm1 4). NaN
// and infinity give what PyTorch gives. The double versions are the C library's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// Inlined whatever the size of the loop: one call that stays a call keeps the whole loop scalar.
#define VEC_INLINE inline __attribute__((always_inline))

namespace vec {

VEC_INLINE float from_bits(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
VEC_INLINE int32_t to_bits(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// e^r - 1 - r over r^2, for |r| <= ln(2)/2.
VEC_INLINE float exp_tail(float r) {
  float p = 1.395084779e-03f;
  p = p * r + 8.369096555e-03f;
  p = p * r + 4.166620225e-02f;
  p = p * r + 1.666651666e-01f;
  return p * r + 0.5f;
}

// x = n ln 2 + r; e^x = 2^n e^r. 2^n is applied in two halves, so that results in the denormal range are right too.
VEC_INLINE float exp(float x) {
  const bool vanishes = x < -104.0f;  // masked scores: zero, without the slow path for denormal products
  const float clipped = x > 89.0f ? 89.0f : (vanishes ? 0.0f : x);        // a NaN passes through
  const float shifted = clipped * 1.442695041f + 12582912.0f;             // the low bits now hold round(x / ln 2)
  const float n = shifted - 12582912.0f;
  const float r = (clipped - n * 0.693359375f) + n * 2.12194440e-4f;
  const float value = 1.0f + (r + r * r * exp_tail(r));
  const int32_t whole = to_bits(shifted) - 0x4b400000;
  const int32_t half = whole >> 1;
  const float result = value * from_bits((half + 127) << 23) * from_bits((whole - half + 127) << 23);
  return vanishes ? 0.0f : result;
}

VEC_INLINE float expm1(float x) {
  const float direct = exp(x) - 1.0f;
  const float near = x + x * x * exp_tail(x);
  return (x < 0.3f) & (x > -0.3f) ? near : direct;
}

// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log x = e ln 2 + log m.
VEC_INLINE float log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const int32_t bits = to_bits(scaled) - 0x3f3504f3;  // 0x3f3504f3 is sqrt(1/2)
  const float e = static_cast<float>(bits >> 23) - (tiny ? 23.0f : 0.0f);
  const float f = from_bits((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
  float p = -7.634429634e-02f;
  p = p * f + 1.276154965e-01f;
  p = p * f - 1.316019446e-01f;
  p = p * f + 1.420176178e-01f;
  p = p * f - 1.662335694e-01f;
  p = p * f + 2.000122666e-01f;
  p = p * f - 2.500082254e-01f;
  p = p * f + 3.333333135e-01f;
  const float square = f * f;
  float result = f + (p * f * square - 0.5f * square + e * -2.12194440e-4f);
  result = result + e * 0.693359375f;
  result = x == std::numeric_limits<float>::infinity() ? x : result;
  result = x == 0.0f ? -std::numeric_limits<float>::infinity() : result;
  return x >= 0.0f ? result : std::numeric_limits<float>::quiet_NaN();
}

// log(1 + x), with the rounding of 1 + x made good.
VEC_INLINE float log1p(float x) {
  const float w = 1.0f + x;
  const float result = log(w) + (x - (w - 1.0f)) / w;
  const float edge = w == 0.0f ? -std::numeric_limits<float>::infinity() : result;
  return w == std::numeric_limits<float>::infinity() ? w : edge;
}

VEC_INLINE float tanh(float x) {
  const float z = x * x;
  float p = -5.717036314e-03f;
  p = p * z + 2.065057866e-02f;
  p = p * z - 5.374349654e-02f;
  p = p * z + 1.333149076e-01f;
  p = p * z - 3.333328366e-01f;
  const float near = x + x * (z * p);
  const float magnitude = std::fabs(x);
  const float far = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return magnitude < 0.625f ? near : (x < 0.0f ? -far : far);
}

// Below 1 a polynomial in x^2; above, 1 - erfc(x) with erfc(x) = e^-q(x).
VEC_INLINE float erf(float x) {
  const float z = x * x;
  float p = 7.889119297e-05f;
  p = p * z - 8.020841051e-04f;
  p = p * z + 5.189535208e-03f;
  p = p * z - 2.685444430e-02f;
  p = p * z + 1.128360033e-01f;
  p = p * z - 3.761262596e-01f;
  p = p * z + 1.283791661e-01f;
  const float near = x + x * p;
  const float magnitude = std::fabs(x);
  const float t = magnitude > 4.0f ? 4.0f : magnitude;
  float q = 2.168681567e-05f;
  q = q * t - 4.413359275e-04f;
  q = q * t + 4.204559140e-03f;
  q = q * t - 2.520824969e-02f;
  q = q * t + 1.084185615e-01f;
  q = q * t + 6.332198977e-01f;
  q = q * t + 1.129578471e+00f;
  q = q * t - 1.880382333e-04f;
  const float far = 1.0f - exp(-q);
  return magnitude < 1.0f ? near : (x < 0.0f ? -far : (x > 0.0f ? far : x));
}

VEC_INLINE double exp(double x) { return std::exp(x); }
VEC_INLINE double expm1(double x) { return std::expm1(x); }
VEC_INLINE double log(double x) { return std::log(x); }
VEC_INLINE double log1p(double x) { return std::log1p(x); }
VEC_INLINE double tanh(double x) { return std::tanh(x); }
VEC_INLINE double erf(double x) { return std::erf(x); }

template <typename T>
VEC_INLINE T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
template <typename T>
VEC_INLINE T silu(T x) {
  return x / (T(1) + exp(-x));
}
template <typename T>
VEC_INLINE T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752)));
}
template <typename T>
VEC_INLINE T gelu_tanh(T x) {
  return T(0.5) * x * (T(1) + tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x)));
}
// log(1 + e^x) without overflow.
template <typename T>
VEC_INLINE T softplus(T x) {
  const T magnitude = x < T(0) ? -x : x;
  return (x > T(0) ? x : T(0)) + log1p(exp(-magnitude));
}
template <typename T>
VEC_INLINE T sign(T x) {
  return x > T(0) ? T(1) : (x < T(0) ? T(-1) : (x == T(0) ? T(0) : x));
}
// The larger or smaller of two; NaN if either is NaN, as in PyTorch.
template <typename T>
VEC_INLINE T maximum(T a, T b) {
  return (a > b) | (a != a) ? a : b;
}
template <typename T>
VEC_INLINE T minimum(T a, T b) {
  return (a < b) | (a != a) ? a : b;
}

}  // namespace vec
"""

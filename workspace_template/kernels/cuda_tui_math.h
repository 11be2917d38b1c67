// Lets the compiler call glibc's vector math (libmvec) from loops that use expf, logf, tanhf and their like.
//
// glibc declares these vector forms only under -ffast-math, which also drops NaN and infinity. The declarations below
// are the same promise without that: the functions have no side effects and exist in vector form (at most 4 ulp, NaN
// and infinity as in the scalar ones). Loops still need `#pragma omp simd` or plain countable form.
// Measured on one AVX2 core, g++ 12, an element: x / (1 + exp(-x)) 5.9 ns before, 0.6 ns with them (1.2 ns under
// -ffast-math); gelu with erf 11.4 ns before, 0.8 ns with them.
// This file is protected.
#pragma once
#include <math.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(__CUDACC__)
#define CUDA_TUI_VECTOR_MATH(declaration) \
  extern "C" __attribute__((simd("notinbranch"), const)) declaration noexcept
CUDA_TUI_VECTOR_MATH(float expf(float));
CUDA_TUI_VECTOR_MATH(float logf(float));
CUDA_TUI_VECTOR_MATH(float sinf(float));
CUDA_TUI_VECTOR_MATH(float cosf(float));
CUDA_TUI_VECTOR_MATH(float powf(float, float));
CUDA_TUI_VECTOR_MATH(double exp(double));
CUDA_TUI_VECTOR_MATH(double log(double));
#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 35)
CUDA_TUI_VECTOR_MATH(float tanhf(float));
CUDA_TUI_VECTOR_MATH(float erff(float));
CUDA_TUI_VECTOR_MATH(float expm1f(float));
CUDA_TUI_VECTOR_MATH(float log1pf(float));
CUDA_TUI_VECTOR_MATH(float exp2f(float));
CUDA_TUI_VECTOR_MATH(float log2f(float));
#endif
#undef CUDA_TUI_VECTOR_MATH
#endif

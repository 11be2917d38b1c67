"""What emitted CUDA shares: elementary functions, vector loads, indices."""

CUDA_HEADER = "kernels/device_tools.cuh"

CUDA_TEXT = r"""// Shared by the kernels here: elementary functions, vector loads, indices.
#pragma once

#undef NDEBUG  // the check of indices stays
#include <cassert>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace dev {

__device__ __forceinline__ float exp(float x) { return expf(x); }
__device__ __forceinline__ double exp(double x) { return ::exp(x); }
__device__ __forceinline__ float expm1(float x) { return expm1f(x); }
__device__ __forceinline__ double expm1(double x) { return ::expm1(x); }
__device__ __forceinline__ float log(float x) { return logf(x); }
__device__ __forceinline__ double log(double x) { return ::log(x); }
__device__ __forceinline__ float log1p(float x) { return log1pf(x); }
__device__ __forceinline__ double log1p(double x) { return ::log1p(x); }
__device__ __forceinline__ float tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh(double x) { return ::tanh(x); }
__device__ __forceinline__ float erf(float x) { return erff(x); }
__device__ __forceinline__ double erf(double x) { return ::erf(x); }

template <typename T>
__device__ __forceinline__ T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
template <typename T>
__device__ __forceinline__ T silu(T x) {
  return x / (T(1) + exp(-x));
}
template <typename T>
__device__ __forceinline__ T gelu(T x) {
  return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752)));
}
template <typename T>
__device__ __forceinline__ T gelu_tanh(T x) {
  return T(0.5) * x * (T(1) + tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x)));
}
// log(1 + e^x) without overflow.
template <typename T>
__device__ __forceinline__ T softplus(T x) {
  return (x > T(0) ? x : T(0)) + log1p(exp(-fabs(x)));  // the last term is the same for -x: computed once for both
}
template <typename T>
__device__ __forceinline__ T sign(T x) {
  return x > T(0) ? T(1) : (x < T(0) ? T(-1) : (x == T(0) ? T(0) : x));
}
// The larger or smaller of two; NaN if either is NaN, as in PyTorch.
template <typename T>
__device__ __forceinline__ T maximum(T a, T b) {
  return (a > b) | (a != a) ? a : b;
}
template <typename T>
__device__ __forceinline__ T minimum(T a, T b) {
  return (a < b) | (a != a) ? a : b;
}
template <>
__device__ __forceinline__ float maximum<float>(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
template <>
__device__ __forceinline__ float minimum<float>(float a, float b) {
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// An index from a tensor. One that lies outside ends the kernel with a device-side assertion, as in PyTorch.
__device__ __forceinline__ int64_t inside(int64_t index, int64_t size) {
  assert(index >= 0 && index < size && "an index from a tensor is out of range");
  return index;
}
template <typename T>
__device__ __forceinline__ T least(T a, T b) {
  return a < b ? a : b;
}

// N neighbouring elements. Where pointers are aligned (WIDE) they move 16 bytes at a time, else one by one.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T at[N];
};
template <int N, bool WIDE, typename T>
__device__ __forceinline__ Vec<T, N> load(const T* place) {
  if constexpr (WIDE) {
    return *reinterpret_cast<const Vec<T, N>*>(place);
  } else {
    Vec<T, N> value;
#pragma unroll
    for (int u = 0; u < N; ++u) value.at[u] = place[u];
    return value;
  }
}
template <bool WIDE, typename T, int N>
__device__ __forceinline__ void store(T* place, const Vec<T, N>& value) {
  if constexpr (WIDE) {
    *reinterpret_cast<Vec<T, N>*>(place) = value;
  } else {
#pragma unroll
    for (int u = 0; u < N; ++u) place[u] = value.at[u];
  }
}
template <int N, typename T>
inline bool aligned(const T* place) {
  return reinterpret_cast<uintptr_t>(place) % alignof(Vec<T, N>) == 0;
}

// As many blocks as run at once on the current device, found once; at most `limit`.
template <typename Kernel>
inline int resident_blocks(Kernel kernel, int threads, int limit) {
  static const int found = [&] {
    int device = 0, processors = 1, each = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, 0);
    return processors * (each > 0 ? each : 1);
  }();
  return found < limit ? found : limit;
}

}  // namespace dev
"""

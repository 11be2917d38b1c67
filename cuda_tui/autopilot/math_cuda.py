"""What emitted CUDA shares: elementary functions, vector loads, reductions over warps and blocks."""

CUDA_HEADER = "kernels/device_tools.cuh"

CUDA_TEXT = r"""// Shared by the kernels here: elementary functions, vector loads, reductions over warps and blocks.
#pragma once

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
  return (x > T(0) ? x : T(0)) + log1p(exp(x > T(0) ? -x : x));
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

// An index from a tensor; one that lies outside stops the kernel, as in PyTorch.
__device__ __forceinline__ int64_t inside(int64_t index, int64_t size) {
  if (index < 0 || index >= size) __trap();
  return index;
}

// N neighbouring elements, moved in one instruction.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  T at[N];
};
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load(const T* place) {
  return *reinterpret_cast<const Vec<T, N>*>(place);
}
template <int N, typename T>
__device__ __forceinline__ void store(T* place, const Vec<T, N>& value) {
  *reinterpret_cast<Vec<T, N>*>(place) = value;
}
template <int N, typename T>
inline bool aligned(const T* place) {
  return reinterpret_cast<uintptr_t>(place) % (sizeof(T) * N) == 0;
}

struct Sum {
  template <typename T>
  static __device__ __forceinline__ T join(T a, T b) {
    return a + b;
  }
};
struct Max {
  template <typename T>
  static __device__ __forceinline__ T join(T a, T b) {
    return maximum(a, b);
  }
};
struct Min {
  template <typename T>
  static __device__ __forceinline__ T join(T a, T b) {
    return minimum(a, b);
  }
};

// One value from the THREADS threads of a row, the same in all of them. A row of 32 threads is a warp and needs no
// shared memory; a longer one is a block.
template <typename Op, int THREADS, typename T>
__device__ __forceinline__ T across_row(T value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, lane));
  if constexpr (THREADS > 32) {
    __shared__ T parts[THREADS / 32];
    __syncthreads();  // an earlier reduction may still read `parts`
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
#pragma unroll
    for (int warp = 1; warp < THREADS / 32; ++warp) value = Op::join(value, parts[warp]);
  }
  return value;
}

// One value for each column from the LANES threads that share it (threadIdx.y), the same in all of them.
template <typename Op, int COLUMNS, int LANES, typename T>
__device__ __forceinline__ T down_column(T value) {
  __shared__ T parts[LANES][COLUMNS];
  __syncthreads();
  parts[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  value = parts[0][threadIdx.x];
#pragma unroll
  for (int lane = 1; lane < LANES; ++lane) value = Op::join(value, parts[lane][threadIdx.x]);
  return value;
}

}  // namespace dev
"""

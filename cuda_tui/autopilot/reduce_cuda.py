"""What emitted CUDA shares for reductions: how values join, over a vector, a row, a column."""

REDUCE_HEADER = "kernels/device_reductions.cuh"

REDUCE_TEXT = r"""// Shared by the kernels here: how partial results join, over a vector, a row of threads, a column.
#pragma once

#include <cstring>

#include "device_tools.cuh"

namespace dev {

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

// exp(x) for x <= 0 as one multiplication and the hardware's exponential: 2 units in the last place, plus x units.
__device__ __forceinline__ float exp_below(float x) { return __expf(x); }
__device__ __forceinline__ double exp_below(double x) { return ::exp(x); }

// The largest value so far, and the sum of exp(value - largest): softmax's two sums in one walk.
template <typename T>
struct Running {
  T top, sum;
  // With nothing but -infinity so far, distances are taken from 0, so that they do not become NaN.
  static __device__ __forceinline__ T origin(T top) { return top == -T(INFINITY) ? T(0) : top; }
  template <int N, int WIDTH>
  __device__ __forceinline__ void add(const T (&values)[N][WIDTH]) {
    T highest = top;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int u = 0; u < WIDTH; ++u) highest = maximum(highest, values[n][u]);
    const T from = origin(highest);
    sum *= exp_below(top - from);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int u = 0; u < WIDTH; ++u) sum += exp_below(values[n][u] - from);
    top = highest;
  }
  // The sum of exp(value - top) as written: NaN where top is infinite.
  __device__ __forceinline__ T plain_sum() const { return top == -T(INFINITY) ? T(NAN) : sum; }
  // The same where an infinite top counts as 0.
  __device__ __forceinline__ T finite_sum() const {
    return top == T(INFINITY) ? T(INFINITY) : (top == -T(INFINITY) ? T(0) : sum);
  }
};
struct Below {
  template <typename T>
  static __device__ __forceinline__ Running<T> join(Running<T> a, Running<T> b) {
    const T highest = maximum(a.top, b.top), from = Running<T>::origin(highest);
    return {highest, a.sum * exp_below(a.top - from) + b.sum * exp_below(b.top - from)};
  }
};

// What a reduction starts from.
template <typename T>
struct Ends {
  static constexpr T low = -T(INFINITY), high = T(INFINITY);
};
template <>
struct Ends<int64_t> {
  static constexpr int64_t low = INT64_MIN, high = INT64_MAX;
};
template <>
struct Ends<int32_t> {
  static constexpr int32_t low = INT32_MIN, high = INT32_MAX;
};
template <>
struct Ends<uint8_t> {
  static constexpr uint8_t low = 0, high = 255;
};
template <>
struct Ends<bool> {
  static constexpr bool low = false, high = true;
};
template <typename Op>
struct Start {
  template <typename T>
  static __device__ __forceinline__ T of() {
    return T(0);
  }
};
template <>
struct Start<Max> {
  template <typename T>
  static __device__ __forceinline__ T of() {
    return Ends<T>::low;
  }
};
template <>
struct Start<Min> {
  template <typename T>
  static __device__ __forceinline__ T of() {
    return Ends<T>::high;
  }
};
template <>
struct Start<Below> {
  template <typename T>
  static __device__ __forceinline__ T of() {
    return T{-INFINITY, 0};
  }
};
template <typename T, typename Op>
__device__ __forceinline__ T empty() {
  return Start<Op>::template of<T>();
}

// One value from a vector of partial results, pairwise.
template <typename Op, typename T, int WIDTH>
__device__ __forceinline__ T fold(const T (&parts)[WIDTH]) {
  T value[WIDTH];
#pragma unroll
  for (int u = 0; u < WIDTH; ++u) value[u] = parts[u];
#pragma unroll
  for (int half = WIDTH / 2; half > 0; half /= 2)
#pragma unroll
    for (int u = 0; u < half; ++u) value[u] = Op::join(value[u], value[u + half]);
  return value[0];
}

// Makes the compiler forget what it computed from these 16-bit numbers: without it, it keeps them widened from walk to
// walk, in twice the registers, and spills.
template <typename T, int WIDTH, int N>
__device__ __forceinline__ void renew(Vec<T, WIDTH> (&vectors)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int u = 0; u < WIDTH; u += 2) {
      uint32_t pair;
      memcpy(&pair, &vectors[n].at[u], 4);
      asm volatile("" : "+r"(pair));
      memcpy(&vectors[n].at[u], &pair, 4);
    }
}

template <typename T>
__device__ __forceinline__ T from_lane(T value, int distance) {
  return __shfl_xor_sync(0xffffffffu, value, distance);
}
template <typename T>
__device__ __forceinline__ Running<T> from_lane(Running<T> value, int distance) {
  return {from_lane(value.top, distance), from_lane(value.sum, distance)};
}

// One value from the THREADS threads of a row, the same in all of them. A row of up to 32 threads lies in one warp
// and needs no shared memory; a longer one is a block.
template <typename Op, int THREADS, typename T>
__device__ __forceinline__ T across_row(T value) {
#pragma unroll
  for (int lane = (THREADS < 32 ? THREADS : 32) / 2; lane > 0; lane /= 2)
    value = Op::join(value, from_lane(value, lane));
  if constexpr (THREADS > 32) {
    constexpr int WARPS = THREADS / 32;
    __shared__ T parts[WARPS];
    __syncthreads();  // an earlier reduction may still read `parts`
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[threadIdx.x % 32 < WARPS ? threadIdx.x % 32 : 0];
    if (WARPS < 32 && threadIdx.x % 32 >= WARPS) value = empty<T, Op>();
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) value = Op::join(value, from_lane(value, lane));
  }
  return value;
}

// For each column, one value from the LANES threads that share it (threadIdx.y), the same in all of them.
template <typename Op, int THREADS, int LANES, typename T, int WIDTH>
__device__ __forceinline__ void down_columns(T (&values)[WIDTH]) {
  __shared__ T parts[LANES][WIDTH][THREADS];
  __syncthreads();
#pragma unroll
  for (int u = 0; u < WIDTH; ++u) parts[threadIdx.y][u][threadIdx.x] = values[u];
  __syncthreads();
#pragma unroll
  for (int u = 0; u < WIDTH; ++u) {
    values[u] = parts[0][u][threadIdx.x];
#pragma unroll
    for (int lane = 1; lane < LANES; ++lane) values[u] = Op::join(values[u], parts[lane][u][threadIdx.x]);
  }
}

}  // namespace dev
"""

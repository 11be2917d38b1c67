// kernels/variants.cu
// What the skills argue against, kept to be measured and to show its error: never a model to copy.
#include "device.cuh"

// One element a thread and access, on aligned data too.
__global__ void silu_mul_scalar_kernel(float* __restrict__ out, const float* __restrict__ gate, const float* __restrict__ up,
                                       int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}
extern "C" int variant_silu_mul(float* out, const float* gate, const float* up, int64_t n, void* stream) {
  silu_mul_scalar_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(out, gate, up, n);
  return static_cast<int>(cudaGetLastError());
}

// The channel of each element by a 64-bit division.
__global__ void scale_shift_division_kernel(float* __restrict__ out, const float* __restrict__ x,
                                            const float* __restrict__ scale, const float* __restrict__ shift, int64_t n,
                                            int64_t inner, int64_t channels) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step) {
    const int64_t channel = i / inner % channels;
    out[i] = scale[channel] * x[i] + shift[channel];
  }
}
extern "C" int variant_scale_shift(float* out, const float* x, const float* scale, const float* shift, int64_t n,
                                   int64_t inner, int64_t channels, void* stream) {
  scale_shift_division_kernel<<<grid_for(n, 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(out, x, scale, shift, n, inner, channels);
  return static_cast<int>(cudaGetLastError());
}

// RMSNorm that reads its row twice, one element an access; `wide` makes the accesses 16 bytes and keeps the second read.
template <int N>
__global__ void rms_norm_twice_kernel(float* __restrict__ out, const float* __restrict__ x, const float* __restrict__ weight,
                                      float eps, int columns) {
  const auto* in = reinterpret_cast<const Pack<float, N>*>(x + static_cast<int64_t>(blockIdx.x) * columns);
  auto* o = reinterpret_cast<Pack<float, N>*>(out + static_cast<int64_t>(blockIdx.x) * columns);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns / N; i += blockDim.x)
    for (float v : in[i].value) sum += v * v;
  const float scale = rsqrtf(block_sum(sum) / static_cast<float>(columns) + eps);
  for (int i = threadIdx.x; i < columns / N; i += blockDim.x) {
    Pack<float, N> v = in[i];
    for (int k = 0; k < N; ++k) v.value[k] *= scale * weight[i * N + k];
    o[i] = v;
  }
}
extern "C" int variant_rms_norm(float* out, const float* x, const float* weight, float eps, int64_t rows, int columns,
                                int wide, int threads, void* stream) {
  const auto grid = static_cast<unsigned>(rows);
  if (wide) rms_norm_twice_kernel<4><<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(out, x, weight, eps, columns);
  else rms_norm_twice_kernel<1><<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(out, x, weight, eps, columns);
  return static_cast<int>(cudaGetLastError());
}

// One thread a column walks down all rows.
__global__ void column_sum_thread_kernel(float* __restrict__ out, const float* __restrict__ x, int64_t rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int64_t r = 0; r < rows; ++r) sum += x[r * columns + column];
  out[column] = sum;
}
extern "C" int variant_column_sum(float* out, const float* x, int64_t rows, int columns, void* stream) {
  column_sum_thread_kernel<<<(columns + 127) / 128, 128, 0, static_cast<cudaStream_t>(stream)>>>(out, x, rows, columns);
  return static_cast<int>(cudaGetLastError());
}

// Mean squared error with an atomic addition from each warp: the order, and with it the last bits, vary.
__global__ void mse_atomic_kernel(float* out, const float* __restrict__ x, const float* __restrict__ y, int64_t n, float scale) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  float sum = 0.0f;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step) sum += (x[i] - y[i]) * (x[i] - y[i]);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum * scale);
}
extern "C" int variant_mse(float* out, const float* x, const float* y, int64_t n, void* stream) {
  mse_atomic_kernel<<<grid_for(n, 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(out, x, y, n, 1.0f / static_cast<float>(n));
  return static_cast<int>(cudaGetLastError());
}

// Transposition without shared memory: reads are coalesced, writes are `rows` elements apart.
__global__ void transpose_add_strided_kernel(float* __restrict__ out, const float* __restrict__ x, const float* __restrict__ bias,
                                             int rows, int columns) {
  const int column = blockIdx.x * 32 + threadIdx.x;
  for (int row = blockIdx.y * 32 + threadIdx.y; row < min(rows, static_cast<int>(blockIdx.y) * 32 + 32); row += 8)
    if (column < columns)
      out[static_cast<int64_t>(column) * rows + row] = x[static_cast<int64_t>(row) * columns + column] + bias[column];
}
// The same through a tile without padding: 32-way bank conflicts at the second access.
__global__ void transpose_add_conflict_kernel(float* __restrict__ out, const float* __restrict__ x, const float* __restrict__ bias,
                                              int rows, int columns) {
  __shared__ float tile[32][32];
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
  for (int k = threadIdx.y; k < 32; k += 8)
    if (row + k < rows && column < columns) tile[k][threadIdx.x] = x[static_cast<int64_t>(row + k) * columns + column] + bias[column];
  __syncthreads();
  const int out_column = row + threadIdx.x, out_row = blockIdx.x * 32;
  for (int k = threadIdx.y; k < 32; k += 8)
    if (out_row + k < columns && out_column < rows) out[static_cast<int64_t>(out_row + k) * rows + out_column] = tile[threadIdx.x][k];
}
extern "C" int variant_transpose_add(float* out, const float* x, const float* bias, int rows, int columns, int tiled, void* stream) {
  const dim3 grid((columns + 31) / 32, (rows + 31) / 32), block(32, 8);
  if (tiled) transpose_add_conflict_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(out, x, bias, rows, columns);
  else transpose_add_strided_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(out, x, bias, rows, columns);
  return static_cast<int>(cudaGetLastError());
}

// One function of each element, to learn its error and its cost. The names stand in NAMES of the caller.
__device__ float form_of(float v, int form) {
  switch (form) {
    case 0: return expf(v);
    case 1: return __expf(v);
    case 2: return tanhf(v);
    case 3: {
      float y;
      asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(v));
      return y;
    }
    case 4: return 1.0f - 2.0f / (__expf(2.0f * v) + 1.0f);
    case 5: return rsqrtf(v);
    case 6: return 1.0f / sqrtf(v);
    case 7: return logf(v);
    case 8: return __logf(v);
    case 9: return v / (1.0f + expf(-v));
    case 10: return __fdividef(v, 1.0f + __expf(-v));
    default: return 0.5f * v * (1.0f + erff(v * 0.70710678f));
  }
}
__global__ void forms_kernel(float* __restrict__ out, const float* __restrict__ x, int64_t n, int form) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = form_of(x[i], form);
}
extern "C" int variant_form(float* out, const float* x, int64_t n, int form, void* stream) {
  forms_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(out, x, n, form);
  return static_cast<int>(cudaGetLastError());
}

// Variance of each row, one block of 256 threads a row: 0 E[x^2] - mean^2, 1 centred second pass, 2 Welford and Chan's merge.
__global__ void variance_kernel(float* __restrict__ out, const float* __restrict__ x, int columns, int form) {
  __shared__ float means[256], squares[256], counts[256];
  const float* in = x + static_cast<int64_t>(blockIdx.x) * columns;
  const float size = static_cast<float>(columns);
  float result = 0.0f;
  if (form < 2) {
    float sum = 0.0f, square = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) sum += in[c], square += in[c] * in[c];
    const float mean = block_sum(sum) / size;
    if (form == 1) {
      square = 0.0f;
      for (int c = threadIdx.x; c < columns; c += 256) square += (in[c] - mean) * (in[c] - mean);
    }
    result = block_sum(square) / size - (form == 1 ? 0.0f : mean * mean);
  } else {
    float count = 0.0f, mean = 0.0f, square = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) {
      const float d = in[c] - mean;
      mean += d / ++count;
      square += d * (in[c] - mean);
    }
    means[threadIdx.x] = mean, squares[threadIdx.x] = square, counts[threadIdx.x] = count;
    for (int half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (static_cast<int>(threadIdx.x) >= half) continue;
      const float m = counts[threadIdx.x + half], both = count + m, d = means[threadIdx.x + half] - mean;
      if (both > 0.0f) mean += d * (m / both), square += squares[threadIdx.x + half] + d * d * (count * m / both);
      count = both;
      means[threadIdx.x] = mean, squares[threadIdx.x] = square, counts[threadIdx.x] = count;
    }
    result = square / size;
  }
  if (threadIdx.x == 0) out[blockIdx.x] = result;
}
extern "C" int variant_variance(float* out, const float* x, int64_t rows, int columns, int form, void* stream) {
  variance_kernel<<<static_cast<unsigned>(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(out, x, columns, form);
  return static_cast<int>(cudaGetLastError());
}

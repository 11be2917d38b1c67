// Runs CUDA kernels on the CPU, one block after the other, each thread a fiber: enough of CUDA for the emitted kernels,
// to check what they compute where there is no GPU. Barriers, warp shuffles and static shared memory behave as on a
// device; a shuffle or barrier that not all threads reach ends the program.
#pragma once

#include <ucontext.h>

#include <math.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;
using cudaStream_t = void*;
using cudaError_t = int;
constexpr int cudaSuccess = 0;
enum { cudaDevAttrMultiProcessorCount };
inline int cudaGetLastError() { return 0; }
inline const char* cudaGetErrorString(int) { return "error"; }
inline int cudaGetDevice(int*) { return 0; }
inline int cudaDeviceGetAttribute(int* value, int, int) { return *value = 2, 0; }
template <typename K>
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* value, K, int, int) {
  return *value = 2, 0;
}
inline float __expf(float x) { return std::exp(x); }

namespace emulator {
constexpr size_t STACK = 256 * 1024;
enum class Wait { NONE, BLOCK, WARP, DONE };
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Wait wait = Wait::NONE;
  unsigned char sent[16];
};
inline std::vector<Fiber> fibers;
inline ucontext_t home;
inline int current;
inline std::function<void()> work;

inline void enter(int index) {
  current = index;
  threadIdx = dim3(index % blockDim.x, index / blockDim.x);
  fibers[index].wait = Wait::NONE;
  swapcontext(&home, &fibers[index].context);
}
inline void leave(Wait why) {
  const int own = current;
  fibers[own].wait = why;
  swapcontext(&fibers[own].context, &home);
}
inline void body() {
  work();
  fibers[current].wait = Wait::DONE;
  swapcontext(&fibers[current].context, &home);
}
inline bool all(int from, int to, Wait why) {
  for (int i = from; i < to; ++i)
    if (fibers[i].wait != why && fibers[i].wait != Wait::DONE) return false;
  return true;
}
inline void run_block(int threads) {
  for (int i = 0; i < threads; ++i) {
    auto& fiber = fibers[i];
    getcontext(&fiber.context);
    fiber.context.uc_stack = {fiber.stack.get(), 0, STACK};
    fiber.context.uc_link = &home;
    makecontext(&fiber.context, body, 0);
    enter(i);
  }
  while (!all(0, threads, Wait::DONE)) {
    bool moved = false;
    for (int warp = 0; warp < threads; warp += 32) {
      const int end = warp + 32 < threads ? warp + 32 : threads;
      if (all(warp, end, Wait::DONE) || !all(warp, end, Wait::WARP)) continue;
      moved = true;
      for (int i = warp; i < end; ++i)
        if (fibers[i].wait == Wait::WARP) enter(i);
    }
    if (!moved && all(0, threads, Wait::BLOCK)) {
      moved = true;
      for (int i = 0; i < threads; ++i)
        if (fibers[i].wait == Wait::BLOCK) enter(i);
    }
    if (!moved) {
      std::fprintf(stderr, "threads wait for each other\n");
      std::abort();
    }
  }
}
inline void launch(dim3 grid, dim3 block, std::function<void()> kernel) {
  gridDim = grid, blockDim = block, work = std::move(kernel);
  const int threads = block.x * block.y;
  while (static_cast<int>(fibers.size()) < threads) {
    fibers.emplace_back();
    fibers.back().stack.reset(new char[STACK]);
  }
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) blockIdx = dim3(x, y), run_block(threads);
}
}  // namespace emulator

inline void __syncthreads() { emulator::leave(emulator::Wait::BLOCK); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  using namespace emulator;
  const int own = current, other = own ^ distance;
  __builtin_memcpy(fibers[own].sent, &value, sizeof(T));
  leave(Wait::WARP);
  T got;
  __builtin_memcpy(&got, fibers[other].sent, sizeof(T));
  leave(Wait::WARP);
  return got;
}

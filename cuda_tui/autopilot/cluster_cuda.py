"""What emitted CUDA shares for clusters: blocks of one row that pass values through each other's shared memory."""

CLUSTER_HEADER = "kernels/device_clusters.cuh"

CLUSTER_TEXT = r"""// Shared by the kernels here: clusters of blocks that hold a row together (compute capability 9.0).
#pragma once

#include "device_reductions.cuh"

#include <cooperative_groups.h>

namespace dev {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
__device__ __forceinline__ void cluster_arrive() {}
template <typename Op, int THREADS, int BLOCKS, int PLACE, bool FIRST, typename T>
__device__ __forceinline__ T across_cluster(T value) {
  return value;  // never runs: the launch fails before
}
#else
// Says that this block runs; across_cluster waits for all of them before it writes into their memory.
__device__ __forceinline__ void cluster_arrive() { cooperative_groups::this_cluster().barrier_arrive(); }

// One value from all threads of the BLOCKS blocks of a row, the same in all of them. Every block writes its own value
// to all others, so that none has to stay for others to read. PLACE is a number that no other call of the kernel has.
template <typename Op, int THREADS, int BLOCKS, int PLACE, bool FIRST, typename T>
__device__ __forceinline__ T across_cluster(T value) {
  __shared__ T parts[BLOCKS];
  auto cluster = cooperative_groups::this_cluster();
  value = across_row<Op, THREADS>(value);
  if constexpr (FIRST) cluster.barrier_wait();
  if (threadIdx.x < BLOCKS) *cluster.map_shared_rank(&parts[cluster.block_rank()], threadIdx.x) = value;
  cluster.sync();
  value = parts[0];
#pragma unroll
  for (int block = 1; block < BLOCKS; ++block) value = Op::join(value, parts[block]);
  return value;
}
#endif

// Starts a kernel whose blocks form clusters. What goes wrong is found by cudaGetLastError.
template <typename... Parameters, typename... Arguments>
inline void launch_cluster(void (*kernel)(Parameters...), int blocks, int threads, int cluster, cudaStream_t queue,
                           Arguments... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = queue;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace dev
"""

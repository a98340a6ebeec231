// What merged kernels use of ROCm's header, for a compiler that comes without ROCm: compiled, not
// linked, so that mathematical functions are declared only.
#pragma once
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads, waves) \
  __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))

#define STAND_IN_INDEX(name, value)                                  \
  struct name##_index {                                              \
    struct {                                                         \
      __device__ operator unsigned() const { return value; }         \
    } x;                                                             \
  };                                                                 \
  static const __device__ name##_index name{};
STAND_IN_INDEX(threadIdx, __builtin_amdgcn_workitem_id_x())
STAND_IN_INDEX(blockIdx, __builtin_amdgcn_workgroup_id_x())
STAND_IN_INDEX(blockDim, __builtin_amdgcn_workgroup_size_x())
STAND_IN_INDEX(gridDim, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())

static inline __device__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
  __builtin_amdgcn_s_barrier();
}
static inline __device__ long long wall_clock64() { return __builtin_readsteadycounter(); }
template <class T>
__device__ T __shfl(T value, int lane, int width);
template <class T>
__device__ T __shfl_down(T value, unsigned delta, int width);
template <class T>
__device__ T __shfl_up(T value, unsigned delta, int width);
template <class T>
__device__ T __shfl_xor(T value, int bits, int width);

#define STAND_IN_VECTORS(T, name)                                                          \
  struct name##1 { T x; };                                                                 \
  struct __attribute__((aligned(2 * sizeof(T)))) name##2 { T x, y; };                      \
  struct name##3 { T x, y, z; };                                                           \
  struct __attribute__((aligned(4 * sizeof(T)))) name##4 { T x, y, z, w; };                \
  static inline __device__ name##2 make_##name##2(T x, T y) { return {x, y}; }             \
  static inline __device__ name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
STAND_IN_VECTORS(float, float)
STAND_IN_VECTORS(int, int)

extern "C" {
__device__ float expf(float), erff(float), tanhf(float), rsqrtf(float), sqrtf(float), logf(float);
__device__ float powf(float, float), __expf(float), __logf(float), fabsf(float), floorf(float);
}
static inline __device__ float max(float a, float b) { return __builtin_fmaxf(a, b); }
static inline __device__ float min(float a, float b) { return __builtin_fminf(a, b); }
static inline __device__ int max(int a, int b) { return a > b ? a : b; }
static inline __device__ int min(int a, int b) { return a < b ? a : b; }

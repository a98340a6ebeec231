// What launches, barriers, hand-overs and loads take on this GPU; a line of JSON for each.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                    \
  do {                                                                                 \
    const cudaError_t status = (call);                                                 \
    if (status != cudaSuccess) {                                                       \
      fprintf(stderr, "%s fails: %s\n", #call, cudaGetErrorString(status));            \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

constexpr int kThreads = 256, kLaunches = 1000, kSteps = 500, kLoads = 2000, kRepeats = 9;
// Words from one counter to the next: a sector of the second-level cache each.
constexpr int kCounter = 8;

__device__ __forceinline__ int acquire(const int* counter) {
  int count;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  return count;
}
__device__ __forceinline__ void release(int* counter, int count) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" : : "l"(counter), "r"(count) : "memory");
}

__global__ void touch(float* data) { data[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }

__global__ void __launch_bounds__(kThreads, 2) grid_barriers(int* counters, int steps) {
  for (int step = 0; step < steps; ++step) cooperative_groups::this_grid().sync();
}

// The first block and the last one hand over to each other in turn.
__global__ void hand_over(int* counters, int steps) {
  if (threadIdx.x) return;
  int* back = counters + kCounter;
  for (int step = 1; step <= steps; ++step) {
    if (blockIdx.x == 0) {
      release(counters, step);
      while (acquire(back) < step) __nanosleep(20);
    } else if (blockIdx.x == gridDim.x - 1) {
      while (acquire(counters) < step) __nanosleep(20);
      release(back, step);
    }
  }
}

// Every block waits for every other one, a thread for each.
__global__ void __launch_bounds__(kThreads, 2) all_wait_for_all(int* counters, int steps) {
  for (int step = 1; step <= steps; ++step) {
    __syncthreads();
    if (threadIdx.x == 0) release(counters + kCounter * blockIdx.x, step);
    for (int block = threadIdx.x; block < gridDim.x; block += blockDim.x)
      while (acquire(counters + kCounter * block) < step) __nanosleep(20);
    __syncthreads();
  }
}

// One block waits for all, and all for it.
__global__ void __launch_bounds__(kThreads, 2) all_wait_for_one(int* counters, int steps) {
  int* hub = counters + kCounter * gridDim.x;
  for (int step = 1; step <= steps; ++step) {
    __syncthreads();
    if (threadIdx.x == 0) release(counters + kCounter * blockIdx.x, step);
    if (blockIdx.x == 0) {
      for (int block = threadIdx.x; block < gridDim.x; block += blockDim.x)
        while (acquire(counters + kCounter * block) < step) __nanosleep(20);
      __syncthreads();
      if (threadIdx.x == 0) release(hub, step);
    }
    if (threadIdx.x == 0)
      while (acquire(hub) < step) __nanosleep(20);
    __syncthreads();
  }
}

// Each load says where the next one is.
__global__ void chase(const int* next, int loads, int* last, long long* cycles) {
  int place = 0;
  for (int load = 0; load < 64; ++load) place = __ldcg(next + place);
  const long long start = clock64();
  for (int load = 0; load < loads; ++load) place = __ldcg(next + place);
  *cycles = clock64() - start;
  *last = place;
}

__global__ void __launch_bounds__(kThreads, 2)
    read_all(const float4* data, size_t count, int times, float* sum) {
  constexpr int kAtOnce = 4;
  const size_t stride = size_t(gridDim.x) * kThreads;
  float found = 0.0f;
  for (int time = 0; time < times; ++time)
    for (size_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += stride * kAtOnce) {
      float4 values[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        values[k] = i + k * stride < count ? __ldcg(data + i + k * stride) : float4{};
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) found += values[k].x + values[k].y + values[k].z + values[k].w;
    }
  if (found == 12345.678f) *sum = found;
}

// Median microseconds of some work on the GPU.
template <class Work>
double microseconds(const Work& work) {
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    CHECK(cudaEventRecord(start));
    work();
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    if (repeat) times.push_back(milliseconds * 1e3f);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void tell(const char* what, double value, const char* unit) {
  printf("{\"what\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"}\n", what, value, unit);
}

int main() {
  cudaDeviceProp gpu;
  CHECK(cudaGetDeviceProperties(&gpu, 0));
  const int one_each = gpu.multiProcessorCount, two_each = 2 * one_each;
  constexpr size_t kBytes = size_t(1) << 30;
  float* data;
  CHECK(cudaMalloc(&data, kBytes));
  CHECK(cudaMemset(data, 0, kBytes));
  int* counters = reinterpret_cast<int*>(data);

  const auto launches = [&](cudaStream_t stream) {
    for (int k = 0; k < kLaunches; ++k) touch<<<two_each, kThreads, 0, stream>>>(data);
  };
  tell("from a small kernel to the next one in a stream",
       microseconds([&] { launches(0); }) / kLaunches, "us");
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launches(stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  tell("from a small kernel to the next one in a graph",
       microseconds([&] { CHECK(cudaGraphLaunch(executable, 0)); }) / kLaunches, "us");

  const auto stepwise = [&](const void* kernel, int blocks, int threads) {
    int steps = kSteps;
    void* arguments[] = {&counters, &steps};
    return microseconds([&] {
             CHECK(cudaMemsetAsync(counters, 0, 1 << 20));
             CHECK(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(threads), arguments));
           }) / kSteps;
  };
  tell("a hand-over from block to block", stepwise((void*)hand_over, one_each, 32) / 2, "us");
  for (const int blocks : {one_each, two_each}) {
    const char* each = blocks == one_each ? "one block" : "two blocks";
    char what[100];
    const auto tell_of = [&](const char* barrier, double value) {
      snprintf(what, sizeof what, "%s, %s on each SM", barrier, each);
      tell(what, value, "us");
    };
    tell_of("a barrier of the grid", stepwise((void*)grid_barriers, blocks, kThreads));
    tell_of("all blocks wait for all", stepwise((void*)all_wait_for_all, blocks, kThreads));
    tell_of("all wait for one that waits for all",
            stepwise((void*)all_wait_for_one, blocks, kThreads));
  }

  std::vector<int> next(1 << 20);
  for (size_t k = 0; k < next.size(); ++k) next[k] = (k + 97 * 32) % next.size();
  CHECK(cudaMemcpy(counters, next.data(), next.size() * 4, cudaMemcpyHostToDevice));
  long long cycles, *place = reinterpret_cast<long long*>(counters + (8 << 20));
  for (int repeat = 0; repeat < 2; ++repeat)
    chase<<<1, 1>>>(counters, kLoads, counters + (4 << 20), place);
  CHECK(cudaMemcpy(&cycles, place, sizeof cycles, cudaMemcpyDeviceToHost));
  tell("latency of the L2 cache", double(cycles) / kLoads, "cycles");

  CHECK(cudaMemset(data, 0, kBytes));
  for (const size_t bytes : {size_t(gpu.l2CacheSize) / 2, kBytes}) {
    const int times = bytes == kBytes ? 2 : 40;
    const double us = microseconds([&] {
      read_all<<<two_each, kThreads>>>(reinterpret_cast<float4*>(data), bytes / 16, times, data);
    });
    tell(bytes == kBytes ? "read from memory" : "read from the L2 cache", bytes * times / us * 1e-3,
         "GB/s");
  }
  CHECK(cudaDeviceSynchronize());
}

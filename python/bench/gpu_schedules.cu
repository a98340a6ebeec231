// Times schedules of operators on a GPU: the part that knows no operator. What does is generated.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kThreads = 256;

struct Schedule {
  const char* key;
  void (*kernel)(void* const*, int, int);
  int tiles;
  int repeats;
};

struct Operator {
  std::vector<size_t> counts;  // floats of its tensors, the result last
  size_t row, pitch;           // of the result: floats of a row, and from a row to the next
  std::vector<Schedule> schedules;
};

#define CHECK(call)                                                            \
  do {                                                                         \
    cudaError_t error = (call);                                                \
    if (error != cudaSuccess) {                                                \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));           \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

__global__ void __launch_bounds__(kThreads, 2) Nothing(void* const*, int, int) {}

__global__ void Fill(float* to, size_t count, unsigned seed) {
  for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < count;
       k += size_t(gridDim.x) * blockDim.x) {
    unsigned x = (unsigned(k) + seed * 7919u) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    to[k] = float(x) * (2.0f / 4294967296.0f) - 1.0f;
  }
}

// Seconds of one launch, of the median of some replays of a graph of them.
double Timed(cudaStream_t stream, void (*kernel)(void* const*, int, int), int blocks,
             void* const* operands, int tiles, int repeats, int launches) {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < launches; ++k)
    kernel<<<blocks, kThreads, 0, stream>>>(operands, tiles, repeats);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<float> found;
  for (int k = 0; k < 8; ++k) {
    CHECK(cudaEventRecord(start, stream));
    CHECK(cudaGraphLaunch(ready, stream));
    CHECK(cudaEventRecord(stop, stream));
    CHECK(cudaEventSynchronize(stop));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (k > 0) found.push_back(ms);
  }
  std::sort(found.begin(), found.end());
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  CHECK(cudaGraphExecDestroy(ready));
  CHECK(cudaGraphDestroy(graph));
  return found[found.size() / 2] * 1e-3 / launches;
}

std::vector<Operator> Operators();

int main() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  const int blocks = 2 * device.multiProcessorCount;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  printf("{\"gpu\": \"%s\", \"blocks\": %d}\n", device.name, blocks);
  const double launch = Timed(stream, Nothing, blocks, nullptr, 1, 1, 50);
  for (const Operator& each : Operators()) {
    std::vector<void*> tensors;
    for (size_t count : each.counts) {
      void* tensor;
      CHECK(cudaMalloc(&tensor, count * sizeof(float)));
      Fill<<<1024, 256, 0, stream>>>((float*)tensor, count, tensors.size());
      tensors.push_back(tensor);
    }
    void** operands;
    CHECK(cudaMalloc(&operands, tensors.size() * sizeof(void*)));
    CHECK(cudaMemcpy(operands, tensors.data(), tensors.size() * sizeof(void*),
                     cudaMemcpyHostToDevice));
    const size_t results = each.counts.back();
    std::vector<float> wanted, got(results);
    for (const Schedule& schedule : each.schedules) {
      // What was not written is not a number.
      CHECK(cudaMemsetAsync(tensors.back(), 0xff, results * sizeof(float), stream));
      const int some = std::min(blocks, schedule.tiles);
      schedule.kernel<<<some, kThreads, 0, stream>>>(operands, schedule.tiles, 1);
      CHECK(cudaMemcpyAsync(got.data(), tensors.back(), results * sizeof(float),
                            cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      if (wanted.empty()) wanted = got;
      double error = 0, largest = 1e-30;
      for (size_t k = 0; k < results; ++k) {
        if (k % each.pitch >= each.row) continue;  // between rows
        const double apart = std::fabs(double(got[k]) - wanted[k]);
        error = std::isnan(apart) ? INFINITY : std::max(error, apart);
        largest = std::max(largest, std::fabs(double(wanted[k])));
      }
      const double alone =
          Timed(stream, schedule.kernel, some, operands, schedule.tiles, 1, 20) - launch;
      const double all = Timed(stream, schedule.kernel, blocks, operands, schedule.tiles,
                               schedule.repeats, 2) - launch;
      printf("{\"key\": \"%s\", \"alone\": %.4g, \"tile\": %.4g, \"error\": %.3g}\n",
             schedule.key, alone, all / schedule.repeats,
             std::isinf(error) ? 9e9 : error / largest);
      fflush(stdout);
    }
    for (void* tensor : tensors) CHECK(cudaFree(tensor));
    CHECK(cudaFree(operands));
  }
  return 0;
}

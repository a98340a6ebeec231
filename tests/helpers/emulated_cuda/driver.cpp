// CUDA's driver and its runtime library, as far as TVM's runtime and run.py call them: memory of the
// device is there while kernels and copies run, and nobody can read or write it otherwise; streams
// run at once, kernels run on the emulation. What is "machine code" is a library of
// compile_source.py.
//
// A stream that is captured keeps its launches and copies for a graph. Everything else that a
// process calls meanwhile is refused as CUDA refuses it (in its mode "global"): to allocate, to
// load code, to wait, to use another stream that waits for all.
//
// Environment: EMULATED_CUDA_ARCH (90), EMULATED_CUDA_SMS (132), EMULATED_CUDA_DEVICES (1),
// EMULATED_CUDA_VERSION (13000) are what the driver says; to the file EMULATED_CUDA_LOG it writes
// the name of every function that is called.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "include/threads.h"

namespace {

enum Error {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  LAUNCH_FAILED = 719,
  COOPERATIVE_LAUNCH_TOO_LARGE = 720,
  STREAM_CAPTURE_UNSUPPORTED = 900,
  STREAM_CAPTURE_INVALIDATED = 901,
  STREAM_CAPTURE_IMPLICIT = 906
};
const std::map<int, const char*> kNames = {
    {SUCCESS, "CUDA_SUCCESS"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
    {COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
    {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
};

using Work = std::function<int()>;
using Graph = std::vector<Work>;

struct Stream {
  Graph* graph = nullptr;  // while it is captured
  bool broken = false;     // something that is not allowed was called meanwhile
};
Stream everyone;  // the default stream, which waits for all others
std::set<Stream*> capturing;
int last_error = SUCCESS;

using emulated::Entry;

// Memory of the device. The process ends where the host touches it.
class Memory {
 public:
  void* add(size_t bytes) {
    const size_t size = (bytes / kPage + 1) * kPage;
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    memset(at, 0x7f, bytes);
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    sizes_[at] = size;
    protect(at, size);
    return at;
  }
  void remove(void* at) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    const auto found = sizes_.find(at);
    if (found == sizes_.end()) return;
    munmap(at, found->second);
    sizes_.erase(found);
  }
  template <typename Function>
  int in_use(Function work) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    ++users_;
    protect_all();
    const int error = work();
    --users_;
    protect_all();
    return error;
  }

 private:
  static constexpr size_t kPage = 4096;
  void protect(void* at, size_t size) {
    mprotect(at, size, users_ ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  void protect_all() {
    for (const auto& [at, size] : sizes_) protect(at, size);
  }
  std::map<void*, size_t> sizes_;
  int users_ = 0;
  std::recursive_mutex mutex_;
};
Memory memory;

long setting(const char* name, long usual) {
  const char* text = getenv(name);
  return text && *text ? atol(text) : usual;
}

void note(const char* name) {
  const char* path = getenv("EMULATED_CUDA_LOG");
  if (!path || !*path) return;
  if (FILE* file = fopen(path, "a")) {
    fprintf(file, "%s\n", name);
    fclose(file);
  }
}

int remember(int error) {
  if (error) last_error = error;
  return error;
}

// What must not be called while a stream is captured: the capture is lost.
int forbidden() {
  for (Stream* stream : capturing) stream->broken = true;
  return capturing.empty() ? SUCCESS : remember(STREAM_CAPTURE_UNSUPPORTED);
}

Stream* stream_of(void* handle) {
  // 0, and the two handles that stand for the default stream.
  return (uintptr_t)handle < 3 ? &everyone : (Stream*)handle;
}

int enqueue(void* handle, Work work) {
  Stream* stream = stream_of(handle);
  if (stream->graph) {
    stream->graph->push_back(std::move(work));
    return SUCCESS;
  }
  if (stream == &everyone && !capturing.empty()) {
    forbidden();
    return remember(STREAM_CAPTURE_IMPLICIT);
  }
  return remember(work());
}

size_t image_bytes(const void* image) {
  auto header = (const Elf64_Ehdr*)image;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG)) return 0;
  return header->e_shoff + size_t(header->e_shnum) * header->e_shentsize;
}

// Arguments lie where any type is aligned.
constexpr size_t kArgument = alignof(std::max_align_t);
size_t argument_bytes(const Entry* entry, int i) {
  return (entry->sizes[i] + kArgument - 1) / kArgument * kArgument;
}

int run_kernel(const Entry* entry, const std::vector<char>& bytes, const emulated::Launch& how) {
  std::vector<void*> arguments;
  const char* at = bytes.data();
  for (int i = 0; i < entry->count; at += argument_bytes(entry, i++))
    arguments.push_back((void*)at);
  const char* error = nullptr;
  memory.in_use([&] {
    error = entry->run(arguments.data(), how);
    return SUCCESS;
  });
  if (!error) return SUCCESS;
  fprintf(stderr, "%s\n", error);
  return strstr(error, "too many blocks in cooperative") ? COOPERATIVE_LAUNCH_TOO_LARGE
                                                         : LAUNCH_FAILED;
}

struct LaunchAttribute {
  unsigned id;
  char pad[4];
  union {
    char room[64];
    int cooperative;
  };
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};
constexpr unsigned kCooperative = 2;

}  // namespace

#define CALLED note(__func__)
#define NOT_WHILE_CAPTURING \
  CALLED;                   \
  if (int error = forbidden()) return error

extern "C" {

// ---- the driver ---------------------------------------------------------------------------------
int cuInit(unsigned) { return setting("EMULATED_CUDA_DEVICES", 1) ? SUCCESS : NO_DEVICE; }
int cuDriverGetVersion(int* version) {
  *version = int(setting("EMULATED_CUDA_VERSION", 13000));
  return SUCCESS;
}
int cuDeviceGetCount(int* count) {
  *count = int(setting("EMULATED_CUDA_DEVICES", 1));
  return SUCCESS;
}
int cuDeviceGet(int* device, int number) {
  *device = number;
  return number < setting("EMULATED_CUDA_DEVICES", 1) ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char* name, int length, int) {
  snprintf(name, length, "emulated GPU");
  return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const long arch = setting("EMULATED_CUDA_ARCH", 90);
  const std::map<int, long> known = {{1, 1024}, {10, 32}, {13, 1000000}, {39, 2048}, {95, 1},
                                     {16, setting("EMULATED_CUDA_SMS", 132)},
                                     {75, arch / 10}, {76, arch % 10}};
  const auto found = known.find(attribute);
  *value = found == known.end() ? 0 : int(found->second);
  return SUCCESS;
}
int cuGetErrorName(int error, const char** name) {
  const auto found = kNames.find(error);
  *name = found == kNames.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return SUCCESS;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }

int cuModuleLoadData(void** module, const void* image) {
  NOT_WHILE_CAPTURING;
  const size_t size = image_bytes(image);
  if (!size) return INVALID_IMAGE;
  const int file = memfd_create("kernels", 0);
  if (write(file, image, size) != ssize_t(size)) return OUT_OF_MEMORY;
  *module = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!*module) fprintf(stderr, "emulated CUDA: %s\n", dlerror());
  // The file stays open: its number is the name by which code is told apart.
  return *module ? SUCCESS : INVALID_IMAGE;
}
int cuModuleUnload(void* module) { return dlclose(module) ? INVALID_HANDLE : SUCCESS; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  NOT_WHILE_CAPTURING;
  *function = dlsym(module, (std::string("emulated_entry_") + name).c_str());
  return *function ? SUCCESS : NOT_FOUND;
}
int cuFuncSetAttribute(void*, int, int) {
  CALLED;
  return SUCCESS;
}
int cuTensorMapEncodeTiled() { return INVALID_VALUE; }

int cuLaunchKernelEx(const LaunchConfig* given, void* function, void** arguments, void**) {
  CALLED;
  for (const unsigned extent : {given->grid[0], given->grid[1], given->grid[2]})
    if (!extent) return INVALID_VALUE;
  const auto* entry = (const Entry*)function;
  std::vector<char> bytes;
  for (int i = 0; i < entry->count; ++i) {
    bytes.insert(bytes.end(), (char*)arguments[i], (char*)arguments[i] + entry->sizes[i]);
    bytes.resize(bytes.size() + argument_bytes(entry, i) - entry->sizes[i]);
  }
  emulated::Launch how;
  how.grid = {given->grid[0], given->grid[1], given->grid[2]};
  how.block = {given->block[0], given->block[1], given->block[2]};
  how.dynamic_bytes = given->shared_bytes;
  how.cooperative = false;
  for (unsigned i = 0; i < given->count; ++i)
    if (given->attributes[i].id == kCooperative)
      how.cooperative = given->attributes[i].cooperative;
  return enqueue(given->stream, [=] { return run_kernel(entry, bytes, how); });
}

// ---- the runtime library ------------------------------------------------------------------------
int cudaGetDeviceCount(int* count) { return cuInit(0) ? NO_DEVICE : cuDeviceGetCount(count); }
int cudaSetDevice(int) { return cuInit(0); }
int cudaGetDevice(int* device) {
  *device = 0;
  return SUCCESS;
}
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return cuDeviceGetAttribute(value, attribute, device);
}
int cudaGetDeviceProperties(void*, int) { return INVALID_VALUE; }
int cudaGetLastError() {
  const int error = last_error;
  last_error = SUCCESS;
  return error;
}
int cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(int error) {
  const char* name;
  cuGetErrorName(error, &name);
  return name;
}
const char* cudaGetErrorString(int error) { return cudaGetErrorName(error); }

int cudaMalloc(void** at, size_t bytes) {
  NOT_WHILE_CAPTURING;
  *at = memory.add(bytes);
  return *at ? SUCCESS : remember(OUT_OF_MEMORY);
}
int cudaFree(void* at) {
  NOT_WHILE_CAPTURING;
  memory.remove(at);
  return SUCCESS;
}
int cudaMallocHost(void** at, size_t bytes) {
  NOT_WHILE_CAPTURING;
  *at = malloc(bytes);
  return *at ? SUCCESS : remember(OUT_OF_MEMORY);
}
int cudaFreeHost(void* at) {
  NOT_WHILE_CAPTURING;
  free(at);
  return SUCCESS;
}
int cudaMemGetInfo(size_t* left, size_t* all) {
  *left = *all = size_t(80) << 30;
  return SUCCESS;
}
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
  CALLED;
  return enqueue(stream, [=] {
    return memory.in_use([=] {
      memmove(to, from, bytes);
      return int(SUCCESS);
    });
  });
}
int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void* stream) {
  return cudaMemcpyAsync(to, from, bytes, 0, stream);
}

int cudaStreamCreate(void** stream) {
  *stream = new Stream;
  return SUCCESS;
}
int cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }
int cudaStreamDestroy(void* stream) {
  delete (Stream*)stream;
  return SUCCESS;
}
int cudaStreamSynchronize(void*) {
  NOT_WHILE_CAPTURING;
  return last_error;
}
int cudaDeviceSynchronize() {
  NOT_WHILE_CAPTURING;
  return last_error;
}
int cudaStreamWaitEvent(void*, void*, unsigned) { return SUCCESS; }
int cudaEventCreate(void** event) {
  *event = new char;
  return SUCCESS;
}
int cudaEventDestroy(void* event) {
  delete (char*)event;
  return SUCCESS;
}
int cudaEventRecord(void*, void*) { return SUCCESS; }
int cudaEventSynchronize(void*) {
  NOT_WHILE_CAPTURING;
  return SUCCESS;
}
int cudaEventElapsedTime(float* ms, void*, void*) {
  *ms = 0;
  return SUCCESS;
}

// ---- graphs -------------------------------------------------------------------------------------
int cudaStreamBeginCapture(void* handle, int) {
  CALLED;
  Stream* stream = stream_of(handle);
  if (stream == &everyone) return remember(STREAM_CAPTURE_UNSUPPORTED);
  stream->graph = new Graph;
  stream->broken = false;
  capturing.insert(stream);
  return SUCCESS;
}
int cudaStreamEndCapture(void* handle, void** graph) {
  CALLED;
  Stream* stream = stream_of(handle);
  if (!stream->graph) return remember(INVALID_VALUE);
  capturing.erase(stream);
  *graph = stream->graph;
  stream->graph = nullptr;
  if (!stream->broken) return SUCCESS;
  delete (Graph*)*graph;
  *graph = nullptr;
  return remember(STREAM_CAPTURE_INVALIDATED);
}
int cudaGraphInstantiate(void** executable, void* graph, unsigned long long) {
  CALLED;
  *executable = new Graph(*(Graph*)graph);
  return SUCCESS;
}
int cudaGraphLaunch(void* executable, void* stream) {
  CALLED;
  for (const Work& work : *(Graph*)executable)
    if (int error = enqueue(stream, work)) return error;
  return SUCCESS;
}
int cudaGraphDestroy(void* graph) {
  delete (Graph*)graph;
  return SUCCESS;
}
int cudaGraphExecDestroy(void* executable) {
  delete (Graph*)executable;
  return SUCCESS;
}
int cudaGraphGetNodes(void* graph, void**, size_t* count) {
  *count = ((Graph*)graph)->size();
  return SUCCESS;
}

}  // extern "C"

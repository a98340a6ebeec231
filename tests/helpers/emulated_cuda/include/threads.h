// What kernels ask of the scheduler in emulated.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulated {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

enum State : uint8_t {
  READY,
  AT_BARRIER,       // __syncthreads
  AT_GRID_BARRIER,  // cooperative_groups::this_grid().sync()
  AT_ACTIVE_MASK,   // __activemask
  AT_SHUFFLE,       // warp shuffles and __syncwarp
  SPINNING,         // __nanosleep, or a load that others' stores end
  PREEMPTED,        // computed for long without coming to any of these
  DONE
};

constexpr int kMostCopies = 16;
// Of a thread to shared memory, some time before it waits for its copies.
struct Copy {
  int64_t* to;
  const int64_t* from;
};

struct Place {
  Dim thread, block;
  unsigned number = 0;  // of the thread in its block, x fastest
  unsigned block_number = 0;
  int line = 0;         // where it waited last
  uint64_t value = 0;   // what it brings to a warp's collective
  Copy copies[kMostCopies];
  int num_copies = 0;
};

extern Place* here;
extern Dim grid_size, block_size;

// Ends the launch with an error; does not return.
[[noreturn]] void fail(const char* text);
void wait(State state, int line, unsigned mask = 0);
// What lane `source` brought, when all lanes of `mask` have come.
uint64_t exchange(int line, unsigned mask, uint64_t value, int source);
void warp_barrier(int line, unsigned mask);
// What orders accesses of different blocks, for those who look for races.
void fence();
void note_load(const volatile void* at, bool acquires);
void note_store(const volatile void* at, bool releases, bool keeps);
[[noreturn]] void trap(int line);
void put_off(const Copy& copy);
// Takes what was put off; how many there are.
int take_copies(Copy* copies);
void* static_shared(int site, size_t bytes);
void* dynamic_shared();
int64_t clock_ticks();

struct Launch {
  Dim grid, block;
  size_t dynamic_bytes;
  bool cooperative;
};
// How a driver calls a kernel: the bytes of each parameter, and a run from pointers to them.
struct Entry {
  int count;
  const unsigned* sizes;
  const char* (*run)(void** arguments, const Launch& launch);
};
// Runs all threads; returns nullptr, or what went wrong.
const char* launch(void (*kernel)(void*), void* arguments, const Launch& launch);

}  // namespace emulated

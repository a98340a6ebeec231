// Finds pairs of accesses to one place, one of them a store, that nothing orders.
#pragma once
#include <signal.h>

#include <cstddef>

namespace emulated::races {

// Whether a thread is noting what it does: it must not be preempted.
extern volatile sig_atomic_t busy;

void begin(unsigned blocks, const void* stacks, size_t stack_bytes);
void end();
// Memory that is given out anew: what was done there before concerns nobody.
void forget(const void* memory, size_t bytes);
void block_barrier(unsigned block);
void grid_barrier();
void warp_barrier(unsigned block, unsigned warp);

}  // namespace emulated::races

// Finds pairs of accesses to one place, one of them a store, that nothing orders.
//
// Kernels that are compiled with -fsanitize=thread call a function of this file before every load
// and store. What orders accesses, besides a thread's own order: __syncthreads in a block, barriers
// of the grid, __syncwarp in a warp, and between blocks a release (or a fence and an atomic or
// volatile store) whose value an acquire (or an atomic or volatile load and a fence) may have read.
// A release hands over what its block did up to its last barrier, and what was handed to it.
#include "races.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "include/threads.h"

namespace emulated {
namespace {

// clock[b]: what block b did in its epochs before this one is over.
using Clock = std::vector<uint32_t>;

struct Access {
  int block = -1;
  unsigned thread = 0, epoch = 0, warp_epoch = 0, bytes = 0;
};

// Of four bytes: the last store, and the last loads by two threads.
struct Cell {
  Access store, loads[2];
};

struct Reader {
  Clock acquired;  // since the last barrier of its block
  Clock seen;      // by loads that no fence has followed
  Clock fenced;    // at its last fence
  uintptr_t looked_at = 0;  // by its last load without order
};

struct Watched {
  uintptr_t stacks = 0, stacks_end = 0;
  std::vector<uint32_t> epochs;
  std::vector<Clock> known;  // by all threads of a block
  std::vector<std::vector<uint32_t>> warps;
  std::vector<std::unordered_map<unsigned, Reader>> readers;
  std::unordered_map<uintptr_t, Clock> released;
  std::unordered_map<uintptr_t, std::unique_ptr<Cell[]>> pages;
  uintptr_t last_page = 0;
  Cell* last_cells = nullptr;
} state;

// Nobody may preempt a thread while it notes what it does.
struct Busy {
  Busy() { races::busy = 1; }
  ~Busy() { races::busy = 0; }
};

constexpr uintptr_t kPage = 1 << 12;

void join(Clock& into, const Clock& other) {
  if (other.empty()) return;
  if (into.empty()) into.resize(state.epochs.size());
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

uint32_t at(const Clock& clock, unsigned block) { return clock.empty() ? 0 : clock[block]; }

Reader& me() { return state.readers[here->block_number][here->number]; }

// What a release of the running thread hands over.
Clock own_clock() {
  const unsigned block = here->block_number;
  Clock clock = state.known[block];
  join(clock, me().acquired);
  clock[block] = state.epochs[block];
  return clock;
}

Cell* cells_of(uintptr_t page) {
  if (page != state.last_page || !state.last_cells) {
    auto& found = state.pages[page];
    if (!found) found.reset(new Cell[kPage / 4]);
    state.last_page = page;
    state.last_cells = found.get();
  }
  return state.last_cells;
}

bool ordered(const Access& before, const Access& now) {
  if (before.block < 0 || !(before.bytes & now.bytes)) return true;
  if (before.block == now.block) {
    if (before.thread == now.thread || before.epoch < now.epoch) return true;
    return before.thread / 32 == now.thread / 32 && before.warp_epoch < now.warp_epoch;
  }
  const auto& readers = state.readers[now.block];
  const auto found = readers.find(now.thread);
  const uint32_t acquired = found == readers.end() ? 0 : at(found->second.acquired, before.block);
  return std::max(acquired, at(state.known[now.block], before.block)) > before.epoch;
}

void report(const Access& before, bool before_stores, bool stores) {
  const auto who = [](const Access& access) {
    return "thread " + std::to_string(access.thread) + " of block " + std::to_string(access.block);
  };
  const int line = here->line;
  const std::string text = "a race: " + who({int(here->block_number), here->number}) +
       (line ? ", last at line " + std::to_string(line) + "," : "") +
       (stores ? " writes" : " reads") + " what " + who(before) +
       (before_stores ? " writes" : " reads") + ", and nothing orders them";
  fail(text.c_str());
}

void access(uintptr_t address, size_t bytes, bool stores) {
  // The host's part of a kernel is compiled alike.
  if (state.epochs.empty()) return;
  if (address >= state.stacks && address < state.stacks_end) return;
  const Busy busy;
  const unsigned block = here->block_number, thread = here->number;
  Access now{int(block), thread, state.epochs[block], 0, 0};
  if (!state.warps[block].empty()) now.warp_epoch = state.warps[block][thread / 32];
  const uintptr_t end = address + bytes;
  for (uintptr_t word = address & ~uintptr_t(3); word < end; word += 4) {
    Cell& cell = cells_of(word / kPage)[word % kPage / 4];
    now.bytes = 0;
    for (unsigned i = 0; i < 4; ++i)
      now.bytes |= unsigned(word + i >= address && word + i < end) << i;
    if (!ordered(cell.store, now)) return report(cell.store, true, stores);
    if (!stores) {
      const bool first = cell.loads[0].block == now.block && cell.loads[0].thread == now.thread;
      if (!first) cell.loads[1] = cell.loads[0];
      cell.loads[0] = now;
      continue;
    }
    for (const Access& load : cell.loads)
      if (!ordered(load, now)) return report(load, false, true);
    cell.store = now;
  }
}

}  // namespace

namespace races {

volatile sig_atomic_t busy = 0;

void begin(unsigned blocks, const void* stacks, size_t stack_bytes) {
  state = Watched();
  state.stacks = uintptr_t(stacks);
  state.stacks_end = state.stacks + stack_bytes;
  state.epochs.assign(blocks, 1);
  state.known.assign(blocks, Clock(blocks));
  state.warps.resize(blocks);
  state.readers.resize(blocks);
}

void end() { state = Watched(); }

void forget(const void* memory, size_t bytes) {
  for (uintptr_t word = uintptr_t(memory) & ~uintptr_t(3); word < uintptr_t(memory) + bytes;
       word += 4) {
    auto found = state.pages.find(word / kPage);
    if (found != state.pages.end()) found->second[word % kPage / 4] = Cell();
  }
}

void block_barrier(unsigned block) {
  for (auto& [thread, reader] : state.readers[block]) {
    join(state.known[block], reader.acquired);
    reader.acquired.clear();
  }
  ++state.epochs[block];
}

void grid_barrier() {
  for (unsigned block = 0; block < state.epochs.size(); ++block) block_barrier(block);
  for (Clock& clock : state.known) clock = state.epochs;
}

void warp_barrier(unsigned block, unsigned warp) {
  auto& clocks = state.warps[block];
  if (clocks.size() <= warp) clocks.resize(32);
  ++clocks[warp];
}

}  // namespace races

void fence() {
  const Busy busy;
  Reader& reader = me();
  // It may have been preempted between the note and its load.
  const auto found = state.released.find(reader.looked_at);
  if (found != state.released.end()) join(reader.seen, found->second);
  join(reader.acquired, reader.seen);
  reader.seen.clear();
  reader.fenced = own_clock();
}

void note_load(const volatile void* at, bool acquires) {
  const Busy busy;
  if (!acquires) me().looked_at = uintptr_t(at);
  const auto found = state.released.find(uintptr_t(at));
  if (found != state.released.end()) join(acquires ? me().acquired : me().seen, found->second);
}

void note_store(const volatile void* at, bool releases, bool keeps) {
  const Busy busy;
  Clock clock = releases ? own_clock() : me().fenced;
  Clock& released = state.released[uintptr_t(at)];
  if (!keeps) released.clear();
  join(released, clock);
}

}  // namespace emulated

// ---- what the compiler calls ---------------------------------------------------------------------
#define HOOKS(bytes)                                                                              \
  extern "C" void __tsan_read##bytes(void* at) { emulated::access(uintptr_t(at), bytes, false); } \
  extern "C" void __tsan_write##bytes(void* at) { emulated::access(uintptr_t(at), bytes, true); } \
  extern "C" void __tsan_unaligned_read##bytes(void* at) {                                        \
    emulated::access(uintptr_t(at), bytes, false);                                                \
  }                                                                                               \
  extern "C" void __tsan_unaligned_write##bytes(void* at) {                                       \
    emulated::access(uintptr_t(at), bytes, true);                                                 \
  }                                                                                               \
  extern "C" void __tsan_volatile_read##bytes(void* at) { emulated::note_load(at, false); }       \
  extern "C" void __tsan_volatile_write##bytes(void* at) {                                        \
    emulated::note_store(at, false, false);                                                       \
  }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
extern "C" void __tsan_read_range(void* at, size_t n) { emulated::access(uintptr_t(at), n, false); }
extern "C" void __tsan_write_range(void* at, size_t n) { emulated::access(uintptr_t(at), n, true); }
extern "C" void __tsan_init() {}

// What they order is noted by the header.
#define ATOMICS(bits)                                                                             \
  extern "C" uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at, int) {  \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                               \
  extern "C" int __tsan_atomic##bits##_compare_exchange_strong(                                   \
      volatile uint##bits##_t* at, uint##bits##_t* old, uint##bits##_t next, int, int) {          \
    return __atomic_compare_exchange_n(at, old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

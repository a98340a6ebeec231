// Runs a grid of CUDA threads as fibers of one host thread, in an order that a seed decides.
//
// A fiber runs until it waits; what it waits for is resolved when every other fiber that could end
// the wait has run. Blocks of an ordinary launch run one after another, those of a cooperative one
// side by side. Where nobody can go on, the launch ends with an error that says who waits where.
//
// Environment, read at every launch:
//   EMULATED_CUDA_ORDER     0: lanes, warps and blocks forward; 1: backward; else a seed
//   EMULATED_CUDA_RESIDENT  most blocks that a cooperative launch may have (no bound if 0)
//   EMULATED_CUDA_WITHOUT   the line of a __syncthreads that is passed by, or -1 for the grid's
//   EMULATED_CUDA_SECONDS   a launch that takes longer ends with an error (60)
#include "include/threads.h"
#include "races.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace emulated {

Place* here = nullptr;
Dim grid_size, block_size;

namespace {

constexpr unsigned kWarp = 32, kMostThreads = 1024;
// Of an SM since Hopper, less what the system keeps.
constexpr size_t kMostShared = 227 << 10;
constexpr size_t kStackBytes = 64 << 10;
// Reads as a huge float, a NaN of half precision and a large integer.
constexpr char kPoison = 0x7f;
// So many rounds in a row in which all that ran was threads that spin: nobody will end it.
constexpr int kFruitless = 2000;
constexpr auto kTick = std::chrono::milliseconds(20);

struct Block;

struct Fiber : Place {
  Block* home = nullptr;
  State state = READY;
  bool started = false;
  bool spun = false;  // before it became ready
  bool orders = false;  // whether what it waits for is __syncwarp
  unsigned mask = 0;
  int source = 0;  // the lane that a shuffle reads
  jmp_buf at;
};

struct Shared {
  std::unique_ptr<char[]> memory;
  size_t bytes = 0;
  explicit Shared(size_t wanted) : memory(new char[wanted + 128]), bytes(wanted) {
    memset(memory.get(), kPoison, wanted + 128);
    races::forget(memory.get(), wanted + 128);
  }
  void* begin() const { return (void*)((uintptr_t(memory.get()) + 127) & ~uintptr_t(127)); }
};

struct Block {
  std::vector<Fiber> fibers;
  std::map<int, Shared> sites;
  Shared dynamic;
  size_t shared_bytes;
  char* stacks;
  Block(const Launch& how, unsigned number, char* stacks);
};

// Of the launch that runs; one at a time.
std::mutex one_launch;
Fiber* running = nullptr;
jmp_buf scheduler;
void (*kernel)(void*);
void* arguments;
std::string error;
unsigned order_seed, random_state;
int passed_by;
// Whether the host thread is in code of the kernel, where it may be preempted.
volatile sig_atomic_t in_kernel = 0;
std::atomic<uint64_t> switches{0};
std::atomic<bool> too_late{false};

Block::Block(const Launch& how, unsigned number, char* stacks)
    : fibers(size_t(how.block.x) * how.block.y * how.block.z),
      dynamic(how.dynamic_bytes),
      shared_bytes(how.dynamic_bytes),
      stacks(stacks) {
  const Dim &grid = how.grid, &size = how.block;
  for (unsigned i = 0; i < fibers.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.block = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    fiber.thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    fiber.number = i;
    fiber.block_number = number;
    fiber.home = this;
  }
}

unsigned next_random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  return random_state ^= random_state << 5;
}

// 0 to count - 1 in the order of the launch.
void make_order(std::vector<unsigned>& order, unsigned count) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0);
  if (order_seed == 1) std::reverse(order.begin(), order.end());
  if (order_seed > 1)
    for (unsigned i = count; i > 1; --i) std::swap(order[i - 1], order[next_random() % i]);
}

void fiber_main() {
  in_kernel = 1;
  kernel(arguments);
  in_kernel = 0;
  running->state = DONE;
  _longjmp(scheduler, 1);
}

__attribute__((noinline)) void resume(Fiber& fiber) {
  here = running = &fiber;
  switches.fetch_add(1, std::memory_order_relaxed);
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.at, 1);
  fiber.started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.home->stacks + fiber.number * kStackBytes;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, fiber_main, 0);
  setcontext(&context);
}

void preempt(int) {
  if (in_kernel && !races::busy) wait(PREEMPTED, 0);
}

// The running thread ends here, and with it the launch.
[[noreturn]] void stop(const std::string& text) {
  in_kernel = 0;
  if (error.empty()) error = text;
  running->state = DONE;
  _longjmp(scheduler, 1);
}

std::string at_line(int line) { return line ? " (line " + std::to_string(line) + ")" : ""; }

std::string last_at(int line) {
  return line ? ", last at line " + std::to_string(line) + "," : "";
}

void bad_address(int signal) {
  if (in_kernel)
    stop("thread " + std::to_string(running->number) + " of block " +
         std::to_string(running->block_number) + last_at(running->line) +
         (signal == SIGILL ? " uses an address that is not aligned"
                           : " uses an address that is not there"));
  ::signal(signal, SIG_DFL);
}

// The lanes of a warp that wait in `state` at the same place as `fiber`.
unsigned together(const Fiber* lanes, unsigned count, const Fiber& fiber) {
  unsigned found = 0;
  for (unsigned i = 0; i < count; ++i)
    if (lanes[i].state == fiber.state && lanes[i].line == fiber.line && lanes[i].mask == fiber.mask)
      found |= 1u << i;
  return found;
}

// Ends one collective of a warp, all of whose lanes wait; whether there was one to end.
bool resolve_warp(Fiber* lanes, unsigned count) {
  unsigned live = 0;
  for (unsigned i = 0; i < count; ++i) live |= unsigned(lanes[i].state != DONE) << i;
  for (unsigned first = 0; first < count; ++first) {
    const State state = lanes[first].state;
    if (state != AT_ACTIVE_MASK && state != AT_SHUFFLE) continue;
    const unsigned found = together(lanes, count, lanes[first]), wanted = lanes[first].mask & live;
    if (state == AT_SHUFFLE && (found & wanted) != wanted) continue;
    uint64_t brought[kWarp];
    for (unsigned i = 0; i < kWarp; ++i) {
      memset(&brought[i], kPoison, sizeof(uint64_t));
      if (found >> i & 1) brought[i] = lanes[i].value;
    }
    if (lanes[first].orders) races::warp_barrier(lanes[0].block_number, lanes[0].number / kWarp);
    for (unsigned i = 0; i < count; ++i) {
      if (!(found >> i & 1)) continue;
      lanes[i].value = state == AT_ACTIVE_MASK ? found : brought[lanes[i].source];
      lanes[i].state = READY;
    }
    return true;
  }
  return false;
}

// Runs the lanes of a warp until each waits for somebody else; whether more than spinning was done.
bool run_warp(Fiber* lanes, unsigned count) {
  static std::vector<unsigned> order;
  bool any = false;
  do {
    make_order(order, count);
    for (unsigned i : order) {
      if (lanes[i].state != READY) continue;
      resume(lanes[i]);
      if (too_late || !error.empty()) return false;
      any |= lanes[i].state != SPINNING || !lanes[i].spun;
      lanes[i].spun = false;
    }
  } while (resolve_warp(lanes, count) && (any = true));
  return any;
}

unsigned count_in(const Block& block, State state) {
  return std::count_if(block.fibers.begin(), block.fibers.end(),
                       [=](const Fiber& fiber) { return fiber.state == state; });
}

void release(Block& block, State state) {
  for (Fiber& fiber : block.fibers)
    if (fiber.state == state) fiber.state = READY;
}

// Ends a __syncthreads that all threads have come to; whether there was one.
bool resolve_block(Block& block) {
  const unsigned waiting = count_in(block, AT_BARRIER);
  if (!waiting || waiting + count_in(block, DONE) < block.fibers.size()) return false;
  int line = 0;
  for (const Fiber& fiber : block.fibers) {
    if (fiber.state != AT_BARRIER) continue;
    if (line && line != fiber.line)
      error = "threads of one block wait at two __syncthreads" + at_line(line) + " and" +
              at_line(fiber.line);
    line = fiber.line;
  }
  release(block, AT_BARRIER);
  races::block_barrier(block.fibers[0].block_number);
  return true;
}

// Runs a block until nobody in it can go on without others; whether more than spinning was done.
bool run_block(Block& block) {
  std::vector<unsigned> order;
  const unsigned size = block.fibers.size();
  bool any = false;
  do {
    make_order(order, (size + kWarp - 1) / kWarp);
    for (unsigned warp : order) {
      Fiber* lanes = &block.fibers[warp * kWarp];
      any |= run_warp(lanes, std::min(kWarp, size - warp * kWarp));
      if (too_late || !error.empty()) return false;
    }
  } while (resolve_block(block) && error.empty() && (any = true));
  return any;
}

using Blocks = std::vector<std::unique_ptr<Block>>;

// Ends a barrier of the grid that all threads have come to; whether there was one.
bool resolve_grid(Blocks& blocks) {
  unsigned waiting = 0;
  for (const auto& block : blocks) {
    const unsigned here = count_in(*block, AT_GRID_BARRIER);
    if (here + count_in(*block, DONE) < block->fibers.size()) return false;
    waiting += here;
  }
  for (const auto& block : blocks) release(*block, AT_GRID_BARRIER);
  if (waiting) races::grid_barrier();
  return waiting > 0;
}

// Who waits where, for the first blocks of which somebody does.
std::string who_waits(const Blocks& blocks) {
  static const char* const kWhere[] = {"can run", "at __syncthreads", "at the grid's barrier",
                                       "at __activemask", "at a warp's shuffle or __syncwarp",
                                       "in a loop that waits", "in a loop without __nanosleep",
                                       "done"};
  std::string text;
  int blocks_told = 0;
  for (const auto& block : blocks) {
    std::map<std::pair<int, int>, int> found;
    for (const Fiber& fiber : block->fibers) ++found[{fiber.state, fiber.line}];
    if (found.size() == 1 && found.begin()->first.first == DONE) continue;
    if (++blocks_told > 3) return text + "; and others";
    const Dim& at = block->fibers[0].block;
    text += std::string(text.empty() ? "" : "; ") + "block (" + std::to_string(at.x) + ", " +
            std::to_string(at.y) + ", " + std::to_string(at.z) + "):";
    const char* comma = " ";
    for (const auto& [place, count] : found) {
      text += comma + std::to_string(count) + " " + kWhere[place.first] +
              (place.first == DONE ? "" : at_line(place.second));
      comma = ", ";
    }
  }
  return text;
}

// Runs blocks side by side until all threads are done, or an error is set.
void run_together(Blocks& blocks) {
  std::vector<unsigned> order;
  for (int fruitless = 0; error.empty();) {
    bool any = false;
    make_order(order, blocks.size());
    for (unsigned i : order) {
      any |= run_block(*blocks[i]);
      if (!error.empty()) return;
      if (too_late) {
        error = "the kernel did not end in time: " + who_waits(blocks);
        return;
      }
    }
    any |= resolve_grid(blocks);
    unsigned done = 0, spinning = 0, all = 0, preempted = 0;
    for (const auto& block : blocks) {
      all += block->fibers.size();
      done += count_in(*block, DONE);
      spinning += count_in(*block, SPINNING);
      preempted += count_in(*block, PREEMPTED);
    }
    if (done == all) return;
    fruitless = any || preempted ? 0 : fruitless + 1;
    if (!any && (!(spinning + preempted) || fruitless > kFruitless)) {
      error = "deadlock: " + who_waits(blocks);
      return;
    }
    for (const auto& block : blocks)
      for (Fiber& fiber : block->fibers)
        if (fiber.state == SPINNING || fiber.state == PREEMPTED) {
          fiber.spun = fiber.state == SPINNING;
          fiber.state = READY;
        }
  }
}

long setting(const char* name, long usual) {
  const char* text = getenv(name);
  return text && *text ? atol(text) : usual;
}

// Preempts a thread that computes for a whole tick, and ends a launch that takes too long. A tick is
// time of the processor: on a busy machine a thread of CUDA that does not run is no thread that spins.
class Watch {
 public:
  explicit Watch(double seconds)
      : kernel_thread_(pthread_self()), seconds_(seconds), thread_([this] { run(); }) {}
  ~Watch() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock<std::mutex> lock(mutex_);
    uint64_t seen = switches;
    auto used = computed();
    while (!wake_.wait_for(lock, kTick, [this] { return ended_; })) {
      if (std::chrono::steady_clock::now() - start > std::chrono::duration<double>(seconds_))
        too_late = true;
      if (seen == switches && computed() - used < kTick) continue;
      if (seen == switches) pthread_kill(kernel_thread_, SIGURG);
      seen = switches;
      used = computed();
    }
  }
  std::chrono::nanoseconds computed() const {
    clockid_t clock;
    timespec now;
    if (pthread_getcpuclockid(kernel_thread_, &clock) || clock_gettime(clock, &now)) return {};
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  pthread_t kernel_thread_;
  double seconds_;
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

// What a signal does during a launch.
class Handler {
 public:
  Handler(int signal, void (*act)(int)) : signal_(signal) {
    struct sigaction action = {};
    action.sa_handler = act;
    action.sa_flags = SA_NODEFER | SA_RESTART;
    sigaction(signal, &action, &before_);
  }
  ~Handler() { sigaction(signal_, &before_, nullptr); }

 private:
  int signal_;
  struct sigaction before_;
};

std::string obstacle(const Launch& how) {
  const uint64_t threads = uint64_t(how.block.x) * how.block.y * how.block.z;
  const uint64_t blocks = uint64_t(how.grid.x) * how.grid.y * how.grid.z;
  const long resident = setting("EMULATED_CUDA_RESIDENT", 0);
  if (!threads || !blocks) return "a launch without threads";
  if (threads > kMostThreads)
    return std::to_string(threads) + " threads in a block: at most " + std::to_string(kMostThreads);
  if (how.dynamic_bytes > kMostShared)
    return std::to_string(how.dynamic_bytes) + " bytes of dynamic shared memory: at most " +
           std::to_string(kMostShared);
  if (how.cooperative && resident && blocks > uint64_t(resident))
    return "too many blocks in cooperative launch: " + std::to_string(blocks) + " of at most " +
           std::to_string(resident);
  return "";
}

void run_grid(const Launch& how) {
  const unsigned blocks = how.grid.x * how.grid.y * how.grid.z;
  const unsigned threads = how.block.x * how.block.y * how.block.z;
  const size_t stack = threads * kStackBytes, all = stack * (how.cooperative ? blocks : 1);
  char* stacks = (char*)mmap(nullptr, all, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) {
    error = "no memory for " + std::to_string(all) + " bytes of stacks";
    return;
  }
  races::begin(blocks, stacks, all);
  std::vector<unsigned> order;
  make_order(order, blocks);
  if (how.cooperative) {
    Blocks together;
    for (unsigned i = 0; i < blocks; ++i)
      together.push_back(std::make_unique<Block>(how, i, stacks + i * stack));
    run_together(together);
  } else {
    for (unsigned i : order) {
      Blocks alone;
      alone.push_back(std::make_unique<Block>(how, i, stacks));
      run_together(alone);
      if (!error.empty()) break;
    }
  }
  races::end();
  munmap(stacks, all);
}

}  // namespace

void fail(const char* text) {
  races::busy = 0;
  stop(text);
}

void wait(State state, int line, unsigned mask) {
  if (passed_by && state == AT_BARRIER && line == passed_by) return;
  if (passed_by == -1 && state == AT_GRID_BARRIER) return;
  in_kernel = 0;
  Fiber* me = running;
  me->state = state;
  me->line = line;
  me->mask = mask;
  if (!_setjmp(me->at)) _longjmp(scheduler, 1);
  in_kernel = 1;
}

uint64_t exchange(int line, unsigned mask, uint64_t value, int source) {
  running->value = value;
  running->source = source;
  wait(AT_SHUFFLE, line, mask);
  return running->value;
}

void trap(int line) { stop("the kernel trapped" + at_line(line)); }

void warp_barrier(int line, unsigned mask) {
  running->orders = true;
  exchange(line, mask, 0, 0);
  running->orders = false;
}

void put_off(const Copy& copy) {
  if (here->num_copies == kMostCopies) fail("a thread has more copies under way than are emulated");
  here->copies[here->num_copies++] = copy;
}

int take_copies(Copy* copies) {
  const int count = here->num_copies;
  std::copy(here->copies, here->copies + count, copies);
  here->num_copies = 0;
  return count;
}

void* static_shared(int site, size_t bytes) {
  in_kernel = 0;
  Block& block = *running->home;
  auto found = block.sites.find(site);
  if (found == block.sites.end()) {
    found = block.sites.emplace(site, Shared(bytes)).first;
    block.shared_bytes += bytes;
    if (block.shared_bytes > kMostShared)
      stop(std::to_string(block.shared_bytes) + " bytes of shared memory: at most " +
           std::to_string(kMostShared));
  }
  in_kernel = 1;
  return found->second.begin();
}

void* dynamic_shared() { return running->home->dynamic.begin(); }

int64_t clock_ticks() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

const char* launch(void (*body)(void*), void* given, const Launch& how) {
  std::lock_guard<std::mutex> lock(one_launch);
  kernel = body;
  arguments = given;
  grid_size = how.grid;
  block_size = how.block;
  too_late = false;
  order_seed = unsigned(setting("EMULATED_CUDA_ORDER", 0));
  random_state = order_seed * 2654435761u | 1;
  passed_by = int(setting("EMULATED_CUDA_WITHOUT", 0));
  error = obstacle(how);
  if (error.empty()) {
    const Handler preempting(SIGURG, preempt), no_memory(SIGSEGV, bad_address),
        no_device(SIGBUS, bad_address), not_aligned(SIGILL, bad_address);
    Watch watch(setting("EMULATED_CUDA_SECONDS", 60));
    run_grid(how);
  }
  if (!error.empty()) error = "emulated CUDA: " + error;
  return error.empty() ? nullptr : error.c_str();
}

}  // namespace emulated

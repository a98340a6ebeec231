// CUDA C for a C++ compiler: what generated sources use, with threads that are fibers of one host
// thread. The scheduler is in emulated.cpp; this header is compiled with every kernel and is small.
#pragma once
#include <chrono>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "threads.h"

namespace emulated {

template <class T>
T& shared(int site) {
  return *static_cast<T*>(static_shared(site, sizeof(T)));
}

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8, "a warp exchanges at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

inline int lane() { return here->number & 31; }
template <class T>
T shuffle(int line, unsigned mask, T value, int source, bool inside) {
  uint64_t other = exchange(line, mask, to_bits(value), source & 31);
  return inside ? from_bits<T>(other) : value;
}
template <class T>
T shuffle_down(int line, unsigned mask, T value, unsigned delta, int width = 32) {
  int source = lane() + int(delta);
  return shuffle(line, mask, value, source, source < (lane() & ~(width - 1)) + width);
}
template <class T>
T shuffle_up(int line, unsigned mask, T value, unsigned delta, int width = 32) {
  int source = lane() - int(delta);
  return shuffle(line, mask, value, source, source >= (lane() & ~(width - 1)));
}
template <class T>
T shuffle_xor(int line, unsigned mask, T value, int bits, int width = 32) {
  int source = lane() ^ bits;
  return shuffle(line, mask, value, source, source < (lane() & ~(width - 1)) + width);
}
template <class T>
T shuffle_from(int line, unsigned mask, T value, int index, int width = 32) {
  return shuffle(line, mask, value, (lane() & ~(width - 1)) | (index & (width - 1)), true);
}
inline unsigned active_mask(int line) {
  wait(AT_ACTIVE_MASK, line);
  return unsigned(here->value);
}

// A load that a loop may wait for: others run before it.
template <class T>
T load(const T* at, int line, bool acquires) {
  wait(SPINNING, line);
  note_load(at, acquires);
  T value;
  __atomic_load(at, &value, __ATOMIC_SEQ_CST);
  return value;
}
// Sets `at` to what `update` makes of it; returns what was there.
template <class T, class U>
T change(T* at, bool acquires, bool releases, bool keeps, const U& update) {
  if (keeps) note_load(at, acquires);
  note_store(at, releases, keeps);
  T old, next;
  __atomic_load(at, &old, __ATOMIC_SEQ_CST);
  do next = update(old);
  while (!__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
template <class T>
void store(T* at, T value, bool releases) {
  change(at, false, releases, false, [=](T) { return value; });
}
template <class T, class V>
T add(T* at, V value, bool acquires, bool releases) {
  return change(at, acquires, releases, true, [=](T old) { return T(old + T(value)); });
}

// Copies of eight bytes that go on while their thread does something else: what was there is gone from
// the call on, and what is copied is read as late as it may be. In between there are zeros, which as
// an address or a number of anything do the least harm until the race is found.
inline void copy_later(void* to, const void* from) {
  *static_cast<int64_t*>(to) = 0;
  put_off({static_cast<int64_t*>(to), static_cast<const int64_t*>(from)});
}
inline void make_copies() {
  Copy copies[kMostCopies];
  const int count = take_copies(copies);
  for (int k = 0; k < count; ++k) *copies[k].to = *copies[k].from;
}

inline uint64_t nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace emulated

// ---- what CUDA C writes ------------------------------------------------------------------------
#define RAMMER_EMULATED 1
#define __global__ static
#define __device__ static
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __constant__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __builtin_assume(condition)
#define threadIdx (emulated::here->thread)
#define blockIdx (emulated::here->block)
#define blockDim (emulated::block_size)
#define gridDim (emulated::grid_size)
#define warpSize 32
#define __syncthreads() emulated::wait(emulated::AT_BARRIER, __LINE__)
#define __syncwarp(...) emulated::warp_barrier(__LINE__, emulated::mask_or_all(__VA_ARGS__))
#define __activemask() emulated::active_mask(__LINE__)
#define __shfl_down_sync(...) emulated::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulated::shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulated::shuffle_xor(__LINE__, __VA_ARGS__)
#define __shfl_sync(...) emulated::shuffle_from(__LINE__, __VA_ARGS__)
#define __nanosleep(ns) emulated::wait(emulated::SPINNING, __LINE__)
#define __threadfence() emulated::fence()
#define __threadfence_block() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define __threadfence_system() emulated::fence()
#define __cvta_generic_to_shared(address) ((uint64_t)(address))
#define __cvta_global_to_generic(address) ((void*)(address))
#define __trap() emulated::trap(__LINE__)
#define __CUDA_ARCH__ 900
#define clock64() emulated::clock_ticks()

namespace emulated {
inline unsigned mask_or_all(unsigned mask = 0xffffffffu) { return mask; }
}  // namespace emulated

#define EMULATED_VECTORS(T, name)                                                             \
  struct name##1 { T x; };                                                                    \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                          \
  struct name##3 { T x, y, z; };                                                              \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; };          \
  inline name##1 make_##name##1(T x) { return {x}; }                                          \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                  \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                          \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
EMULATED_VECTORS(signed char, char)
EMULATED_VECTORS(unsigned char, uchar)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(unsigned short, ushort)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(unsigned, uint)
EMULATED_VECTORS(long, long)
EMULATED_VECTORS(unsigned long, ulong)
EMULATED_VECTORS(long long, longlong)
EMULATED_VECTORS(unsigned long long, ulonglong)

inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
#define EMULATED_MIN_MAX(T)                          \
  inline T max(T a, T b) { return a > b ? a : b; }   \
  inline T min(T a, T b) { return a < b ? a : b; }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)

inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __int_as_float(int x) { return emulated::from_bits<float>(emulated::to_bits(x)); }
inline int __float_as_int(float x) { return emulated::from_bits<int>(emulated::to_bits(x)); }
template <class T>
T __ldg(const T* at) {
  return *at;
}

#define EMULATED_ATOMIC(name, update)                                                      \
  template <class T, class V>                                                              \
  T name(T* at, V given) {                                                                 \
    const T value = T(given);                                                              \
    return emulated::change(at, false, false, true, [=](T old) { return T(update); });     \
  }
EMULATED_ATOMIC(atomicAdd, old + value)
EMULATED_ATOMIC(atomicSub, old - value)
EMULATED_ATOMIC(atomicMax, (old > value ? old : value))
EMULATED_ATOMIC(atomicMin, (old < value ? old : value))
EMULATED_ATOMIC(atomicOr, old | value)
EMULATED_ATOMIC(atomicAnd, old & value)
EMULATED_ATOMIC(atomicExch, value)
EMULATED_ATOMIC(atomicInc, (old >= value ? T(0) : T(old + 1)))
template <class T, class C, class V>
T atomicCAS(T* at, C compare, V given) {
  return emulated::change(at, false, false, true,
                          [=](T old) { return old == T(compare) ? T(given) : old; });
}

// ---- how TVM's host code calls a kernel ---------------------------------------------------------
struct EmulatedAny {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t as_int;
    double as_float;
    void* as_pointer;
  };
};
extern "C" void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);

namespace emulated {

constexpr int kNone = 0, kFloat = 3;

template <class T>
T argument(const EmulatedAny& any) {
  if constexpr (std::is_pointer_v<T>) return static_cast<T>(any.as_pointer);
  else return any.type_index == kFloat ? T(any.as_float) : T(any.as_int);
}

template <class... A, size_t... I>
const char* call(void (*kernel)(A...), const EmulatedAny* given, std::index_sequence<I...>,
                 const Launch& how) {
  auto thread = [=] { kernel(argument<A>(given[I])...); };
  return launch([](void* each) { (*static_cast<decltype(thread)*>(each))(); }, &thread, how);
}

// `tags` says what each argument after the kernel's own is: 0 to 2 the grid's x, y and z, 3 to 5
// the block's, 6 the bytes of dynamic shared memory.
template <class... A>
int enter(void (*kernel)(A...), const EmulatedAny* given, int count, EmulatedAny* result,
          std::initializer_list<int> tags, bool cooperative) {
  constexpr int own = sizeof...(A);
  const char* error = "the kernel was called with another number of arguments than it has";
  if (count == own + int(tags.size())) {
    unsigned sizes[7] = {1, 1, 1, 1, 1, 1, 0};
    const EmulatedAny* next = given + own;
    for (int tag : tags) sizes[tag] = unsigned((next++)->as_int);
    Launch how{{sizes[0], sizes[1], sizes[2]}, {sizes[3], sizes[4], sizes[5]}, sizes[6], cooperative};
    error = call(kernel, given, std::index_sequence_for<A...>{}, how);
  }
  if (error) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", error);
    return -1;
  }
  result->type_index = kNone;
  result->as_int = 0;
  return 0;
}

// ---- how a driver calls a kernel ----------------------------------------------------------------
template <auto kernel>
struct Driven;
template <class... A, void (*kernel)(A...)>
struct Driven<kernel> {
  static constexpr unsigned sizes[] = {sizeof(A)..., 0};
  template <size_t... I>
  static const char* spread(void** given, const Launch& how, std::index_sequence<I...>) {
    auto thread = [=] { kernel(*static_cast<A*>(given[I])...); };
    return launch([](void* each) { (*static_cast<decltype(thread)*>(each))(); }, &thread, how);
  }
  static const char* run(void** given, const Launch& how) {
    return spread(given, how, std::index_sequence_for<A...>{});
  }
  static constexpr Entry entry = {sizeof...(A), sizes, run};
};

}  // namespace emulated

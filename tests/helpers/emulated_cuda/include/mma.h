// Tensor cores as CUDA's header has them: fragments of 16 x 16 elements that a warp works on.
//
// Which lanes hold an element nobody may know. Here a lane holds a patch of 4 x 2 sums, the rows of
// A and the columns of B that they are made of. All 32 lanes must come to every operation, and none
// of them orders accesses to memory.
#pragma once
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

constexpr int kSide = 16, kRows = 4, kColumns = 2;
inline int first_row() { return emulated::lane() / (kSide / kColumns) * kRows; }
inline int first_column() { return emulated::lane() % (kSide / kColumns) * kColumns; }

template <class Use>
struct Held;  // of a fragment, by one lane
template <>
struct Held<matrix_a> {
  static constexpr int rows = kRows, columns = kSide;
  static int row() { return first_row(); }
  static int column() { return 0; }
};
template <>
struct Held<matrix_b> {
  static constexpr int rows = kSide, columns = kColumns;
  static int row() { return 0; }
  static int column() { return first_column(); }
};
template <>
struct Held<accumulator> {
  static constexpr int rows = kRows, columns = kColumns;
  static int row() { return first_row(); }
  static int column() { return first_column(); }
};

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static_assert(m == kSide && n == kSide && k == kSide, "fragments are 16 x 16 x 16 here");
  T x[Held<Use>::rows][Held<Use>::columns];
};

inline void meet(int line) {
  // Where one is missing, whoever is before it finds nobody behind.
  if (emulated::exchange(line, 0xffffffffu, 1, (emulated::lane() + 1) % 32) != 1)
    emulated::fail("a part of a warp uses tensor cores");
}

template <class T>
void check(const T* at, unsigned pitch) {
  if (uintptr_t(at) % 32 || pitch * sizeof(T) % 16)
    emulated::fail("a fragment lies where it is not aligned: its rows to 16 bytes, itself to 32");
}

// Calls `each(element of the fragment, element in memory)` for what this lane holds.
template <class Use, class Fragment, class T, class Each>
void visit(Fragment& held, T* at, unsigned pitch, bool by_rows, const Each& each) {
  check(at, pitch);
  for (int i = 0; i < Held<Use>::rows; ++i)
    for (int j = 0; j < Held<Use>::columns; ++j) {
      const int row = Held<Use>::row() + i, column = Held<Use>::column() + j;
      each(held.x[i][j], at[by_rows ? row * pitch + column : column * pitch + row]);
    }
}

template <class Use, int m, int n, int k, class T, class Layout>
void load_at(int line, fragment<Use, m, n, k, T, Layout>& to, const T* at, unsigned pitch) {
  meet(line);
  const bool by_rows = std::is_same_v<Layout, row_major>;
  visit<Use>(to, at, pitch, by_rows, [](T& held, const T& element) { held = element; });
}
template <int m, int n, int k, class T>
void load_at(int line, fragment<accumulator, m, n, k, T>& to, const T* at, unsigned pitch,
             layout_t layout) {
  meet(line);
  visit<accumulator>(to, at, pitch, layout == mem_row_major,
                     [](T& held, const T& element) { held = element; });
}
template <int m, int n, int k, class T>
void store_at(int line, T* at, const fragment<accumulator, m, n, k, T>& from, unsigned pitch,
              layout_t layout) {
  meet(line);
  visit<accumulator>(from, at, pitch, layout == mem_row_major,
                     [](const T& held, T& element) { element = held; });
}
template <class Fragment, class V>
void fill_at(int line, Fragment& to, V value) {
  meet(line);
  for (auto& row : to.x)
    for (auto& element : row) element = value;
}
template <int m, int n, int k, class T, class A, class B, class S>
void mma_at(int line, fragment<accumulator, m, n, k, S>& to,
            const fragment<matrix_a, m, n, k, T, A>& a, const fragment<matrix_b, m, n, k, T, B>& b,
            const fragment<accumulator, m, n, k, S>& sums) {
  meet(line);
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) {
      float sum = sums.x[i][j];
      for (int p = 0; p < kSide; ++p) sum += float(a.x[i][p]) * float(b.x[p][j]);
      to.x[i][j] = S(sum);
    }
}

}  // namespace nvcuda::wmma

#define load_matrix_sync(...) load_at(__LINE__, __VA_ARGS__)
#define store_matrix_sync(...) store_at(__LINE__, __VA_ARGS__)
#define fill_fragment(...) fill_at(__LINE__, __VA_ARGS__)
#define mma_sync(...) mma_at(__LINE__, __VA_ARGS__)

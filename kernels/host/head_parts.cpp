// SPDX-License-Identifier: Apache-2.0
// Heads in parts: copies of columns, and sums of kv heads that several parts have. Threads split the rows.
#include "kernels/host/head_parts.hpp"

#include <cstring>

#include "kernels/host/parallel.hpp"

namespace tessera::kernels::host {
namespace {

/// Columns that a part has next to each other: `count` from `part` on, in the matrix from `row` on.
struct HeadColumns {
  std::int64_t row, part, count;
};
/// q, k and v of a part.
void columns_of_part(const HeadParts& of, std::int64_t part, HeadColumns (&columns)[3]) {
  const std::int64_t d = of.head_dim, q = of.part_heads() * d, kv = of.part_kv_heads() * d;
  const std::int64_t first_kv = part * of.kv_heads / of.parts * d, keys = of.heads * d;
  columns[0] = {part * q, 0, q};
  columns[1] = {keys + first_kv, q, kv};
  columns[2] = {keys + of.kv_heads * d + first_kv, q + kv, kv};
}

}  // namespace

void split_heads(const HeadPartsArgs& args) {
  const HeadParts& of = args.of;
  const std::int64_t rows = args.rows.shape[0];
  const auto element = static_cast<std::int64_t>(size_of(args.rows.dtype));
  const auto* const from = static_cast<const std::byte*>(args.rows.data);
  auto* const to = static_cast<std::byte*>(args.parts.data);
  parallel_ranges(rows, 8, [&](std::int64_t begin, std::int64_t end) {
    HeadColumns columns[3];
    for (std::int64_t part = 0; part < of.parts; ++part) {
      columns_of_part(of, part, columns);
      for (std::int64_t row = begin; row < end; ++row)
        for (const HeadColumns& c : columns)
          std::memcpy(to + ((part * rows + row) * of.part_width() + c.part) * element,
                      from + (row * of.width() + c.row) * element, static_cast<std::size_t>(c.count * element));
    }
  });
}

void merge_heads(const HeadPartsArgs& args) {
  const HeadParts& of = args.of;
  const std::int64_t rows = args.rows.shape[0], copies = of.copies();
  dispatch_dtype(args.rows.dtype, [&]<class T>(T) {
    T* const to = args.rows.as<T>();
    const T* const from = args.parts.as<T>();
    parallel_ranges(rows, 8, [&](std::int64_t begin, std::int64_t end) {
      HeadColumns columns[3];
      for (std::int64_t part = 0; part < of.parts; ++part) {
        columns_of_part(of, part, columns);
        for (std::int64_t row = begin; row < end; ++row)
          for (const HeadColumns& c : columns) {
            const T* const x = from + (part * rows + row) * of.part_width() + c.part;
            T* const y = to + row * of.width() + c.row;
            const bool shared = &c != columns && copies > 1;
            if (shared && part % copies != 0) continue;  // with the first part that has the head
            for (std::int64_t j = 0; j < c.count; ++j) {
              Acc<T> sum = x[j];
              for (std::int64_t k = 1; shared && k < copies; ++k) sum += x[k * rows * of.part_width() + j];
              y[j] = static_cast<T>(sum);
            }
          }
      }
    });
  });
}

}  // namespace tessera::kernels::host

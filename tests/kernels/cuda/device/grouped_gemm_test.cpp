// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM on a device against the host: odd sizes and whole vectors, empty groups, tiles with a remainder, columns
// of wider matrices, every form and dtype; two runs.
#include "kernels/grouped_gemm.hpp"

#include "host_device_tensor.hpp"

namespace tessera::kernels {
namespace {

template <class T>
class CudaGroupedGemm : public testing::Test {};
TYPED_TEST_SUITE(CudaGroupedGemm, ElementTypes);

struct Case {
  std::vector<std::int32_t> offsets;
  std::int64_t in, out;
};
std::vector<Case> grouped_cases() {
  std::vector<Case> cases{{{0, 3}, 5, 7},
                          {{0, 0, 1, 130, 130, 133}, 64, 128},
                          {{0, 0, 0, 300}, 200, 136},
                          {{0, 128, 256, 257, 257}, 129, 259}};
  if (!small_problems()) cases.push_back({{0, 17, 400, 401, 401, 401, 700}, 1032, 264});
  return cases;
}

/// A matrix per group, `gap` elements apart.
template <class T>
struct List {
  List(std::int64_t groups, const Shape& shape, std::int64_t gap, std::uint64_t seed)
      : all(normals_of<T>(groups * (shape.numel() + gap), seed), Shape{groups * (shape.numel() + gap)}) {
    for (std::int64_t e = 0; e < groups; ++e) {
      const std::int64_t first = e * (shape.numel() + gap);
      host.emplace_back(all.host().data() + first, shape);
      device.emplace_back(all.data() + first, shape, test_device());
    }
  }
  HostDeviceTensor<T> all;
  std::vector<TensorView> host, device;
};

/// Runs on both, compares, and runs on the device again.
template <class T, class Run>
void compare(HostDeviceTensor<T>& result, bool add, const Run& run) {
  DeviceStream stream;
  run(false, host_stream);
  run(true, stream.view());
  stream.synchronize();
  EXPECT_LE(device_error(result), tolerance<T>);
  if (add) return;
  const auto first = result.download();
  run(true, stream.view());
  stream.synchronize();
  EXPECT_EQ(bytes_of(result.download()), bytes_of(first));
}

TYPED_TEST(CudaGroupedGemm, RowsTimesMatrices) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  for (const Case& s : grouped_cases())
    for (const bool trans_b : {false, true})
      for (const bool add : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.offsets.back() << " rows, " << s.in << " to " << s.out
                                        << (trans_b ? " bT" : ""));
        const std::int64_t rows = s.offsets.back(), groups = static_cast<std::int64_t>(s.offsets.size()) - 1;
        HostDeviceTensor<std::int32_t> offsets(s.offsets, Shape{groups + 1});
        HostDeviceTensor<T> a(normals_of<T>(rows * s.in, 1), Shape{rows, s.in}),
            c(normals_of<T>(rows * s.out, 2), Shape{rows, s.out});
        List<T> b(groups, trans_b ? Shape{s.out, s.in} : Shape{s.in, s.out}, s.in % 8 == 0 ? 64 : 3, 3);
        compare(c, add, [&](bool device, StreamView stream) {
          grouped_gemm({.offsets = device ? offsets.on_device() : offsets.on_host(),
                        .a = device ? a.on_device() : a.on_host(),
                        .b = {(device ? b.device : b.host).data(), 1},
                        .c = device ? c.on_device() : c.on_host(),
                        .trans_b = trans_b,
                        .alpha = add ? 0.75 : 1,
                        .add = add},
                       stream);
        });
      }
}

/// Columns [first, first + count) of an (R, C) matrix.
template <class T>
TensorView columns_of(HostDeviceTensor<T>& matrix, bool device, std::int64_t first, std::int64_t count) {
  TensorView view = device ? matrix.on_device() : matrix.on_host();
  view.data = static_cast<T*>(view.data) + first;
  view.shape = {view.shape[0], count};
  return view;
}

/// Columns of x and y in wider matrices: where they begin, and the matrices' widths.
struct Margins {
  std::int64_t first = 0, wide_x = 0, wide_y = 0;
};

template <class T>
void expect_columns(const Case& s, const Margins& m) {
  SCOPED_TRACE(testing::Message() << s.in << " to " << s.out << ", from column " << m.first << " of " << m.wide_x
                                  << " and " << m.wide_y);
  const std::int64_t rows = s.offsets.back(), groups = static_cast<std::int64_t>(s.offsets.size()) - 1;
  HostDeviceTensor<std::int32_t> offsets(s.offsets, Shape{groups + 1});
  HostDeviceTensor<T> x(normals_of<T>(rows * m.wide_x, 1), Shape{rows, m.wide_x}),
      y(normals_of<T>(rows * m.wide_y, 2), Shape{rows, m.wide_y});
  List<T> weights(groups, Shape{s.out, s.in}, 64, 3);
  List<float> gradients(groups, Shape{s.out, s.in}, 64, 4);
  const auto groups_at = [&](bool device) { return device ? offsets.on_device() : offsets.on_host(); };
  const auto matrices = [&](bool device) { return GroupMatrices{(device ? weights.device : weights.host).data(), 1}; };
  for (const bool add : {false, true})
    compare(y, add, [&](bool device, StreamView stream) {
      grouped_gemm({.offsets = groups_at(device),
                    .a = columns_of(x, device, m.first, s.in),
                    .b = matrices(device),
                    .c = columns_of(y, device, m.first, s.out),
                    .trans_b = true,
                    .add = add,
                    .stride_a = m.wide_x,
                    .stride_c = m.wide_y},
                   stream);
    });
  // One operand for both below: sums in another order may round an element of 16 bits to its other neighbour, which
  // moves a sum in fp32 by more than the tolerance of fp32.
  y.upload();
  compare(gradients.all, false, [&](bool device, StreamView stream) {
    grouped_gemm_gradient({.offsets = groups_at(device),
                           .a = columns_of(y, device, m.first, s.out),
                           .b = columns_of(x, device, m.first, s.in),
                           .c = {(device ? gradients.device : gradients.host).data(), 1},
                           .stride_a = m.wide_y,
                           .stride_b = m.wide_x},
                          stream);
  });
  compare(x, false, [&](bool device, StreamView stream) {  // the gradient of the input
    grouped_gemm({.offsets = groups_at(device),
                  .a = columns_of(y, device, m.first, s.out),
                  .b = matrices(device),
                  .c = columns_of(x, device, m.first, s.in),
                  .stride_a = m.wide_y,
                  .stride_c = m.wide_x},
                 stream);
  });
}

// Rows are whole vectors; begin at one, but are not whole ones apart; are at odd places; are odd, and two numbers
// apart.
TYPED_TEST(CudaGroupedGemm, ColumnsOfWiderMatrices) {
  TESSERA_NEEDS_DEVICE();
  const Case even{{0, 0, 1, 130, 130, 133}, 64, 128}, odd{{0, 100, 100, 157}, 129, 259};
  expect_columns<TypeParam>(even, {8, 80, 144});
  expect_columns<TypeParam>(even, {8, 75, 139});
  expect_columns<TypeParam>(odd, {3, 135, 265});
  expect_columns<TypeParam>(odd, {8, 146, 276});
}

// Two matrices of each group as one.
TYPED_TEST(CudaGroupedGemm, AdjacentMatricesAsOne) {
  TESSERA_NEEDS_DEVICE();
  using T = TypeParam;
  constexpr std::int64_t in = 72, out = 40, rows = 133;
  HostDeviceTensor<std::int32_t> offsets({0, 0, 130, 133}, Shape{4});
  HostDeviceTensor<T> x(normals_of<T>(rows * in, 1), Shape{rows, in}),
      y(normals_of<T>(rows * 2 * out, 2), Shape{rows, 2 * out});
  List<T> weights(9, Shape{out, in}, 0, 3);  // three a group, of which the first two are multiplied
  compare(y, false, [&](bool device, StreamView stream) {
    grouped_gemm({.offsets = device ? offsets.on_device() : offsets.on_host(),
                  .a = device ? x.on_device() : x.on_host(),
                  .b = {(device ? weights.device : weights.host).data(), 3, 2 * out},
                  .c = device ? y.on_device() : y.on_host(),
                  .trans_b = true,
                  .parts = {.of = GemmParts::Of::n, .count = 2, .sizes = {out, out}}},
                 stream);
  });
}

template <class T, class C>
void expect_gradients(const Case& s, bool add) {
  SCOPED_TRACE(testing::Message() << s.offsets.back() << " rows, " << s.in << " by " << s.out);
  const std::int64_t rows = s.offsets.back(), groups = static_cast<std::int64_t>(s.offsets.size()) - 1;
  HostDeviceTensor<std::int32_t> offsets(s.offsets, Shape{groups + 1});
  HostDeviceTensor<T> a(normals_of<T>(rows * s.in, 1), Shape{rows, s.in}),
      b(normals_of<T>(rows * s.out, 2), Shape{rows, s.out});
  List<C> c(groups, Shape{s.in, s.out}, s.in % 8 == 0 ? 64 : 3, 3);
  compare(c.all, add, [&](bool device, StreamView stream) {
    grouped_gemm_gradient({.offsets = device ? offsets.on_device() : offsets.on_host(),
                           .a = device ? a.on_device() : a.on_host(),
                           .b = device ? b.on_device() : b.on_host(),
                           .c = {(device ? c.device : c.host).data(), 1},
                           .alpha = add ? 0.75 : 1,
                           .add = add},
                          stream);
  });
}

TYPED_TEST(CudaGroupedGemm, GradientsOfMatrices) {
  TESSERA_NEEDS_DEVICE();
  for (const Case& s : grouped_cases())
    for (const bool add : {false, true}) {
      expect_gradients<TypeParam, TypeParam>(s, add);
      expect_gradients<TypeParam, float>(s, add);
    }
}

}  // namespace
}  // namespace tessera::kernels

// SPDX-License-Identifier: Apache-2.0
// The checksum of frozen parameters that a checkpoint leaves out.
#include <algorithm>
#include <map>
#include <tuple>

#include "io/checkpoint/blocks.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/file/crc32c.hpp"
#include "kernels/convert.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

/// Of elements in any memory, as values of `dtype`.
std::uint32_t crc_as(const TensorView& elements, DType dtype) {
  constexpr std::int64_t most = host_staging_bytes / sizeof(float);
  std::vector<std::byte> copied, converted;
  std::uint32_t crc = 0;
  for (std::int64_t done = 0; done < elements.numel(); done += most) {
    const TensorView rows = elements.rows(done, std::min(most, elements.numel() - done));
    copied.resize(rows.nbytes());
    copy_now(rows.device, copied.data(), rows.data, copied.size());
    converted.resize(static_cast<std::size_t>(rows.numel()) * size_of(dtype));
    // A value that `dtype` cannot hold leaves zeros, and the checksum then differs.
    std::ranges::fill(converted, std::byte{0});
    (void)kernels::convert_bytes({copied.data(), rows.dtype, converted.data(), dtype, rows.numel()});
    crc = crc32c(crc, converted);
  }
  return crc;
}

/// Quantized matrices are compared byte by byte.
DType checksum_type(const ParamSpec& param, DType dtype) { return param.quantized ? DType::u8 : dtype; }

}  // namespace

QuantFormat quantization_in(std::span<const ParamSpec> params) {
  for (const ParamSpec& param : params)
    if (param.quantized) return param.quantized.format;
  return QuantFormat::none;
}

BaseModel base_model(World& world, std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                     const TrainingState& state, std::span<const std::string> names, DType dtype) {
  // The parameters one after another, as if they were a file.
  std::map<std::string, std::uint64_t> begin_of;
  for (const std::string& name : names) begin_of[name] = 0;
  std::uint64_t all = 0;
  for (const ParamSpec& param : params)
    if (const auto found = begin_of.find(param.name); found != begin_of.end()) {
      found->second = all;
      all += static_cast<std::uint64_t>(param.whole_shape().numel()) * size_of(checksum_type(param, dtype));
    }
  std::vector<RangeChecksum> checksums;
  for (const StateView& view : state.shards) {
    const std::int64_t first = view.shard * layout.shard_numel(view.unit);
    for (const shard::Segment& s : layout.whole_segments(view.unit, view.shard, view.part)) {
      const ParamSpec& param = params[static_cast<std::size_t>(s.param)];
      const auto found = begin_of.find(param.name);
      if (found == begin_of.end()) continue;
      const DType type = checksum_type(param, dtype);
      checksums.push_back({0, crc_as(view.data[0].rows(s.unit_offset - first, s.length), type),
                           found->second + static_cast<std::uint64_t>(s.param_offset) * size_of(type),
                           static_cast<std::uint64_t>(s.length) * size_of(type)});
    }
  }
  const std::vector<std::string> packed = world.gather(pack_checksums(checksums));
  const std::string crc = world.text_of_rank_0([&] {
    std::vector<RangeChecksum> joined = unpack_checksums(packed);
    const auto key = [](const RangeChecksum& p) { return std::tuple(p.offset, p.bytes, p.crc); };
    std::ranges::sort(joined, {}, key);
    const auto repeated = std::ranges::unique(joined, {}, key);  // replicas
    joined.erase(repeated.begin(), repeated.end());
    std::uint32_t sum = 0;
    std::uint64_t at = 0;
    for (const RangeChecksum& range : joined) {
      if (range.offset != at)
        throw Error(ExitCode::data, "ranks hold different values of the frozen parameters", {},
                    "A computation or a memory has failed: check the nodes");
      sum = crc32c_combine(sum, range.crc, range.bytes);
      at += range.bytes;
    }
    TESSERA_ASSERT(at == all, "%lu bytes of frozen parameters, not %lu", at, all);
    return std::to_string(sum);
  });
  return {dtype, static_cast<std::uint32_t>(std::stoul(crc)), quantization_in(params)};
}

Error other_base_error(const std::string& checkpoint, std::uint32_t found, std::uint32_t expected) {
  return Error(ExitCode::data,
               strfmt("E145 %s was saved without the frozen parameters, and those of the base model are others: their "
                      "checksum is %08x, not %08x",
                      checkpoint.c_str(), found, expected),
               {}, "Give the base model that it was trained from, in the same precision");
}

}  // namespace tessera::io

// Offsets of parameters in the flat buffers, and segments of shards.

#include "runtime/shard/layout.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "kernels/reduce.hpp"
#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"

namespace tessera::shard {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::int64_t ShardLayout::quantum(const UnitSpec& unit) {
  const std::size_t smallest =
      std::min({size_of(unit.storage_dtype), size_of(unit.policy.param_dtype), size_of(unit.policy.reduce_dtype)});
  return std::max(512 / static_cast<std::int64_t>(smallest), unit.granularity);
}

ShardLayout::ShardLayout(std::span<const ParamSpec> params, std::span<const UnitSpec> units, const Mesh& mesh)
    : units_(units.begin(), units.end()),
      unit_of_(params.size(), -1),
      offset_of_(params.size(), 0),
      param_numel_(params.size(), 0),
      mesh_(mesh) {
  for (int u = 0; u < num_units(); ++u) {
    const std::int64_t alignment = std::max(param_alignment, units_[at(u)].granularity);
    TESSERA_ASSERT(std::has_single_bit(static_cast<std::uint64_t>(alignment)), "an alignment of %ld", alignment);
    std::int64_t end = 0, numel = 0;
    auto module_first = units_[at(u)].module_firsts.begin();
    for (const int p : units_[at(u)].params) {
      if (p < 0 || at(p) >= params.size())
        throw std::logic_error(strfmt("unit %s names parameter %d", unit_name(u).c_str(), p));
      const ParamSpec& spec = params[at(p)];
      if (unit_of_[at(p)] >= 0) {
        throw std::logic_error(spec.name + " is in two units: " + unit_name(unit_of_[at(p)]) + " and " + unit_name(u));
      }
      if (spec.trainable != units_[at(u)].trainable)
        throw std::logic_error(spec.name + (spec.trainable ? " is trainable, and unit " : " is frozen, and unit ") +
                               unit_name(u) + " is not");
      unit_of_[at(p)] = u;
      param_numel_[at(p)] = spec.numel();
      const bool begins_module = module_first != units_[at(u)].module_firsts.end() && *module_first == p;
      if (begins_module) ++module_first;
      offset_of_[at(p)] =
          round_up(end, begins_module ? std::max<std::int64_t>(alignment, kernels::norm_block) : alignment);
      end = offset_of_[at(p)] + spec.numel();
      numel += spec.numel();
    }
    numel_.push_back(numel);
    const UnitSpec& unit = units_[at(u)];
    const int replicas = unit.trainable ? num_replicas(u) : 1;
    padded_.push_back(round_up(end, quantum(unit) * num_shards(u) * replicas));
  }
  for (std::size_t p = 0; p < params.size(); ++p) {
    if (unit_of_[p] < 0) throw std::logic_error(params[p].name + " is in no unit");
  }
}

std::vector<Segment> ShardLayout::segments_between(int unit, std::int64_t first, std::int64_t last) const {
  std::vector<Segment> out;
  for (const int p : unit_params(unit)) {
    const std::int64_t begin = std::max(first, offset_of_[at(p)]);
    const std::int64_t end = std::min(last, offset_of_[at(p)] + param_numel_[at(p)]);
    if (begin < end)
      out.push_back(
          {.param = p, .param_offset = begin - offset_of_[at(p)], .unit_offset = begin, .length = end - begin});
  }
  return out;
}

std::vector<Segment> ShardLayout::segments(int unit, int shard) const {
  TESSERA_ASSERT(shard >= 0 && shard < num_shards(unit), "shard %d of %d", shard, num_shards(unit));
  return segments_between(unit, shard * shard_numel(unit), (shard + 1) * shard_numel(unit));
}

std::vector<Segment> ShardLayout::all_segments(int unit) const { return segments_between(unit, 0, padded_numel(unit)); }

std::vector<std::pair<std::int64_t, std::int64_t>> ShardLayout::gaps(int unit) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  std::int64_t end = 0;
  for (const Segment& s : all_segments(unit)) {
    if (s.unit_offset > end) out.emplace_back(end, s.unit_offset - end);
    end = s.unit_offset + s.length;
  }
  if (end < padded_numel(unit)) out.emplace_back(end, padded_numel(unit) - end);
  return out;
}

}  // namespace tessera::shard

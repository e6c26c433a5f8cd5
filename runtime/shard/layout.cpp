// SPDX-License-Identifier: Apache-2.0
// Offsets of parameters in the flat buffers, and segments of shards.

#include "runtime/shard/layout.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "kernels/reduce.hpp"
#include "runtime/base/at.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/round_up.hpp"

namespace tessera::shard {

std::int64_t ShardLayout::quantum(const UnitSpec& unit) {
  const std::size_t smallest =
      std::min({size_of(unit.storage_dtype), size_of(unit.policy.param_dtype), size_of(unit.policy.reduce_dtype)});
  return std::max(512 / static_cast<std::int64_t>(smallest), unit.granularity);
}

ShardLayout::ShardLayout(std::span<const ParamSpec> params, std::span<const UnitSpec> units, const Mesh& mesh)
    : units_(units.begin(), units.end()), of_unit_(units.size()), of_param_(params.size()), mesh_(mesh) {
  for (const ParamSpec& param : params) {
    placements_.push_back(param.placement);
    shapes_.push_back(param.shape);
  }
  for (int u = 0; u < num_units(); ++u) add_unit(params, u);
  for (std::size_t p = 0; p < params.size(); ++p)
    if (of_param_[p].unit < 0) throw std::logic_error(params[p].name + " is in no unit");
}

void ShardLayout::add_unit(std::span<const ParamSpec> params, int u) {
  std::vector<Piece> pieces = pieces_of(params, u);
  padded_.push_back(place(u, pieces));
  std::int64_t numel = 0;
  for (const Piece& piece : pieces) {
    Piece& of_param = of_param_[at(piece.param)];
    if (of_param.unit >= 0)
      throw std::logic_error(params[at(piece.param)].name + " is in two units: " + unit_name(of_param.unit) + " and " +
                             unit_name(u));
    numel += piece.length;
    of_param = piece;
  }
  numel_.push_back(numel);
  std::ranges::sort(pieces, {}, &Piece::offset);
  of_unit_[at(u)] = std::move(pieces);
}

std::vector<ShardLayout::Piece> ShardLayout::pieces_of(std::span<const ParamSpec> params, int u) const {
  const UnitSpec& unit = units_[at(u)];
  const int parts = is_replicated(u) ? 1 : mesh_.size(Axis::tensor);
  std::vector<Piece> pieces;
  for (const int p : unit.params) {
    if (p < 0 || at(p) >= params.size())
      throw std::logic_error(strfmt("unit %s names parameter %d", unit.name.c_str(), p));
    const ParamSpec& spec = params[at(p)];
    if (spec.trainable != unit.trainable)
      throw std::logic_error(spec.name + (spec.trainable ? " is trainable, and unit " : " is frozen, and unit ") +
                             unit.name + " is not");
    if (spec.placement.ranks != parts)
      throw std::logic_error(strfmt("%s has %d parts, and unit %s is of %d", spec.name.c_str(), spec.placement.ranks,
                                    unit.name.c_str(), parts));
    pieces.push_back({.unit = u, .param = p, .length = spec.numel()});
  }
  return pieces;
}

std::int64_t ShardLayout::place(int u, std::vector<Piece>& pieces) const {
  const UnitSpec& unit = units_[at(u)];
  const std::int64_t alignment = std::max(param_alignment, unit.granularity);
  TESSERA_ASSERT(std::has_single_bit(static_cast<std::uint64_t>(alignment)), "an alignment of %ld", alignment);
  std::int64_t end = 0;
  auto module_first = unit.module_firsts.begin();
  for (Piece& piece : pieces) {
    const bool begins_module = module_first != unit.module_firsts.end() && *module_first == piece.param;
    if (begins_module) ++module_first;
    piece.offset = round_up(end, begins_module ? std::max<std::int64_t>(alignment, kernels::norm_block) : alignment);
    end = piece.offset + piece.length;
  }
  const int replicas = unit.trainable ? num_replicas(u) : 1;
  return round_up(end, quantum(unit) * num_shards(u) * replicas);
}

int ShardLayout::part_of(int unit, int rank) const {
  return is_replicated(unit) ? 0 : mesh_.coordinate(rank, Axis::tensor);
}

std::vector<Segment> ShardLayout::whole(const std::vector<Segment>& segments, int part) const {
  std::vector<Segment> out;
  for (const Segment& s : segments) {
    const TensorPlacement& placement = placements_[at(s.param)];
    if (!placement.is_split()) {
      out.push_back(s);
      continue;
    }
    std::int64_t done = 0;
    for (const ElementRun& run : placement.runs(shapes_[at(s.param)], part, {s.param_offset, s.length})) {
      if (run.first >= 0) out.push_back({s.param, run.first, s.unit_offset + done, run.length});
      done += run.length;
    }
  }
  return out;
}

std::vector<Segment> ShardLayout::segments_between(int unit, std::int64_t first, std::int64_t last) const {
  std::vector<Segment> out;
  for (const Piece& piece : of_unit_[at(unit)]) {
    const std::int64_t begin = std::max(first, piece.offset), end = std::min(last, piece.offset + piece.length);
    if (begin < end)
      out.push_back(
          {.param = piece.param, .param_offset = begin - piece.offset, .unit_offset = begin, .length = end - begin});
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

// SPDX-License-Identifier: Apache-2.0
#include "tests/fault_injection/test_state.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace tessera::test {

namespace {
TestTensors make(std::initializer_list<std::pair<const char*, Shape>> tensors, std::vector<shard::UnitSpec> units) {
  TestTensors made;
  for (const auto& [name, shape] : tensors) made.params.push_back({.name = name, .shape = shape, .init = {}});
  made.units = std::move(units);
  return made;
}
}  // namespace

std::uint64_t TestTensors::numel() const {
  return std::accumulate(params.begin(), params.end(), std::uint64_t{0}, [](std::uint64_t sum, const ParamSpec& p) {
    return sum + static_cast<std::uint64_t>(p.numel());
  });
}

TestTensors small_tensors() {
  return make({{"wte.weight", {37, 10}},
               {"wpe.weight", {16, 10}},
               {"h.0.ln_1.weight", {10}},
               {"h.0.attn.c_attn.weight", {10, 30}},
               {"h.0.attn.c_attn.bias", {30}},
               {"h.0.mlp.c_fc.weight", {10, 43}},
               {"h.1.ln_1.weight", {10}},
               {"h.1.attn.c_attn.weight", {10, 30}},
               {"h.1.scale", {}},
               {"ln_f.weight", {10}},
               {"ln_f.bias", {1}}},
              {{"embedding", {0, 1}}, {"h.0", {2, 3, 4, 5}}, {"rest", {6, 7, 8, 9, 10}}});
}

TestTensors large_tensors() {
  return make(
      {{"wte.weight", {1511, 1000}}, {"h.0.weight", {900, 1001}}, {"h.0.bias", {77}}, {"h.1.weight", {3, 7, 13}}},
      {{"embedding", {0}}, {"rest", {1, 2, 3}}});
}

std::vector<StateSpec> test_states() { return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}}; }

float test_value(std::int64_t step, int vector, int param, std::int64_t element) {
  auto x = static_cast<std::uint64_t>(element) +
           0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(step * 64 + param * 4 + vector + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<std::int32_t>(x >> 32)) * 0x1p-31f;  // in [-1, 1)
}

TestState::TestState(const TestTensors& tensors, const Mesh& mesh, int rank)
    : tensors_(tensors), layout_(tensors.params, tensors.units, mesh), shard_(mesh.coordinate(rank, Axis::shard)) {
  for (int unit = 0; unit < layout_.num_units(); ++unit)
    for (int vector = 0; vector < num_vectors; ++vector)
      values_.emplace_back(static_cast<std::size_t>(layout_.shard_numel(unit)));
}

namespace {
/// The shard as it should be.
std::vector<float> expected(const shard::ShardLayout& layout, int unit, int shard, int vector, std::int64_t step) {
  std::vector<float> values(static_cast<std::size_t>(layout.shard_numel(unit)));
  for (const auto& s : layout.segments(unit, shard))
    for (std::int64_t i = 0; i < s.length; ++i)
      values[static_cast<std::size_t>(s.unit_offset - shard * layout.shard_numel(unit) + i)] =
          test_value(step, vector, s.param, s.param_offset + i);
  return values;
}
}  // namespace

void TestState::fill(std::int64_t step) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const auto from =
        expected(layout_, static_cast<int>(i) / num_vectors, shard_, static_cast<int>(i) % num_vectors, step);
    std::memcpy(values_[i].data(), from.data(), from.size() * sizeof(float));  // in place: views stay
  }
}

void TestState::spoil() {
  for (auto& values : values_) values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
}

std::string TestState::difference(std::int64_t step) const {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const int unit = static_cast<int>(i) / num_vectors, vector = static_cast<int>(i) % num_vectors;
    const auto want = expected(layout_, unit, shard_, vector, step);
    for (std::size_t e = 0; e < want.size(); ++e)
      if (std::memcmp(&want[e], &values_[i][e], sizeof(float)) != 0)
        return strfmt("unit %d vector %d shard %d element %zu is %.9g, not %.9g", unit, vector, shard_, e,
                      static_cast<double>(values_[i][e]), static_cast<double>(want[e]));
  }
  return {};
}

io::TrainingState TestState::views() {
  io::TrainingState state{test_states(), {}};
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    io::StateView& view = state.shards.emplace_back(io::StateView{.unit = unit, .shard = shard_});
    for (int vector = 0; vector < num_vectors; ++vector)
      view.data.emplace_back(values_[static_cast<std::size_t>(unit * num_vectors + vector)].data(),
                             Shape{layout_.shard_numel(unit)});
  }
  return state;
}

io::SaveRequest save_request(TestState& state, const std::string& directory, std::int64_t step) {
  io::SaveRequest request;
  request.directory = directory;
  request.step = step;
  request.params = state.tensors().params;
  request.layout = &state.layout();
  request.state = state.views();
  request.auxiliary_files = {{"config.json", "{\"model_type\": \"gpt2\", \"note\": \"made by a test\"}\n"}};
  request.training = strfmt("{\"step\": %lld, \"tokens\": 12345}", static_cast<long long>(step));
  request.run_metadata = "{\"run\": \"a test\"}";
  return request;
}

io::SaveReport save(World& world, TestState& state, const std::string& directory, std::int64_t step) {
  io::CheckpointSave pending(world, save_request(state, directory, step));
  return pending.commit();
}

std::string load(World& world, TestState& state, const std::string& directory, std::int64_t step) {
  const io::CheckpointReader reader(world, directory);
  if (reader.manifest().step != step) return strfmt("step %lld", static_cast<long long>(reader.manifest().step));
  state.spoil();
  (void)reader.load(state.tensors().params, state.layout(), state.views());
  for (const auto& text : world.gather(state.difference(step)))
    if (!text.empty()) return text;
  return {};
}

}  // namespace tessera::test

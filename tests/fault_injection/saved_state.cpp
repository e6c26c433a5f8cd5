// SPDX-License-Identifier: Apache-2.0
#include "tests/fault_injection/saved_state.hpp"

#include <gtest/gtest.h>

namespace tessera::test {

void make_checkpoint(const TestTensors& tensors, const std::string& directory, std::int64_t step,
                     std::uint64_t file_bytes) {
  run_local(2, [&](World& world) {
    TestState state(tensors, Mesh(1, 2), world.rank());
    state.fill(step);
    auto request = save_request(state, directory, step);
    request.file_bytes = file_bytes;
    io::CheckpointSave pending(world, request);
    (void)pending.commit();
  });
}

std::string load_says(const TestTensors& tensors, const std::string& directory, int ranks) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_local(ranks, [&](World& world) {
    auto& mine = said[static_cast<std::size_t>(world.rank())];
    try {
      const io::CheckpointReader reader(world, directory);
      TestState state(tensors, Mesh(1, ranks), world.rank());
      (void)reader.load(tensors.params, state.layout(), state.views());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data) << error.line();
      mine = error.line();
    }
  });
  for (const auto& line : said) EXPECT_EQ(line, said[0]);
  return said[0];
}

}  // namespace tessera::test

// SPDX-License-Identifier: Apache-2.0
// What a checkpoint records of the model that it was trained from.
#include "jobs/cli/session/weights.hpp"

#include <nlohmann/json.hpp>

#include "runtime/base/log.hpp"
#include "tests/io/files.hpp"

namespace tessera::jobs {
namespace {

TEST(RecordedBase, TensorsBesideATextPartAreThoseOfItsRun) {
  io::Manifest manifest;
  const auto warnings = [&] {
    const std::int64_t before = log::warnings();
    check_copied_crc(manifest, "run/checkpoint-2", "model", 0xABC);
    return log::warnings() - before;
  };
  manifest.run_metadata = nlohmann::json{{base_model_key, "/model"}, {copied_crc_key, "00000abc"}}.dump();
  EXPECT_EQ(recorded_base(manifest), "/model");
  EXPECT_EQ(warnings(), 0);
  manifest.run_metadata = nlohmann::json{{copied_crc_key, "00000abd"}}.dump();
  test::expect_error(ExitCode::data,
                     "E145 the tensors beside the text part in model are not those that run/checkpoint-2 was trained "
                     "beside: their checksum is 00000abc, not 00000abd",
                     [&] { (void)warnings(); });
  manifest.run_metadata = "{}";
  EXPECT_EQ(recorded_base(manifest), "");
  EXPECT_EQ(warnings(), 1) << "W076";
}

}  // namespace
}  // namespace tessera::jobs

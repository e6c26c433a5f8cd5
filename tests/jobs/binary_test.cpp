// SPDX-License-Identifier: Apache-2.0
// The program as a user runs it, where it needs no MPI: exit codes, one line for an error, information and plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace {

using testing::HasSubstr;

struct Outcome {
  int code = -1;
  std::string out;
};

/// Runs the program with stderr joined to stdout.
Outcome run(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = ::popen(("unset TESSERA_SEED; " TESSERA_BINARY " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  for (std::size_t count = 0; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.out.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void expect_error(const std::string& arguments, int code, const std::string& words) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.rfind("error: ", 0), 0u) << outcome.out;
  EXPECT_EQ(outcome.out.find('\n'), outcome.out.size() - 1) << "one line: " << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr(words));
}

TEST(Binary, PrintsOneErrorLineAndExitsWithTheCode) {
  expect_error("trian", 2, "train");
  expect_error("plan --modle x", 2, "model");
  expect_error("plan", 2, "--model");
  expect_error("plan --model /nowhere/at-all", 3, "cannot read /nowhere/at-all");
  expect_error("plan --model nowhere/at-all", 3,
               "--model nowhere/at-all: no such file or directory, and it is in no local cache [command line]. Tessera "
               "downloads nothing. To download it from the Hugging Face Hub, where there is a network: hf download "
               "nowhere/at-all");
  expect_error("plan --shape small --max_length 5000", 2, "5000");
  expect_error("plan --shape small --world_size 6 --shard_group_size 4", 2, "4");
  expect_error("plan --shape small --world_size 3 --reproducible", 2, "power of two");
  expect_error("plan --shape small --mixed_precision fp8", 2, "mixed_precision");
  expect_error("plan --shape small --reduce_dtype bf16", 2, "computes in fp32");
  expect_error("plan --shape small --mixed_precision bf16 --reduce_dtype fp16", 2, "computes in bf16");
  expect_error("plan --shape small --bf16 --fp16", 2,
               "--fp16 asks for fp16, but --bf16 for bf16 [command line]. Keep one of the two");
  expect_error("plan --shape small --bf16 --mixed_precision no", 2, "Keep one of the two");
  expect_error("plan /nowhere/conf.yaml", 3, "conf.yaml");
  expect_error("completion tcsh", 2, "bash");
  expect_error("config", 2, "show");
}

TEST(Binary, PrintsInformation) {
  EXPECT_EQ(run("").code, 2);
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_THAT(run("train --help").out, HasSubstr("--learning_rate"));
  const Outcome version = run("-V");
  EXPECT_EQ(version.code, 0);
  for (const char* word : {"tessera ", "commit", "MPI", "BLAS", "backends", "HDF5"})
    EXPECT_THAT(version.out, HasSubstr(word));
  std::ifstream page(TESSERA_SOURCE_DIR "/docs/cli.md");
  std::ostringstream text;
  text << page.rdbuf();
  EXPECT_EQ(run("--help-markdown").out, text.str());
  EXPECT_THAT(run("config show --seed 7").out, HasSubstr("command line"));
  EXPECT_EQ(run("completion bash > /dev/null").code, 0);
  EXPECT_EQ(run("completion bash | bash -n").code, 0);
}

TEST(Binary, PlanFitsOrExitsWithFour) {
  const Outcome good =
      run("plan --shape small --world_size 4 --ranks_per_node 2 --max_length 64 --device_memory 4GB --print_schedule");
  EXPECT_EQ(good.code, 0) << good.out;
  for (const char* word : {"ZeRO-0", "ZeRO-3", "HYBRID", "activations", "largest micro-batch", "forward", "reduce"})
    EXPECT_THAT(good.out, HasSubstr(word));
  EXPECT_THAT(good.out, testing::Not(HasSubstr("before the first step")));
  const Outcome frozen =
      run("plan --shape small --world_size 4 --zero_stage 2 --freeze_parameters 'h.0.*' --print_schedule");
  EXPECT_THAT(frozen.out, HasSubstr("schedule before the first step, verified\ngather     h.0"));
  const Outcome shared = run("plan --shape small --world_size 6 --ranks_per_node 3 --context_parallel_size 2");
  EXPECT_EQ(shared.code, 0) << shared.out;
  for (const char* word : {"  HYBRID_SHARD         ", "  hybrid ZeRO-2        "})
    EXPECT_THAT(shared.out, HasSubstr(word));
  EXPECT_THAT(shared.out, HasSubstr("not possible: 2 ranks that share rows do not divide a shard group of 3 ranks"));
  EXPECT_THAT(run("plan --shape small --world_size 6 --ranks_per_node 3 --context_parallel_size 2 --json").out,
              HasSubstr("\"refused\": \"2 ranks that share rows do not divide"));
  const Outcome bad = run("plan --shape small --world_size 2 --max_length 64 --device_memory 1MiB");
  EXPECT_EQ(bad.code, 4) << bad.out;
  EXPECT_THAT(bad.out, HasSubstr("error: "));
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on a machine without a device: answers without a driver, refusals, libraries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/cuda/check.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/library.hpp"
#include "runtime/base/error.hpp"

namespace tessera {
namespace {

using ::testing::HasSubstr;

template <class F>
std::string refused(ExitCode code, const F& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code));
    return error.line();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

cuda::Survey machine(std::initializer_list<int> majors) {
  cuda::Survey survey;
  for (const int major : majors)
    survey.devices.push_back({.index = static_cast<int>(survey.devices.size()),
                              .name = "Card",
                              .bus_id = "0",
                              .uuid = "0",
                              .major = major,
                              .memory = 1});
  if (survey.devices.empty()) survey.why_none = cuda::why_no_device(35);
  return survey;
}

TEST(CudaSurvey, is_data_whatever_the_driver_says) {
  const auto& survey = cuda::survey();
  EXPECT_EQ(survey.devices.empty(), !survey.why_none.empty());
  EXPECT_GE(survey.runtime, 12000);
  EXPECT_EQ(&survey, &cuda::survey());
}

TEST(CudaSurvey, says_why_there_is_no_device) {
  EXPECT_THAT(cuda::why_no_device(35), HasSubstr("no NVIDIA driver, or one older than CUDA " + cuda::toolkit()));
  EXPECT_THAT(cuda::why_no_device(34), HasSubstr("stub"));
  EXPECT_THAT(cuda::why_no_device(100), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(cuda::why_no_device(999), HasSubstr("cudaErrorUnknown, 999"));
}

TEST(CudaSurvey, refuses_an_old_card_by_name) {
  EXPECT_EQ(cuda::refusal({.index = 1, .name = "Tesla V100", .bus_id = "", .uuid = "", .major = 7, .minor = 0}),
            "GPU 1 (Tesla V100) has compute capability 7.0; Tessera needs 8.0 (Ampere) or newer");
  EXPECT_EQ(cuda::refusal({.index = 0, .name = "A100", .bus_id = "", .uuid = "", .major = 8}), "");
  EXPECT_EQ(cuda::refusal({.index = 0, .name = "later", .bus_id = "", .uuid = "", .major = 12}), "");
}

/// Ranks of a host that all see the same GPUs.
cuda::HostRank seeing_all(int rank, std::size_t ranks) { return {rank, std::vector<std::string>(ranks, "a")}; }

TEST(CudaChoice, is_the_local_rank_of_the_node) {
  const auto four = machine({9, 9, 9, 9});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(cuda::choose(four, seeing_all(rank, 4), cuda::Sharing::one_each).index, rank);
  EXPECT_EQ(cuda::choose(machine({8}), seeing_all(2, 3), cuda::Sharing::shared).index, 0);
  EXPECT_EQ(cuda::choose(machine({9, 9}), seeing_all(3, 5), cuda::Sharing::shared).index, 1);
}

TEST(CudaChoice, is_the_first_that_a_rank_sees_where_each_sees_its_own) {
  const cuda::HostRank last{2, {"a", "b", "c"}};
  for (const auto sharing : {cuda::Sharing::one_each, cuda::Sharing::shared}) {
    EXPECT_EQ(cuda::choose(machine({9}), last, sharing).index, 0);
    EXPECT_EQ(cuda::choose(machine({9, 9}), last, sharing).index, 0);  // two GPUs each: "c" is the first
  }
  // Two ranks share "a": rank 2 would take "b" for itself, and rank 1 shares.
  const cuda::HostRank third{2, {"a", "a", "b"}};
  EXPECT_EQ(cuda::choose(machine({9}), third, cuda::Sharing::shared).index, 0);
  EXPECT_THAT(refused(ExitCode::usage, [&] { (void)cuda::choose(machine({9}), third, cuda::Sharing::one_each); }),
              HasSubstr("3 ranks on this node, but 1 GPU ["));
}

TEST(CudaChoice, refuses_what_cannot_be) {
  EXPECT_THAT(refused(ExitCode::usage,
                      [] {
                        (void)cuda::choose(machine({}), {0, {""}}, cuda::Sharing::shared);
                      }),
              HasSubstr("no NVIDIA driver"));
  const std::string oversubscribed =
      refused(ExitCode::usage, [] { (void)cuda::choose(machine({9}), seeing_all(0, 2), cuda::Sharing::one_each); });
  EXPECT_THAT(oversubscribed, HasSubstr("2 ranks on this node, but 1 GPU ["));
  EXPECT_THAT(oversubscribed, HasSubstr("--comm mpi"));
  EXPECT_THAT(refused(ExitCode::usage,
                      [] {
                        (void)cuda::choose(machine({9, 7}), seeing_all(1, 2), cuda::Sharing::one_each);
                      }),
              HasSubstr("GPU 1 (Card)"));
}

TEST(CudaCheck, names_the_call_the_location_and_the_error) {
  EXPECT_NO_THROW(cuda::check(0, "f", "x.cpp", 1));
  const std::string line =
      refused(ExitCode::internal, [] { cuda::check(700, "cudaStreamSynchronize(s)", "x.cpp", 12); });
  EXPECT_THAT(line, HasSubstr("cudaStreamSynchronize(s): "));
  EXPECT_THAT(line, HasSubstr("(cudaErrorIllegalAddress, 700) [x.cpp:12]"));
  EXPECT_THAT(refused(ExitCode::does_not_fit, [] { cuda::check(2, "cudaMalloc(&p, n)", "x.cpp", 1); }),
              HasSubstr("tessera plan"));
  EXPECT_THAT(refused(ExitCode::usage, [] { cuda::check(209, "launch", "x.cpp", 1); }),
              HasSubstr("CMAKE_CUDA_ARCHITECTURES"));
}

TEST(CudaLibrary, that_is_missing_is_named_with_what_to_install) {
  cuda::Library library("libnosuchthing.so.7", "the Such Thing (Debian: libnosuchthing7)");
  EXPECT_FALSE(library.there());
  EXPECT_THAT(library.why_not(), HasSubstr("libnosuchthing.so.7"));
  EXPECT_EQ(library.path(), "");
  const std::string line = refused(ExitCode::usage, [&] { (void)library.symbol("f"); });
  EXPECT_THAT(line, HasSubstr("cannot open libnosuchthing.so.7 ("));
  EXPECT_THAT(line,
              HasSubstr("Install the Such Thing (Debian: libnosuchthing7), or put its folder into LD_LIBRARY_PATH"));
}

TEST(CudaLibrary, that_lacks_a_function_is_too_old) {
  cuda::Library library("libm.so.6", "a newer libm");
  ASSERT_TRUE(library.there());
  EXPECT_NE(library.symbol("cos"), nullptr);
  EXPECT_THAT(refused(ExitCode::usage, [&] { (void)library.symbol("no_such_function"); }),
              HasSubstr("has no no_such_function"));
}

}  // namespace
}  // namespace tessera

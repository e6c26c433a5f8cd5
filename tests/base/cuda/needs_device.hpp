// SPDX-License-Identifier: Apache-2.0
#pragma once
// For tests that need a CUDA device: skips with the reason if there is none, or none that this build has code for.

#include <gtest/gtest.h>

#include "runtime/base/cuda/devices.hpp"

namespace tessera {

/// "" if device 0 can be used.
inline std::string why_no_test_device() {
  const auto& survey = cuda::survey();
  return survey.devices.empty() ? survey.why_none : cuda::refusal(survey.devices[0]);
}

/// The device of the tests.
inline Device test_device() { return {Device::Kind::cuda, 0}; }

}  // namespace tessera

#define TESSERA_NEEDS_DEVICE()                                                                    \
  if (const std::string why = ::tessera::why_no_test_device(); !why.empty()) GTEST_SKIP() << why; \
  ::tessera::cuda::use(::tessera::test_device())

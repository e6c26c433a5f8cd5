// SPDX-License-Identifier: Apache-2.0
#include "jobs/bench/step_gemms.hpp"

#include <algorithm>

#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

double seconds_of(const kernels::RecordedGemm& gemm) { return static_cast<double>(gemm.calls) * gemm.seconds; }

}  // namespace

double StepGemms::seconds() const {
  double sum = 0;
  for (const kernels::RecordedGemm& gemm : all) sum += seconds_of(gemm);
  return sum;
}

double StepGemms::flops() const {
  double sum = 0;
  for (const kernels::RecordedGemm& gemm : all) sum += static_cast<double>(gemm.calls) * gemm.flops;
  return sum;
}

void check_gemms(const Options& options, Device device) {
  if (options.flag("gemms") && device == host_device)
    throw options.refuse("gemms", "--gemms needs a GPU, and this run computes on the CPU",
                         "Drop it, or use --backend cuda; \"GEMMs alone\" is their share on the CPU");
}

std::vector<kernels::RecordedGemm> time_step_gemms(World& world, train::Trainer& trainer,
                                                   const train::WarmupArgs& step) {
  world.run_and_agree([] { kernels::record_gemms(); });
  trainer.warm_up(step);
  std::vector<kernels::RecordedGemm> gemms;
  world.run_and_agree([&] {
    if (world.rank() == 0) gemms = kernels::time_recorded_gemms();
    else (void)kernels::finish_recording_gemms(kernels::Timing::off);
  });
  std::ranges::stable_sort(gemms, std::greater(), seconds_of);
  return gemms;
}

void print_gemms(const std::string& name, const StepGemms& gemms) {
  const double seconds = gemms.seconds();
  const auto of_peak = [&](double rate) {
    return gemms.peak > 0 ? strfmt("%.1f%%", 100 * rate / gemms.peak) : std::string("-");
  };
  log::info(
      strfmt("GEMMs of a step of %s on rank 0's GPU: %.2f TFLOP in %.2f ms, %.1f TFLOP/s, %s of the peak; %.1f%% "
             "of the step",
             name.c_str(), gemms.flops() / 1e12, 1e3 * seconds, gemms.flops() / seconds / 1e12,
             of_peak(gemms.flops() / seconds).c_str(), 100 * seconds / gemms.step_seconds));
  log::info(strfmt("%8s %12s %10s %10s %10s %10s   %s", "calls", "ms a call", "ms", "share", "TFLOP/s", "of peak",
                   "operands m x n x k -> result, as the library counts them"));
  for (const kernels::RecordedGemm& gemm : gemms.all)
    log::info(strfmt("%8ld %12.4f %10.3f %9.1f%% %10.1f %10s   %s", gemm.calls, 1e3 * gemm.seconds,
                     1e3 * seconds_of(gemm), 100 * seconds_of(gemm) / seconds, gemm.flops / gemm.seconds / 1e12,
                     of_peak(gemm.flops / gemm.seconds).c_str(), gemm.name.c_str()));
}

nlohmann::ordered_json gemms_json(const StepGemms& gemms) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const kernels::RecordedGemm& gemm : gemms.all)
    json.push_back({{"gemm", gemm.name},
                    {"calls", gemm.calls},
                    {"seconds_a_call", gemm.seconds},
                    {"tflops", gemm.flops / gemm.seconds / 1e12},
                    {"share", seconds_of(gemm) / gemms.seconds()}});
  return json;
}

}  // namespace tessera::jobs

// SPDX-License-Identifier: Apache-2.0
// The trace of a step on a device: every instruction and wait, by the device's clock, in the order of the schedule.
#include <algorithm>
#include <cstdio>

#include "tests/train/device/device_runs.hpp"

namespace tessera::test {

namespace {

constexpr double tick = 2e-6;  // a device's clock

/// Errors in the spans of one step.
class Checks {
 public:
  Checks(World& world, const Variant& v) : world_(world), v_(v) {}
  void expect(bool well, const std::string& what) {
    if (!well) std::printf("rank %d: %s, %s\n", world_.rank(), what.c_str(), v_.str().c_str()), ++wrong_;
  }
  [[nodiscard]] int wrong() const { return wrong_; }

 private:
  World& world_;
  const Variant& v_;
  int wrong_ = 0;
};

/// Instructions in list order, by stream of the device (gathers and reductions share one); spans of a stream do not
/// overlap, and none begins before what it waits for has ended.
void check_order(Checks& checks, const shard::Schedule& schedule, const std::vector<exec::TraceSpan>& spans) {
  const auto stream_of = [](shard::StreamId lane) {
    return lane == shard::StreamId::gather ? shard::StreamId::reduce : lane;
  };
  std::vector<const exec::TraceSpan*> of(schedule.list.size());
  for (const auto stream : {shard::StreamId::compute, shard::StreamId::reduce, shard::StreamId::replicate}) {
    std::size_t next = 0;
    double end = 0;
    for (const exec::TraceSpan& span : spans) {
      if (stream_of(static_cast<shard::StreamId>(span.lane)) != stream) continue;
      checks.expect(span.begin_s >= end - tick && span.end_s >= span.begin_s,
                    span.name + " begins before what is ahead of it ends");
      end = span.end_s;
      if (span.name.rfind("wait ", 0) == 0) continue;
      while (next < of.size() &&
             (stream_of(schedule.list[next].stream) != stream || schedule.list[next].op == shard::Op::release))
        ++next;
      checks.expect(next < of.size() && span.name.rfind(shard::name_of(schedule.list[next].op), 0) == 0,
                    span.name + " stands at another's place");
      if (next < of.size()) of[next++] = &span;
    }
  }
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto& instruction = schedule.list[i];
    if (instruction.op == shard::Op::release) continue;
    checks.expect(of[i] != nullptr, strfmt("instruction %zu has no span", i));
    for (const int before : instruction.after)
      if (const auto* earlier = of[static_cast<std::size_t>(before)]; of[i] != nullptr && earlier != nullptr)
        checks.expect(of[i]->begin_s >= earlier->end_s - tick, of[i]->name + " does not wait for " + earlier->name);
  }
}

/// True if an all_reduce of the replicate stream is in flight at the same time as a collective of the other one.
bool overlaps(const std::vector<exec::TraceSpan>& spans) {
  const auto on = [](const exec::TraceSpan& span, shard::StreamId id) { return span.lane == static_cast<int>(id); };
  return std::ranges::any_of(spans, [&](const exec::TraceSpan& a) {
    return on(a, shard::StreamId::replicate) && std::ranges::any_of(spans, [&](const exec::TraceSpan& b) {
             return (on(b, shard::StreamId::gather) || on(b, shard::StreamId::reduce)) && a.begin_s < b.end_s &&
                    b.begin_s < a.end_s;
           });
  });
}

int check(World& world, const models::Model& model, const Variant& v) {
  train::Trainer trainer(world, options_of(model, v, 4));
  trainer.initialize();
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 11);
  Checks checks(world, v);
  (void)trainer.step(tokens, sampler, 0, v.global_batch);
  trainer.start_trace(1);
  const train::StepReport report = trainer.step(tokens, sampler, v.global_batch, v.global_batch);
  const std::vector<exec::TraceSpan> spans = trainer.take_trace();
  const shard::Schedule& schedule = trainer.plan().main();
  check_order(checks, schedule, spans);
  double waited = 0;
  std::size_t waits = 0, planned = 0;
  for (const exec::TraceSpan& span : spans)
    if (span.name.rfind("wait ", 0) == 0) waited += span.end_s - span.begin_s, ++waits;
  for (const auto& instruction : schedule.list)
    if (instruction.stream == shard::StreamId::compute) planned += instruction.after.size();
  checks.expect(waits == planned && waits > 0, strfmt("%zu waits in the trace, %zu in the schedule", waits, planned));
  if (v.group > 0) checks.expect(overlaps(spans), "the two axes are never in flight together");
  checks.expect(report.comm_seconds > 0, "compute has waited for nothing");
  checks.expect(
      std::abs(waited - report.comm_seconds) <= 1e-3 * report.comm_seconds + tick * static_cast<double>(waits),
      strfmt("waits of %g s in the trace, of %g s in the report", waited, report.comm_seconds));
  const train::StepReport after = trainer.step(tokens, sampler, 2 * v.global_batch, v.global_batch);
  checks.expect(after.comm_seconds > 0, "compute has waited for nothing, without a trace");
  checks.expect(trainer.take_trace().size() == spans.size(), "a step after the trace is in it");
  trainer.set_times_waits(false);
  const train::StepReport untimed = trainer.step(tokens, sampler, 3 * v.global_batch, v.global_batch);
  checks.expect(!untimed.times_waits && untimed.comm_seconds == 0, "a step timed its waits, though it was told not to");
  return checks.wrong();
}

}  // namespace

int trace(World& world) {
  const models::Model model = models::make(config_json({}), "test");
  int wrong = 0;
  for (const char* strategy : {"0", "3"})
    wrong += check(world, model,
                   {.world = world.size(), .strategy = strategy, .global_batch = 2 * world.size(), .recompute = true});
  if (world.size() == 4)
    wrong += check(world, model, {.world = 4, .strategy = "HYBRID_SHARD", .group = 2, .global_batch = 8});
  return wrong;
}

}  // namespace tessera::test

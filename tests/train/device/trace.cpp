// The trace of a step on a device: every instruction and wait, by the device's clock, in the order of the schedule.
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

/// Instructions in list order, by lane; spans of a lane do not overlap, and none begins before what it waits for has
/// ended.
void check_order(Checks& checks, const shard::Schedule& schedule, const std::vector<train::TraceSpan>& spans) {
  const auto is_compute = [](const shard::Instruction& in) { return in.stream == shard::StreamId::compute; };
  std::vector<const train::TraceSpan*> of(schedule.list.size());
  for (const bool compute : {true, false}) {
    std::size_t next = 0;
    double end = 0;
    for (const train::TraceSpan& span : spans) {
      if ((span.lane == static_cast<int>(shard::StreamId::compute)) != compute) continue;
      checks.expect(span.begin_s >= end - tick && span.end_s >= span.begin_s,
                    span.name + " begins before what is ahead of it ends");
      end = span.end_s;
      if (span.name.rfind("wait ", 0) == 0) continue;
      while (next < of.size() &&
             (is_compute(schedule.list[next]) != compute || schedule.list[next].op == shard::Op::release))
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

int check(World& world, const models::Model& model, const Variant& v) {
  train::Trainer trainer(world, options_of(model, v, 3));
  trainer.initialize();
  const RandomTokens tokens(400, 37);
  const io::Sampler sampler(40, true, 11);
  Checks checks(world, v);
  (void)trainer.step(tokens, sampler, 0, v.global_batch);
  trainer.start_trace(1);
  const train::StepReport report = trainer.step(tokens, sampler, v.global_batch, v.global_batch);
  const std::vector<train::TraceSpan> spans = trainer.take_trace();
  const shard::Schedule& schedule = trainer.plan().main();
  check_order(checks, schedule, spans);
  double waited = 0;
  std::size_t waits = 0, planned = 0;
  for (const train::TraceSpan& span : spans)
    if (span.name.rfind("wait ", 0) == 0) waited += span.end_s - span.begin_s, ++waits;
  for (const auto& instruction : schedule.list)
    if (instruction.stream == shard::StreamId::compute) planned += instruction.after.size();
  checks.expect(waits == planned && waits > 0, strfmt("%zu waits in the trace, %zu in the schedule", waits, planned));
  checks.expect(report.comm_seconds > 0, "compute has waited for nothing");
  checks.expect(
      std::abs(waited - report.comm_seconds) <= 1e-3 * report.comm_seconds + tick * static_cast<double>(waits),
      strfmt("waits of %g s in the trace, of %g s in the report", waited, report.comm_seconds));
  const train::StepReport after = trainer.step(tokens, sampler, 2 * v.global_batch, v.global_batch);
  checks.expect(after.comm_seconds > 0, "compute has waited for nothing, without a trace");
  checks.expect(trainer.take_trace().size() == spans.size(), "a step after the trace is in it");
  return checks.wrong();
}

}  // namespace

int trace(World& world) {
  const models::Model model = models::make(config_json({}), "test");
  int wrong = 0;
  for (const char* strategy : {"0", "3"})
    wrong += check(world, model,
                   {.world = world.size(), .strategy = strategy, .global_batch = 2 * world.size(), .recompute = true});
  return wrong;
}

}  // namespace tessera::test

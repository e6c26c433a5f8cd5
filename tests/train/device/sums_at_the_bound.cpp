// SPDX-License-Identifier: Apache-2.0
// Sums at ExactSum's bound on every rank: norm carries before it adds them over ranks.
#include <cmath>
#include <cstdio>

#include "runtime/base/transfer.hpp"
#include "runtime/exec/run_context.hpp"
#include "tests/train/device/device_runs.hpp"

namespace tessera::test {

int sums_at_the_bound(World& world) {
  const models::Model model = models::make(config_json({}), "test");
  constexpr double term = 0x1.fffffffffffffp0;  // all of its digits are full
  int wrong = 0;
  for (const char* strategy : {"0", "3"}) {
    Variant v{.world = world.size(), .strategy = strategy, .global_batch = world.size()};
    exec::RunContext run(world, options_of(model, v, 1).run, "", {});
    Stream stream("norm", Stream::Mode::immediate, run.plan.spec.device, Priority::normal);
    shard::StepSums sums;
    ExactSum mine;
    mine.add(term);
    for (std::int64_t n = 1; n < ExactSum::max_additions; n *= 2) mine.add(ExactSum(mine));
    if (run.manager.device() == host_device) {
      sums.loss = mine;
      (void)run.manager.norm(sums);
    } else {
      run.manager.run_on(stream.view(), stream.view());
      // The counters of the norm lie before those of the loss.
      std::byte* const loss = reinterpret_cast<std::byte*>(run.manager.loss_sums());
      for (std::byte* to : {loss, loss - sizeof(ExactSum)})
        copy_now(run.manager.device(), to, mine.counters().data(), sizeof(ExactSum));
      run.manager.issue_norm(sums, shard::ShardManager::Counts::on_device, nullptr);
      stream.synchronize();
      (void)run.manager.read_norm(sums);
      wrong += sums.norm2.value() == std::ldexp(term, 30) * world.size() ? 0 : 1;
    }
    wrong += sums.loss.value() == std::ldexp(term, 30) * world.size() ? 0 : 1;
    if (wrong > 0)
      std::printf("rank %d, ZeRO-%s: the loss is %a, the norm %a\n", world.rank(), strategy, sums.loss.value(),
                  sums.norm2.value());
  }
  return wrong;
}

}  // namespace tessera::test

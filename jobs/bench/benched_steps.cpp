// SPDX-License-Identifier: Apache-2.0
#include "jobs/bench/benched_steps.hpp"

#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/trainable.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

BenchedSteps::BenchedSteps(const Options& options, World& world)
    : threads(set_rank_threads(options, world).threads),
      config(read_model_config(options, &world)),
      model(make_training_model(options, config.text, config.path, precision_of(options).compute)),
      trainer(trainer_options(options, model, world, 1000000)),
      steps(options.integer("bench_steps")) {}

RandomTokens BenchedSteps::tokens(std::int64_t more) const {
  return {(steps + more) * trainer.run.batch.global_batch * trainer.run.tokens + 1, model.vocab};
}

void BenchedSteps::print() const {
  log::info(version_line());
  log::info(strfmt("model     %s | %s parameters | T %ld | %s | %d threads a rank", config.path.c_str(),
                   human_count(model.num_params()).c_str(), trainer.run.tokens, batch_line(trainer.run.batch).c_str(),
                   threads));
}

}  // namespace tessera::jobs

// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a config.json has that is not read.

#include "jobs/cli/session/setup.hpp"

namespace tessera::jobs {

/// W074: keys of the config that are not known (models/config_keys.hpp). W078: classes in "architectures" that are no
/// language models, W079: classes in "auto_map" (models/architectures.hpp). read_model_config says both where there is
/// a `world`.
void warn_of_config(const ModelConfig& config);

}  // namespace tessera::jobs

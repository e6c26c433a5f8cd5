// SPDX-License-Identifier: Apache-2.0
#pragma once
// The texts of jobs/templates/*.sh, which the build puts into the program (batch_templates.cpp.in).

namespace tessera::jobs {

extern const char *const slurm_template, *const pbs_template, *const lsf_template, *const flux_template;

}  // namespace tessera::jobs

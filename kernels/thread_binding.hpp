// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads that kernels compute with, and the CPUs that OpenMP binds them to.

#include <functional>
#include <vector>

namespace tessera::kernels {

/// Calls f(thread) once on each of this rank's threads, numbered from 0 to threads() - 1; 0 is the caller. f must not
/// throw.
void on_each_thread(const std::function<void(int thread)>& f);

/// The CPUs of OpenMP's places, ascending: what the environment has it bind threads to (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY). Empty: it binds none.
[[nodiscard]] std::vector<int> openmp_cpus();

}  // namespace tessera::kernels

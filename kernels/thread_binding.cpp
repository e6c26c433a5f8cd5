// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_binding.hpp"

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/host/parallel.hpp"

namespace tessera::kernels {

void on_each_thread(const std::function<void(int thread)>& f) {
  host::parallel_parts(threads(), [&](std::int64_t part) { f(static_cast<int>(part)); });
}

std::vector<int> openmp_cpus() {
  std::vector<int> cpus;
#ifdef _OPENMP
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> some(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, some.data());
    cpus.insert(cpus.end(), some.begin(), some.end());
  }
  std::ranges::sort(cpus);
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
#endif
  return cpus;
}

}  // namespace tessera::kernels

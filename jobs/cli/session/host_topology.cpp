// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/host_topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/error.hpp"

namespace tessera::jobs {

namespace {

/// A set of CPUs or NUMA nodes.
class Bitmap {
 public:
  Bitmap() : bits_(hwloc_bitmap_alloc()) {
    if (bits_ == nullptr) throw Error(ExitCode::does_not_fit, "hwloc has no memory for a set of CPUs");
  }
  ~Bitmap() { hwloc_bitmap_free(bits_); }
  Bitmap(const Bitmap&) = delete;
  Bitmap& operator=(const Bitmap&) = delete;
  [[nodiscard]] hwloc_bitmap_t get() const { return bits_; }

 private:
  hwloc_bitmap_t bits_;
};

std::vector<int> numbers_of(hwloc_const_bitmap_t set) {
  std::vector<int> numbers;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) numbers.push_back(i);
  return numbers;
}

std::vector<hwloc_obj_t> objects(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_cpuset_t cpus) {
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t one = nullptr; (one = hwloc_get_next_obj_by_type(topology, type, one)) != nullptr;)
    if (hwloc_bitmap_intersects(one->cpuset, cpus)) found.push_back(one);
  return found;
}

std::vector<int> logical_numbers(const std::vector<hwloc_obj_t>& some) {
  std::vector<int> numbers;
  for (const auto* one : some) numbers.push_back(static_cast<int>(one->logical_index));
  return numbers;
}

/// The nodes of `nodes` that are nearest to cores: without those that contain another's cores, and of those with equal
/// cores the first.
std::vector<int> nearest_nodes(const std::vector<hwloc_obj_t>& nodes) {
  std::vector<int> numbers;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto hides = [&](std::size_t k) {
      const bool equal = hwloc_bitmap_isequal(nodes[k]->cpuset, nodes[i]->cpuset) != 0;
      return equal ? k < i : hwloc_bitmap_isincluded(nodes[k]->cpuset, nodes[i]->cpuset) != 0;
    };
    bool hidden = false;
    for (std::size_t k = 0; k < nodes.size() && !hidden; ++k) hidden = k != i && hides(k);
    if (!hidden) numbers.push_back(static_cast<int>(nodes[i]->os_index));
  }
  std::ranges::sort(numbers);
  return numbers;
}

CpuPlace place_of(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  const std::vector<hwloc_obj_t> cores = objects(topology, HWLOC_OBJ_CORE, cpus);
  std::vector<int> core_cpus;
  for (const auto* core : cores) core_cpus.push_back(hwloc_bitmap_first(core->complete_cpuset));
  return {.numa_nodes = nearest_nodes(objects(topology, HWLOC_OBJ_NUMANODE, cpus)),
          .packages = logical_numbers(objects(topology, HWLOC_OBJ_PACKAGE, cpus)),
          .cores = logical_numbers(cores),
          .core_cpus = std::move(core_cpus)};
}

[[noreturn]] void refuse(const char* call) {
  throw Error(ExitCode::usage, strfmt("hwloc cannot read the topology of this host: %s: %s", call, strerror(errno)),
              "hwloc", "Unset HWLOC_SYNTHETIC, HWLOC_XMLFILE and HWLOC_COMPONENTS if they are set");
}

}  // namespace

struct HostTopology::Handle {
  hwloc_topology_t topology = nullptr;
  ~Handle() {
    if (topology != nullptr) hwloc_topology_destroy(topology);
  }
};

HostTopology::HostTopology() : handle_(std::make_unique<Handle>()) {
  if (hwloc_topology_init(&handle_->topology) != 0) refuse("hwloc_topology_init");
  // Packages, NUMA nodes and cores are all that is asked for: the rest costs time on large hosts.
  hwloc_topology_set_cache_types_filter(handle_->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_icache_types_filter(handle_->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(handle_->topology) != 0) refuse("hwloc_topology_load");
}

HostTopology::~HostTopology() = default;

bool HostTopology::of_this_host() const { return hwloc_topology_is_thissystem(handle_->topology) != 0; }

std::vector<int> HostTopology::bound_cpus() const {
  if (!of_this_host()) return {};
  const Bitmap bound;
  if (hwloc_get_cpubind(handle_->topology, bound.get(), HWLOC_CPUBIND_THREAD) != 0) refuse("hwloc_get_cpubind");
  hwloc_bitmap_and(bound.get(), bound.get(), hwloc_topology_get_topology_cpuset(handle_->topology));
  return numbers_of(bound.get());
}

CpuPlace HostTopology::place(const std::vector<int>& cpus) const {
  const Bitmap set;
  for (const int cpu : cpus) hwloc_bitmap_set(set.get(), static_cast<unsigned>(cpu));
  return place_of(handle_->topology, set.get());
}

CpuPlace HostTopology::host() const {
  return place_of(handle_->topology, hwloc_topology_get_topology_cpuset(handle_->topology));
}

std::vector<int> HostTopology::cores_of_numa_nodes() const {
  std::vector<int> counts, last;
  for (const auto* core :
       objects(handle_->topology, HWLOC_OBJ_CORE, hwloc_topology_get_topology_cpuset(handle_->topology))) {
    std::vector<int> nodes = nearest_nodes(objects(handle_->topology, HWLOC_OBJ_NUMANODE, core->cpuset));
    if (counts.empty() || nodes != last) counts.push_back(0);
    ++counts.back();
    last = std::move(nodes);
  }
  return counts;
}

int HostTopology::cpus() const { return hwloc_bitmap_weight(hwloc_topology_get_topology_cpuset(handle_->topology)); }

}  // namespace tessera::jobs

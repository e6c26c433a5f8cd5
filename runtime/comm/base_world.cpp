// SPDX-License-Identifier: Apache-2.0
// Choice of the communicator for a group, and the small collectives of World.
#include "runtime/comm/base_world.hpp"

#include <algorithm>

#include "runtime/comm/cuda/aware.hpp"
#include "runtime/comm/device/staged.hpp"
#include "runtime/comm/nccl/communicator.hpp"
#include "runtime/comm/node/communicator.hpp"

namespace tessera::comm {

namespace {
std::span<std::byte> bytes_of(std::string& text) { return {reinterpret_cast<std::byte*>(text.data()), text.size()}; }
}  // namespace

int BaseWorld::node_rank() const { return rank_ % topology_.ranks_per_node; }
int BaseWorld::node_size() const {
  const int first = rank_ - node_rank();
  return std::min(topology_.ranks_per_node, size_ - first);
}
int BaseWorld::node_count() const { return (size_ + topology_.ranks_per_node - 1) / topology_.ranks_per_node; }

CommunicatorInfo BaseWorld::new_info(const Mesh& mesh, AxisSet axes) {
  TESSERA_ASSERT(mesh.world() == size_, "mesh %s of %d ranks", mesh.str().c_str(), size_);
  CommunicatorInfo info;
  info.watchdog = &watchdog();
  info.index = watchdog().add_group({mesh, axes});
  info.rank = mesh.coordinate(rank_, axes);
  info.members = mesh.members(rank_, axes);
  info.node_members = split_by_node(info.members, topology_.ranks_per_node);
  return info;
}

std::unique_ptr<Communicator> BaseWorld::communicator(const Mesh& mesh, AxisSet axes) {
  CommunicatorInfo info = new_info(mesh, axes);
  if constexpr (nccl_built)
    if (topology_.transport == Transport::nccl)  // a second communicator broadcasts the NCCL id
      return nccl_communicator(std::move(info), device_, host_communicator(new_info(mesh, axes), false));
  auto host = host_communicator(std::move(info), topology_.in_place(mesh, axes));
  if constexpr (cuda_built)
    if (device_.kind == Device::Kind::cuda)
      return staged(std::move(host), {.device = device_,
                                      .gather = mpi_takes_device_memory() ? StagedOptions::Gather::direct
                                                                          : StagedOptions::Gather::staged});
  return host;
}

std::unique_ptr<Communicator> BaseWorld::host_communicator(CommunicatorInfo info, bool in_place) {
  const auto node = node_index_of(info.node_members, info.rank);
  const NodeMembers local = info.node_members[node];
  const bool shares =
      topology_.transport == Transport::node || (topology_.transport == Transport::local && !topology_.local_copies);
  const bool on_node = shares && (info.node_members.size() < info.members.size() || info.members.size() == 1);
  const bool two_levels = on_node && info.node_members.size() > 1;
  barrier();  // the splits below have no timeout, this barrier has one
  // Every rank takes part in both splits, whether its group needs them or not.
  const bool sends = (!on_node && info.members.size() > 1) || (two_levels && local.first == info.rank);
  auto endpoint = split_endpoint(sends ? info.members.front() : -1, two_levels ? static_cast<int>(node) : info.rank);
  auto memory = split_shared_memory(on_node ? info.members[static_cast<std::size_t>(local.first)] : -1, info.rank);
  if (two_levels) return two_level_communicator(std::move(info), std::move(memory), std::move(endpoint));
  if (!on_node) return message_communicator(std::move(info), std::move(endpoint));
  return node_communicator(std::move(info), std::move(memory), in_place ? Sharing::in_place : Sharing::copies);
}

void BaseWorld::open_control() {
  CommunicatorInfo info;
  info.watchdog = &watchdog();
  info.index = watchdog().add_group({Mesh(size_, 1), Axis::replicate});
  info.rank = rank_;
  info.members = Mesh(size_, 1).members(rank_, Axis::replicate);
  info.node_members = split_by_node(info.members, topology_.ranks_per_node);
  control_ = message_communicator(std::move(info), size_ > 1 ? split_endpoint(0, rank_) : nullptr);
}

std::int64_t BaseWorld::sum(std::int64_t value) {
  control_->all_reduce({"sum", "world", -1}, std::span(&value, 1));
  return value;
}

std::int64_t BaseWorld::max(std::int64_t value) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  control_->all_gather({"max", "world", -1}, reinterpret_cast<const std::byte*>(&value),
                       reinterpret_cast<std::byte*>(all.data()), sizeof value);
  return *std::max_element(all.begin(), all.end());
}

std::string BaseWorld::broadcast(const std::string& text) {
  auto length = static_cast<std::int64_t>(text.size());
  control_->broadcast({"broadcast", "length", -1}, {reinterpret_cast<std::byte*>(&length), sizeof length}, 0);
  std::string copy = rank_ == 0 ? text : std::string(static_cast<std::size_t>(length), '\0');
  control_->broadcast({"broadcast", "text", -1}, bytes_of(copy), 0);
  return copy;
}

std::vector<std::string> BaseWorld::gather(const std::string& text) {
  // Lengths first, then one text at a time: rank 0 alone holds all of them.
  const auto length = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(size_));
  control_->all_gather({"gather", "lengths", -1}, reinterpret_cast<const std::byte*>(&length),
                       reinterpret_cast<std::byte*>(lengths.data()), sizeof length);
  std::vector<std::string> texts;
  for (int r = 0; r < size_; ++r) {
    std::string part = r == rank_ ? text : std::string();
    const auto count = static_cast<std::size_t>(lengths[static_cast<std::size_t>(r)]);
    if (rank_ == 0) part.resize(count);
    if (r != 0 && count > 0) send_to_root(*control_, reinterpret_cast<std::byte*>(part.data()), count, r);
    if (rank_ == 0) texts.push_back(std::move(part));
  }
  return texts;
}

MessageCount message_count(const World& world) {
  const auto* const base = dynamic_cast<const BaseWorld*>(&world);
  return base == nullptr ? MessageCount{} : base->messages();
}

void BaseWorld::barrier() { control_->barrier({"barrier", "world", -1}); }

}  // namespace tessera::comm

namespace tessera {

void World::require_equal(const std::string& what, const std::string& text) {
  const bool differs = broadcast(text) != text;
  const auto first = size() - max(differs ? size() - rank() : 0);  // the lowest rank that differs; size() if none
  if (first == size()) return;
  const auto texts = gather(text);
  const auto line = broadcast(texts.empty() ? ""
                                            : "rank 0 has \"" + texts.front() + "\", rank " + std::to_string(first) +
                                                  " \"" + texts[static_cast<std::size_t>(first)] + "\"");
  throw Error(ExitCode::usage, strfmt("ranks differ in %s: rank %ld differs from rank 0: ", what.c_str(), first) + line,
              {}, "Start every rank from the same build with the same options");
}

void World::run_and_agree(const std::function<void()>& phase) {
  std::string failure;  // the exit code, a colon, the line
  try {
    phase();
  } catch (const Error& error) {
    if (error.code() == ExitCode::communication) throw;  // no peer is left to agree with
    failure = std::to_string(static_cast<int>(error.code())) + ":" + error.line();
  } catch (const std::exception& error) {
    failure = std::to_string(static_cast<int>(ExitCode::internal)) + ":" + error.what();
  }
  const auto first = size() - max(failure.empty() ? 0 : size() - rank());
  if (first == size()) return;
  const auto failures = gather(failure);
  const auto told = broadcast(failures.empty() ? "" : failures[static_cast<std::size_t>(first)]);
  const auto colon = told.find(':');
  throw Error(static_cast<ExitCode>(std::stoi(told.substr(0, colon))), told.substr(colon + 1));
}

void World::run_on_rank_0(const std::function<void()>& phase) {
  run_and_agree([&] {
    if (rank() == 0) phase();
  });
}

void World::with_mpi(const char* what, const std::function<void(int)>&) {
  throw Error(ExitCode::usage, "ranks that are threads have no MPI", what);
}

std::string World::text_of_rank_0(const std::function<std::string()>& make) {
  std::string text;
  run_on_rank_0([&] { text = make(); });
  return broadcast(text);
}

}  // namespace tessera

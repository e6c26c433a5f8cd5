// SPDX-License-Identifier: Apache-2.0
// Heartbeat of a process, and collection of statuses from other nodes.
#include "runtime/comm/mpi/watchdog.hpp"

#include <mpi.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "runtime/base/local_work.hpp"
#include "runtime/base/start_thread.hpp"
#include "runtime/comm/mpi/mpi.hpp"

namespace tessera::comm {

namespace {
constexpr int tag_question = 1, tag_answer = 2;
constexpr std::int64_t second = 1'000'000'000;
}  // namespace

struct MpiWatchdog::Reply {
  std::vector<StatusCopy> statuses;
  MPI_Request request = MPI_REQUEST_NULL;
};

/// Sent to every rank of the other nodes.
struct MpiWatchdog::Question {
  std::int64_t number = 0;
  std::vector<MPI_Request> requests;
};

MpiWatchdog::MpiWatchdog(int rank, int world, double timeout_s, int communicator, int ranks_per_node,
                         std::function<void(const Error&)> end)
    : Watchdog(rank, world, timeout_s),
      communicator_(communicator),
      ranks_per_node_(ranks_per_node),
      node_(rank / ranks_per_node),
      end_(std::move(end)) {}

MpiWatchdog::~MpiWatchdog() { stop(); }

void MpiWatchdog::start() {
  mine().alive_ns.store(monotonic_ns());
  heartbeat_thread_ = start_thread("the watchdog", [this] {
    while (!stopping_.load()) {
      heartbeat();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
}

void MpiWatchdog::stop() {
  stopping_.store(true);
  if (heartbeat_thread_.joinable() && heartbeat_thread_.get_id() != std::this_thread::get_id())
    heartbeat_thread_.join();
}

void MpiWatchdog::fail(const Error& error) {
  Watchdog::fail(error);
  set_mpi_usable(false);
  failed_ns_.store(monotonic_ns());
}

bool MpiWatchdog::responsive(const RankStatus& status) const {
  const auto limit = static_cast<std::int64_t>(std::clamp(timeout_s_ / 2, 0.6, 3.0) * 1e9);
  return status.ended.load() || monotonic_ns() - status.alive_ns.load() < limit;
}

void MpiWatchdog::heartbeat() {
  const auto now = monotonic_ns();
  mine().alive_ns.store(now);
  mine().worked_ns.store(last_local_work_ns());
  try {
    if (failed_ns_.load() && now - failed_ns_.load() > second / 2)
      end_(root_or(Error(ExitCode::communication, "the run has failed")));
    find_dead_peers();
    check_blocking_call();
    if (count_ < world_) answer_questions();
  } catch (const Error& error) { end_(error); }
}

void MpiWatchdog::find_dead_peers() {
  // Reported when missing twice in a row: a launcher that ends the whole run is then faster.
  int missing = -1;
  for (int i = 0; i < count_ && missing < 0; ++i) {
    const auto& peer = statuses_[i];
    const auto pid = peer.pid.load();
    if (pid == 0 || peer.ended.load() || peer.pid_namespace.load() != mine().pid_namespace.load()) continue;
    if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) missing = first_ + i;
  }
  const bool again = missing >= 0 && missing == missing_;
  missing_ = missing;
  if (!again) return;
  const auto& peer = statuses_[missing - first_];
  end_(Error(ExitCode::communication,
             strfmt("rank %s has died in step %ld: its process is gone", name_of(missing).c_str(), peer.step.load())));
}

void MpiWatchdog::check_blocking_call() {
  const BlockingCallState call = blocking_call();
  mine().blocking_calls.store(call.begun);
  const double waited = static_cast<double>(monotonic_ns() - call.since_ns) / static_cast<double>(second);
  if (call.name == nullptr || waited < timeout_s_) return;
  std::string late;
  Stragglers stragglers;
  for (int i = 0; i < count_; ++i) {
    if (responsive(statuses_[i]) && statuses_[i].blocking_calls.load() >= call.begun) continue;
    stragglers.ranks.push_back(first_ + i);
    late += (late.empty() ? "rank " : ", rank ") + name_of(first_ + i);
  }
  stragglers.all_entered = stragglers.ranks.empty();
  if (extra_wait_ns(stragglers, own_node(), static_cast<std::int64_t>(timeout_s_ * 1e9)) > 0) return;
  end_(Error(ExitCode::communication,
             late.empty() ? strfmt("%s has not ended, though every rank of this node has begun it", call.name)
                          : late + strfmt(" is late: %s", call.name),
             {}, strfmt("Waited --comm_timeout = %g s", timeout_s_)));
}

void MpiWatchdog::answer_questions() {
  // Not while another thread is in a blocking call, or anyhow for long: this one has to go on, and to tell that it
  // does.
  std::unique_lock lock(mpi_mutex(), std::defer_lock);
  for (int tries = 0; !lock.try_lock_for(std::chrono::milliseconds(20));)
    if (blocking_call().name != nullptr || ++tries == 25) return;
  MPI_Comm comm = MPI_Comm_f2c(communicator_);
  for (;;) {
    int flag = 0;
    MPI_Status status;
    TESSERA_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag_question, comm, &flag, &status));
    if (!flag) break;
    std::int64_t number = 0;
    TESSERA_MPI(MPI_Recv(&number, sizeof number, MPI_BYTE, status.MPI_SOURCE, tag_question, comm, MPI_STATUS_IGNORE));
    if (status.MPI_SOURCE / ranks_per_node_ < node_) asked_ns_.store(monotonic_ns());
    auto& reply = *replies_.emplace_back(std::make_unique<Reply>());
    reply.statuses = own_node();
    for (StatusCopy& own : reply.statuses) own.question = number;
    TESSERA_MPI(MPI_Isend(reply.statuses.data(), static_cast<int>(reply.statuses.size() * sizeof(StatusCopy)), MPI_BYTE,
                          status.MPI_SOURCE, tag_answer, comm, &reply.request));
  }
  std::erase_if(replies_, [](const auto& reply) {
    int done = 0;
    TESSERA_MPI(MPI_Test(&reply->request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  });
}

/// Asks every rank of the other nodes; any that runs answers for its node. With mpi_mutex held.
std::int64_t MpiWatchdog::ask() {
  MPI_Comm comm = MPI_Comm_f2c(communicator_);
  std::erase_if(questions_, [](const auto& earlier) {  // the others wait on for a node that does not receive
    int done = 0;
    TESSERA_MPI(
        MPI_Testall(static_cast<int>(earlier->requests.size()), earlier->requests.data(), &done, MPI_STATUSES_IGNORE));
    return done != 0;
  });
  auto& question = *questions_.emplace_back(std::make_unique<Question>());
  question.number = ++asked_;
  question.requests.reserve(static_cast<std::size_t>(world_));
  for (int r = 0; r < world_; ++r)
    if (r / ranks_per_node_ != node_)
      TESSERA_MPI(MPI_Isend(&question.number, sizeof question.number, MPI_BYTE, r, tag_question, comm,
                            &question.requests.emplace_back(MPI_REQUEST_NULL)));
  return question.number;
}

double MpiWatchdog::defer_s() const {
  // Lower nodes report first; a node that has asked for statuses is about to.
  const double turn = 0.2 * std::min(node_, 4);
  const bool asked = asked_ns_.load() && monotonic_ns() - asked_ns_.load() < second;
  return turn + (asked ? 1.0 : 0.0);
}

std::vector<StatusCopy> MpiWatchdog::collect() {
  const std::lock_guard one_question(collecting_);
  std::vector<StatusCopy> all(static_cast<std::size_t>(world_));
  for (int r = 0; r < world_; ++r) all[static_cast<std::size_t>(r)].rank = r;
  const auto take = [&](const std::vector<StatusCopy>& statuses) {
    for (const auto& s : statuses)
      if (s.rank >= 0 && s.rank < world_) all[static_cast<std::size_t>(s.rank)] = s;
  };
  take(own_node());
  MPI_Comm comm = MPI_Comm_f2c(communicator_);
  const auto nodes = static_cast<std::size_t>((world_ + ranks_per_node_ - 1) / ranks_per_node_);
  std::vector<bool> heard(nodes, false);
  heard[static_cast<std::size_t>(node_)] = true;
  std::int64_t question = 0;
  {
    std::lock_guard lock(mpi_mutex());
    question = ask();
  }
  const auto end = monotonic_ns() + second * 6 / 10;
  while (monotonic_ns() < end && std::find(heard.begin(), heard.end(), false) != heard.end()) {
    {
      std::lock_guard lock(mpi_mutex());
      int flag = 0, bytes = 0;
      MPI_Status status;
      TESSERA_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag_answer, comm, &flag, &status));
      if (flag) {
        TESSERA_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
        std::vector<StatusCopy> statuses(static_cast<std::size_t>(bytes) / sizeof(StatusCopy));
        TESSERA_MPI(MPI_Recv(statuses.data(), bytes, MPI_BYTE, status.MPI_SOURCE, tag_answer, comm, MPI_STATUS_IGNORE));
        if (statuses.empty() || statuses.front().question != question) continue;  // of an earlier one
        take(statuses);
        heard[static_cast<std::size_t>(status.MPI_SOURCE / ranks_per_node_)] = true;
        continue;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return all;
}

}  // namespace tessera::comm

// The record of what a communicator issues.
#include "runtime/comm/base.hpp"

namespace tessera::comm {

BaseCommunicator::BaseCommunicator(Place place)
    : place_(std::move(place)), node_(run_of(place_.runs, place_.rank)), record_(&place_.watch->record(place_.index)) {}

void BaseCommunicator::count_sent(int to, std::size_t bytes) {
  const bool same_node = to >= here().first && to < here().first + here().count;
  (same_node ? traffic_.within_node : traffic_.across_nodes) += bytes;
}

static std::uint64_t mix(std::uint64_t hash, const char* text) {  // FNV-1a
  for (; *text; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3ULL;
  return (hash ^ 0xff) * 0x100000001b3ULL;
}
static std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

BaseCommunicator::Issue::Issue(BaseCommunicator& communicator, const CollectiveLabel& label, std::size_t bytes)
    : communicator_(communicator), exceptions_(std::uncaught_exceptions()) {
  auto& c = communicator_;
  ++c.traffic_.collectives;
  c.record_->write(label, bytes);
  c.waiting_.operation = label.operation;
  c.progress();
  std::uint64_t hash = mix(mix(0xcbf29ce484222325ULL, label.operation), label.unit);
  hash = mix(mix(hash, static_cast<std::uint64_t>(label.micro)), bytes);
  c.tag_ = mix(hash, ++c.issued_);
}

BaseCommunicator::Issue::~Issue() {
  auto& c = communicator_;
  if (std::uncaught_exceptions() == exceptions_) c.record_->left.store(c.issued_, std::memory_order_release);
}

}  // namespace tessera::comm

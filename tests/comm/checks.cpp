// SPDX-License-Identifier: Apache-2.0
// The reference: values are functions of (member, element), and sums follow the binary counter, one float at a time.
#include "checks.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "runtime/base/rng.hpp"
#include "tests/comm/costs.hpp"

namespace tessera::test {

namespace {

using Floats = std::vector<float>;

/// Magnitudes differ by 2^20, so that another order of summation gives other bits.
float value(int salt, int member, std::size_t k) {
  const auto bits = philox(static_cast<std::uint64_t>(salt), k, static_cast<std::uint64_t>(member));
  const float mantissa = static_cast<float>(static_cast<std::int32_t>(bits[0])) * 0x1p-31F;
  return mantissa * static_cast<float>(1 << (bits[1] % 21));
}

float tree(int members, const auto& term) {
  std::vector<std::pair<int, float>> carry;  // level, sum
  for (int i = 0; i < members; ++i) {
    std::pair<int, float> x{0, term(i)};
    while (!carry.empty() && carry.back().first == x.first) {
      x = {x.first + 1, carry.back().second + x.second};
      carry.pop_back();
    }
    carry.push_back(x);
  }
  while (carry.size() > 1) {
    const float last = carry.back().second;
    carry.pop_back();
    carry.back().second = carry.back().second + last;
  }
  return carry.back().second;
}

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

class Checker {
 public:
  Checker(World& world, const Mesh& mesh, AxisSet axis, std::size_t largest)
      : world_(world),
        mesh_(mesh),
        axis_(axis),
        comm_(world.communicator(mesh, axis)),
        size_(comm_->size()),
        me_(comm_->rank()),
        salt_(mesh.members(world.rank(), axis).front()) {
    require(size_ == mesh.size(axis) && me_ == mesh.coordinate(world.rank(), axis), "wrong place on the axis");
    require(comm_->shares_memory() == world.topology().in_place(mesh, axis), "shares_memory is not in_place");
    make_tables(largest * static_cast<std::size_t>(size_));
    const std::size_t bytes = largest * sizeof(float) * static_cast<std::size_t>(size_);
    staging_.resize(staging_bytes(world.topology(), mesh, axis, world.rank(), bytes));
    comm_->set_staging(staging_);
    if (comm_->shares_memory()) region_ = comm_->share(bytes);
  }

  void run(std::size_t chunk) {
    chunk_ = chunk;
    count_ = chunk * static_cast<std::size_t>(size_);
    gather();
    if (comm_->shares_memory()) gather_shared();
    exchange(nullptr);
    if (region_) exchange(region_.base + static_cast<std::size_t>(me_) * region_.bytes_per_rank);
    Floats plain(count_);
    reduce(plain.data());
    all_reduce(plain.data());
    if (region_) {
      float* shared = reinterpret_cast<float*>(region_.base + static_cast<std::size_t>(me_) * region_.bytes_per_rank);
      reduce(shared);
      all_reduce(shared);
    }
    if (chunk <= 1000) {
      reduce_16bit<bf16>();
      reduce_16bit<f16>();
    }
    counters(chunk);
    broadcast(chunk);
    comm_->barrier({"barrier", "test", -1});
  }

 private:
  std::string where(const char* what, std::size_t k) const {
    return strfmt("%s of %zu on %s %s, member %d, element %zu", what, chunk_, mesh_.str().c_str(), axis_.str().c_str(),
                  me_, k);
  }
  /// Element k of a member's full buffer, and the documented sum over members, from tables.
  float at(int member, std::size_t k) const { return values_[static_cast<std::size_t>(member) * largest_ + k]; }
  float summed(std::size_t k) const { return sums_[k]; }
  void make_tables(std::size_t largest) {
    largest_ = largest;
    for (int member = 0; member < size_; ++member)
      for (std::size_t k = 0; k < largest; ++k) values_.push_back(value(salt_, member, k));
    for (std::size_t k = 0; k < largest; ++k) sums_.push_back(tree(size_, [&](int i) { return at(i, k); }));
  }
  void same(float a, float b, const char* what, std::size_t k) const {
    if (std::memcmp(&a, &b, sizeof a) == 0) return;
    throw std::runtime_error(where(what, k) + strfmt(": %a is not %a", static_cast<double>(a), static_cast<double>(b)));
  }
  void counted(const TrafficCount& before, const TrafficCount& wanted, const char* what) const {
    const auto after = comm_->traffic();
    const TrafficCount got{after.within_node - before.within_node, after.across_nodes - before.across_nodes,
                           after.collectives - before.collectives};
    if (!(got == wanted))
      throw std::runtime_error(
          where(what, 0) +
          strfmt(": sent %llu + %llu bytes in %llu, the formula says %llu + %llu in %llu",
                 static_cast<unsigned long long>(got.within_node), static_cast<unsigned long long>(got.across_nodes),
                 static_cast<unsigned long long>(got.collectives), static_cast<unsigned long long>(wanted.within_node),
                 static_cast<unsigned long long>(wanted.across_nodes),
                 static_cast<unsigned long long>(wanted.collectives)));
  }
  TrafficCount priced(CollectiveKind kind) const {
    return test::traffic(world_.topology(), mesh_, axis_, world_.rank(), kind, count_ * sizeof(float));
  }

  void gathered(const float* full, const char* what) const {
    for (std::size_t k = 0; k < count_; ++k)
      same(full[k], at(static_cast<int>(k / std::max<std::size_t>(1, chunk_)), k), what, k);
  }

  void gather() {
    Floats mine(chunk_), full(count_, -1.0F);
    const std::size_t first = static_cast<std::size_t>(me_) * chunk_;
    for (std::size_t k = 0; k < chunk_; ++k) mine[k] = at(me_, first + k);
    auto before = comm_->traffic();
    comm_->all_gather({"gather", "apart", -1}, reinterpret_cast<std::byte*>(mine.data()),
                      reinterpret_cast<std::byte*>(full.data()), chunk_ * 4);
    gathered(full.data(), "gather");
    if (!comm_->shares_memory()) counted(before, priced(CollectiveKind::all_gather), "gather");
    std::fill(full.begin(), full.end(), -1.0F);
    if (chunk_ > 0) std::memcpy(full.data() + first, mine.data(), chunk_ * 4);
    auto* bytes = reinterpret_cast<std::byte*>(full.data());
    comm_->all_gather({"gather", "inside", 0}, bytes + first * 4, bytes, chunk_ * 4);
    gathered(full.data(), "gather in place");
  }

  /// The gathered buffer is the shards: two gathers, with an owner's write and a barrier between.
  void gather_shared() {
    if (chunk_ == 0) return;
    const auto region = comm_->share(chunk_ * 4);
    auto* full = reinterpret_cast<float*>(region.base);
    const std::size_t first = static_cast<std::size_t>(me_) * chunk_;
    for (std::size_t k = 0; k < chunk_; ++k) same(full[first + k], 0.0F, "share is zero", k);
    for (int round = 0; round < 2; ++round) {
      for (std::size_t k = 0; k < chunk_; ++k) full[first + k] = at(me_, first + k) + static_cast<float>(round);
      const auto before = comm_->traffic();
      comm_->all_gather({"gather", "shared", round}, reinterpret_cast<std::byte*>(full + first), region.base,
                        chunk_ * 4);
      counted(before, priced(CollectiveKind::all_gather), "gather shared");
      for (std::size_t k = 0; k < count_; ++k)
        same(full[k], at(static_cast<int>(k / chunk_), k) + static_cast<float>(round), "gather shared", k);
      comm_->barrier({"barrier", "readers", round});
    }
  }

  /// `shared`: memory that peers read, or null: a buffer of this rank.
  void exchange(std::byte* shared) {
    Floats own(count_), received(count_, -1.0F);
    auto* const parts = shared != nullptr ? reinterpret_cast<float*>(shared) : own.data();
    for (std::size_t k = 0; k < count_; ++k) parts[k] = at(me_, k);
    const auto before = comm_->traffic();
    comm_->all_to_all({"exchange", "test", 3}, reinterpret_cast<const std::byte*>(parts),
                      reinterpret_cast<std::byte*>(received.data()), chunk_ * 4);
    counted(before, priced(CollectiveKind::all_to_all), "all_to_all");
    for (std::size_t k = 0; k < count_; ++k)
      same(received[k],
           at(static_cast<int>(k / std::max<std::size_t>(1, chunk_)),
              static_cast<std::size_t>(me_) * chunk_ + k % std::max<std::size_t>(1, chunk_)),
           "all_to_all", k);
    for (std::size_t k = 0; k < count_; ++k) parts[k] = -7;  // allowed: no peer reads it any more
  }

  void reduce(float* full) {
    const std::size_t first = static_cast<std::size_t>(me_) * chunk_;
    Floats mine(chunk_, -1.0F);
    for (int inside = 0; inside < 2; ++inside) {
      for (std::size_t k = 0; k < count_; ++k) full[k] = at(me_, k);
      float* to = inside ? full + first : mine.data();
      const auto before = comm_->traffic();
      comm_->reduce_scatter({"reduce", inside ? "inside" : "apart", 1}, full, to, chunk_);
      counted(before, priced(CollectiveKind::reduce_scatter), "reduce");
      for (std::size_t k = 0; k < chunk_; ++k) same(to[k], summed(first + k), "reduce", k);
      for (std::size_t k = 0; k < count_; ++k)
        if (k < first || k >= first + chunk_) same(full[k], at(me_, k), "reduce changed its input", k);
      for (std::size_t k = 0; k < count_; ++k) full[k] = -7;  // allowed: no peer reads it any more
    }
  }

  void all_reduce(float* data) {
    for (std::size_t k = 0; k < count_; ++k) data[k] = at(me_, k);
    const auto before = comm_->traffic();
    comm_->all_reduce({"norm", "floats", -1}, data, count_);
    counted(before, priced(CollectiveKind::all_reduce), "all_reduce");
    for (std::size_t k = 0; k < count_; ++k) same(data[k], summed(k), "all_reduce", k);
  }

  /// 16-bit inputs: their sum is that of the widened ones, in fp32. In a buffer of this rank,
  /// and in memory that peers read.
  template <class T>
  void reduce_16bit() {
    const auto term = [&](int member, std::size_t k) {
      return T(at(member, k) * 0x1p-8F);
    };  // within the range of fp16
    const DType dtype = dtype_of<T>::value;
    const std::size_t first = static_cast<std::size_t>(me_) * chunk_;
    std::vector<T> plain(count_);
    Floats mine(chunk_, -1.0F), sums(count_, -1.0F);
    std::vector<T*> outputs{plain.data()};
    if (region_)
      outputs.push_back(reinterpret_cast<T*>(region_.base + static_cast<std::size_t>(me_) * region_.bytes_per_rank));
    for (T* full : outputs) {
      for (std::size_t k = 0; k < count_; ++k) full[k] = term(me_, k);
      auto before = comm_->traffic();
      comm_->reduce_scatter({"reduce", name_of(dtype), 1}, SourceBuffer(full, dtype), mine.data(), chunk_);
      counted(before, priced_sum(CollectiveKind::reduce_scatter, dtype), "reduce of 16-bit floats");
      const auto summed_up = [&](std::size_t k) {
        return tree(size_, [&](int i) { return static_cast<float>(term(i, k)); });
      };
      for (std::size_t k = 0; k < chunk_; ++k) same(mine[k], summed_up(first + k), "reduce of 16-bit floats", k);
      before = comm_->traffic();
      comm_->all_reduce({"reduce", name_of(dtype), 2}, SourceBuffer(full, dtype), sums.data(), count_);
      counted(before, priced_sum(CollectiveKind::all_reduce, dtype), "all_reduce of 16-bit floats");
      for (std::size_t k = 0; k < count_; ++k) same(sums[k], summed_up(k), "all_reduce of 16-bit floats", k);
      for (std::size_t k = 0; k < count_; ++k)
        same(full[k], term(me_, k), "a reduce of 16-bit floats changed its input", k);
    }
  }
  TrafficCount priced_sum(CollectiveKind kind, DType dtype) const {
    return sum_traffic(world_.topology(), mesh_, axis_, world_.rank(), kind, count_, dtype);
  }

  void counters(std::size_t count) {
    std::vector<std::int64_t> counters(count);
    for (std::size_t k = 0; k < count; ++k) counters[k] = static_cast<std::int64_t>(k) * 1'000'003 * (me_ + 1) - 5;
    const auto before = comm_->traffic();
    comm_->all_reduce({"norm", "counters", -1}, counters);
    counted(before, counters_traffic(world_.topology(), mesh_, axis_, world_.rank(), count), "counters");
    for (std::size_t k = 0; k < count; ++k)
      if (counters[k] != static_cast<std::int64_t>(k) * 1'000'003 * (size_ * (size_ + 1) / 2) - 5 * size_)
        require(false, where("counters", k));
  }

  void broadcast(std::size_t count) {
    for (int root = 0; root < size_; ++root) {
      std::vector<std::byte> bytes(count * 3);
      for (std::size_t k = 0; k < bytes.size(); ++k)
        bytes[k] = static_cast<std::byte>(me_ == root ? k * 7 + static_cast<std::size_t>(root) : 99);
      comm_->broadcast({"broadcast", "test", root}, bytes, root);
      for (std::size_t k = 0; k < bytes.size(); ++k)
        if (bytes[k] != static_cast<std::byte>(k * 7 + static_cast<std::size_t>(root)))
          require(false, where("broadcast", k));
    }
  }

  World& world_;
  const Mesh mesh_;
  AxisSet axis_;
  std::unique_ptr<Communicator> comm_;
  int size_, me_, salt_;
  std::vector<std::byte> staging_;
  SharedRegion region_;
  std::size_t chunk_ = 0, count_ = 0, largest_ = 0;
  Floats values_, sums_;
};

}  // namespace

/// {replicate, shard, tensor} of `world` ranks, none of them 1 if that is possible.
static Mesh three_axes(int world) {
  const auto factor = [](int n) {
    int f = 2;
    while (f < n && n % f != 0) ++f;
    return n == 1 ? 1 : f;
  };
  const int first = factor(world), second = factor(world / first);
  return Mesh({{Axis::replicate, first}, {Axis::shard, second}, {Axis::tensor, world / first / second}});
}

/// Groups along several axes, which are neighbors in the mesh or not, beside those along one, which are all alive.
static void check_subsets(World& world, std::size_t largest) {
  const Mesh mesh = three_axes(world.size());
  std::vector<std::unique_ptr<Checker>> checkers;
  for (unsigned bits = 0; bits < 8; ++bits) {
    AxisSet axes;
    if ((bits & 1) != 0) axes = axes | Axis::replicate;
    if ((bits & 2) != 0) axes = axes | Axis::shard;
    if ((bits & 4) != 0) axes = axes | Axis::tensor;
    checkers.push_back(std::make_unique<Checker>(world, mesh, axes, largest));
  }
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{37}, largest})
    for (const auto& checker : checkers) checker->run(chunk);
}

void check_collectives(World& world, std::size_t largest) {
  check_subsets(world, std::min<std::size_t>(largest, 1003));
  for (int shard = 1; shard <= world.size(); ++shard) {
    if (world.size() % shard != 0) continue;
    for (const Axis axis : {Axis::replicate, Axis::shard}) {
      Checker checker(world, Mesh(world.size() / shard, shard), axis, largest);
      for (const std::size_t chunk : {std::size_t{1}, std::size_t{0}, std::size_t{37}, std::size_t{1000}, largest})
        if (chunk <= largest) checker.run(chunk);
    }
  }
}

void check_collective(World& world, const Mesh& mesh, Axis axis, const std::vector<std::size_t>& chunks) {
  Checker checker(world, mesh, axis, chunks.back());
  for (const std::size_t chunk : chunks) checker.run(chunk);
}

void check_world(World& world) {
  const int n = world.size(), r = world.rank();
  require(world.sum(r + 1) == n * (n + 1) / 2, "sum");
  require(world.max(-r) == 0 && world.max(r) == n - 1, "max");
  require(world.broadcast("text of " + std::to_string(r)) == "text of 0", "broadcast");
  const auto texts = world.gather(std::string(static_cast<std::size_t>(r) * 3, 'x'));
  require(texts.size() == (r == 0 ? static_cast<std::size_t>(n) : 0), "gather");
  for (std::size_t i = 0; i < texts.size(); ++i) require(texts[i] == std::string(i * 3, 'x'), "gather text");
  world.require_equal("nothing", "the same");
  world.run_and_agree([] {});
  std::string told;
  try {
    world.run_and_agree([&] {
      if (r >= n / 2) throw Error(ExitCode::data, "disk of rank " + std::to_string(r) + " is full");
    });
  } catch (const Error& error) {
    require(error.code() == ExitCode::data, "run_and_agree's code");
    told = error.line();
  }
  require(told == "disk of rank " + std::to_string(n / 2) + " is full", "run_and_agree: " + told);
  if (n == 1) return;
  told.clear();
  try {
    world.require_equal("the seed", r == n - 1 ? "43" : "42");
  } catch (const Error& error) {
    require(error.code() == ExitCode::usage, "require_equal's code");
    told = error.line();
  }
  require(told.find("the seed: rank " + std::to_string(n - 1) + " differs") != std::string::npos,
          "require_equal: " + told);
}

}  // namespace tessera::test

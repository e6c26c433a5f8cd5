// SPDX-License-Identifier: Apache-2.0
// Collectives of device memory between processes: device_ranks mpi|nccl. Over mpi the ranks share the devices and sums
// follow the documented order bit for bit; over nccl each rank has its own device. Exits 0 if all is right, 77 with a
// reason if the devices are missing.
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "kernels/int8_blocks.hpp"
#include "kernels/reduce.hpp"
#include "runtime/base/cuda/devices.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/comm/int8_collectives.hpp"
#include "runtime/comm/world.hpp"

namespace {

using namespace tessera;
using Floats = std::vector<float>;

Floats values(int member, std::size_t count) {
  Floats all(count);
  for (std::size_t k = 0; k < count; ++k) {
    const auto bits = philox(11, k, static_cast<std::uint64_t>(member));
    all[k] =
        static_cast<float>(static_cast<std::int32_t>(bits[0])) * 0x1p-31F * static_cast<float>(1 << (bits[1] % 21));
  }
  return all;
}

/// The text is made of a failure only: of each element it would take most of the test's time.
template <class... Args>
void require(bool good, const char* format, Args... args) {
  if (!good) throw std::runtime_error(strfmt(format, args...));
}

/// A vector's copy on the device.
template <class T>
class OnDevice {
 public:
  OnDevice(Device device, const std::vector<T>& values) : device_(device), count_(values.size()) {
    data_ = cuda::allocate(device_, bytes() + 1);
    copy_now(device_, data_, values.data(), bytes());
  }
  ~OnDevice() { cuda::release(device_, data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(data_); }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    copy_now(device_, values.data(), data_, bytes());
    return values;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }
  Device device_;
  std::size_t count_;
  std::byte* data_ = nullptr;
};

class Check {
 public:
  Check(World& world, const Mesh& mesh, Axis axis)
      : world_(world),
        members_(mesh.members(world.rank(), axis)),
        n_(members_.size()),
        me_(static_cast<std::size_t>(mesh.coordinate(world.rank(), axis))),
        comm_(world.communicator(mesh, axis)),
        stream_("comm", Stream::Mode::immediate, world.device(), Priority::high) {
    comm_->run_on(stream_.view());
    staging_bytes_ = staging_bytes(world.topology(), mesh, axis, world.rank(), std::uint64_t{8} << 20);
    staging_ = Mapping::anonymous(staging_bytes_ + 1, "staging");
    cuda::pin(world.device(), staging_.data(), staging_bytes_ + 1);
    comm_->set_staging({staging_.data(), staging_bytes_});
  }
  ~Check() {
    comm_.reset();
    cuda::unpin(staging_.data());
  }
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  void run(std::size_t chunk) {
    const Device device = world_.device();
    std::vector<Floats> all;
    for (const int member : members_) all.push_back(values(member, chunk * n_));
    Floats sums(chunk * n_);
    std::vector<const float*> parts;
    for (const Floats& part : all) parts.push_back(part.data());
    if (chunk > 0) kernels::sum_tree({.parts = parts, .out = sums.data(), .count = sums.size()}, host_stream);

    const OnDevice<float> full(device, all[me_]), gathered(device, Floats(chunk * n_, -1));
    comm_->reduce_scatter({"reduce", "u", 0}, full.data(), full.data() + me_ * chunk, chunk);
    comm_->all_gather({"gather", "u", -1}, reinterpret_cast<const std::byte*>(full.data() + me_ * chunk),
                      reinterpret_cast<std::byte*>(gathered.data()), chunk * sizeof(float));
    stream_.synchronize();
    compare(gathered.read(), sums, "reduce and gather", chunk);

    const OnDevice<float> in_and_out(device, all[me_]);
    comm_->all_reduce({"reduce", "v", 0}, in_and_out.data(), chunk * n_);
    stream_.synchronize();
    compare(in_and_out.read(), sums, "all_reduce", chunk);

    reduce_16bit(chunk);
    exchange(chunk, all);
    reduce_int8(chunk, all);

    std::vector<std::int64_t> counters(chunk + 1, world_.rank());
    const OnDevice<std::int64_t> device_counters(device, counters);
    comm_->all_reduce({"norm"}, std::span(device_counters.data(), counters.size()));
    const OnDevice<std::int64_t> told(device, counters);
    comm_->broadcast({"broadcast", "w", -1}, std::as_writable_bytes(std::span(told.data(), counters.size())),
                     static_cast<int>(n_) - 1);
    comm_->barrier({"barrier", "w", -1});
    stream_.synchronize();
    std::int64_t total = 0;
    for (const int member : members_) total += member;
    for (const std::int64_t counter : device_counters.read()) require(counter == total, "counters");
    for (const std::int64_t counter : told.read()) require(counter == members_.back(), "broadcast");
  }

 private:
  /// 16-bit inputs whose sums need no rounding: integers below 2^7, whatever adds them in whatever type.
  void reduce_16bit(std::size_t chunk) {
    std::vector<std::uint16_t> input(chunk * n_);
    Floats sums(chunk * n_);
    for (std::size_t k = 0; k < sums.size(); ++k)
      for (std::size_t member = 0; member < n_; ++member) {
        const float term = static_cast<float>(k % 13) + static_cast<float>(member);
        if (member == me_) input[k] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(term) >> 16);
        sums[k] += term;
      }
    const OnDevice<std::uint16_t> full(world_.device(), input);
    const OnDevice<float> in_and_out(world_.device(), Floats(chunk * n_));
    comm_->all_reduce({"reduce", "h", 0}, SourceBuffer(full.data(), DType::bf16), in_and_out.data(), chunk * n_);
    stream_.synchronize();
    const Floats got = in_and_out.read();
    for (std::size_t k = 0; k < sums.size(); ++k)
      require(got[k] == sums[k], "bf16 of %zu, element %zu: %a is not %a", chunk, k, static_cast<double>(got[k]),
              static_cast<double>(sums[k]));
  }
  void exchange(std::size_t chunk, const std::vector<Floats>& all) {
    const OnDevice<float> parts(world_.device(), all[me_]), received(world_.device(), Floats(chunk * n_, -1));
    comm_->all_to_all({"exchange", "u", 0}, reinterpret_cast<const std::byte*>(parts.data()),
                      reinterpret_cast<std::byte*>(received.data()), chunk * sizeof(float));
    stream_.synchronize();
    const Floats got = received.read();
    for (std::size_t k = 0; k < got.size(); ++k) {
      const float wanted = all[k / chunk][me_ * chunk + k % chunk];
      require(std::memcmp(&got[k], &wanted, sizeof wanted) == 0, "all_to_all of %zu, element %zu", chunk, k);
    }
  }
  /// The same bits over every transport: members send codes, and add by themselves.
  void reduce_int8(std::size_t chunk, const std::vector<Floats>& all) {
    const std::size_t bytes = kernels::int8_bytes(chunk);
    std::vector<std::byte> parts(n_ * bytes);
    Floats wanted(chunk * n_), sum(chunk);
    for (std::size_t owner = 0; owner < n_; ++owner) {
      for (std::size_t i = 0; i < n_; ++i)
        kernels::encode_int8({.x = all[i].data() + owner * chunk, .to = parts.data() + i * bytes, .count = chunk},
                             host_stream);
      kernels::sum_tree_int8({.parts = parts.data(), .number = n_, .out = sum.data(), .count = chunk}, host_stream);
      kernels::encode_int8({.x = sum.data(), .to = parts.data(), .count = chunk}, host_stream);
      kernels::decode_int8({.from = parts.data(), .to = wanted.data() + owner * chunk, .count = chunk}, host_stream);
    }
    const OnDevice<float> in_and_out(world_.device(), all[me_]);
    const OnDevice<std::byte> staging(world_.device(), std::vector<std::byte>(comm::int8_sum_staging(n_, chunk)));
    comm::int8_all_reduce(*comm_, {"reduce", "i", 0}, in_and_out.data(), in_and_out.data(), chunk * n_, nullptr,
                          {staging.data(), comm::int8_sum_staging(n_, chunk)}, stream_.view());
    stream_.synchronize();
    const Floats got = in_and_out.read();
    require(got.empty() || std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) == 0, "int8 of %zu",
            chunk);
  }
  void compare(const Floats& got, const Floats& wanted, const char* what, std::size_t chunk) const {
    const bool exact = world_.topology().transport != Transport::nccl;  // whose order is its own
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      const bool good =
          exact ? std::memcmp(&got[k], &wanted[k], 4) == 0 : std::abs(got[k] - wanted[k]) <= 1e-6F * 0x1p20F;
      require(good, "%s of %zu, element %zu: %a is not %a", what, chunk, k, static_cast<double>(got[k]),
              static_cast<double>(wanted[k]));
    }
  }

  World& world_;
  std::vector<int> members_;
  std::size_t n_, me_;
  std::unique_ptr<Communicator> comm_;
  Stream stream_;
  Mapping staging_;
  std::size_t staging_bytes_ = 0;
};

void check(World& world) {
  for (int shard = 1; shard <= world.size(); ++shard) {
    if (world.size() % shard != 0) continue;
    const Mesh mesh(world.size() / shard, shard);
    for (const Axis axis : {Axis::shard, Axis::replicate}) {
      // A run makes no group of one rank (shard::Groups), and staging_bytes() has nothing for it.
      if (mesh.size(axis) == 1 && world.topology().transport != Transport::nccl) continue;
      Check one(world, mesh, axis);
      for (const std::size_t chunk : {std::size_t{1}, std::size_t{0}, std::size_t{1001}, std::size_t{3'000'001}})
        one.run(chunk);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const bool nccl = std::strcmp(argv[1], "nccl") == 0;
  const auto& survey = cuda::survey();
  const char* ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const std::size_t wanted = nccl && ranks != nullptr ? static_cast<std::size_t>(std::atoi(ranks)) : 1;
  if (survey.devices.size() < wanted) {
    std::printf("skipped: %zu devices, %zu wanted. %s\n", survey.devices.size(), wanted, survey.why_none.c_str());
    return 77;
  }
  try {
    const auto world = bootstrap({.comm = nccl ? WorldOptions::Comm::nccl : WorldOptions::Comm::mpi,
                                  .backend = WorldOptions::Backend::cuda,
                                  .comm_timeout_s = 60});
    try {
      check(*world);
    } catch (const Error& error) { world->abort(error); } catch (const std::exception& error) {
      world->abort(Error(ExitCode::internal, error.what()));
    }
    log::info(strfmt("%d ranks over %s on %zu devices: all as it should be", world->size(),
                     name_of(world->topology().transport), survey.devices.size()));
  } catch (const Error& error) {
    log::error(error.line());
    return static_cast<int>(error.code());
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// `tessera bench convert`: conversions against an O_DIRECT copy of the same bytes, alternately.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/directory.hpp"
#include "io/convert/convert.hpp"
#include "io/file/thread_tasks.hpp"
#include "io/model/model_files.hpp"
#include "jobs/bench/tools.hpp"
#include "jobs/cli/session/versions.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t cast_block = io::block_bytes;
constexpr int copy_threads = 2;  // of a rank, for conversion and copy

/// A thread's memory: a block, and its copy where a direct write needs one.
struct Buffers {
  io::DirectBuffer data{cast_block}, bounce{cast_block};
};

/// Calls `work` on this rank's threads for each block of its share of [0, bytes): offset, length, memory.
void each_block(World& world, std::uint64_t bytes,
                const std::function<void(std::uint64_t, std::size_t, Buffers&)>& work) {
  const std::uint64_t blocks = (bytes + cast_block - 1) / cast_block, ranks = static_cast<std::uint64_t>(world.size()),
                      rank = static_cast<std::uint64_t>(world.rank());
  const std::uint64_t first = blocks * rank / ranks, last = blocks * (rank + 1) / ranks;
  std::vector<Buffers> of_threads(copy_threads);
  io::run_tasks(static_cast<std::size_t>(last - first), of_threads, [&](Buffers& buffers, std::size_t i) {
    const std::uint64_t at = (first + i) * cast_block;
    work(at, static_cast<std::size_t>(std::min(cast_block, bytes - at)), buffers);
  });
}

void create(World& world, const std::string& path, std::uint64_t bytes) {
  world.run_on_rank_0([&] {
    io::remove_quietly(path);
    io::File file = io::File::create(path);
    file.allocate(bytes);
    file.close();
  });
}

/// The disk without us.
double raw_copy(World& world, const std::string& from, const std::string& to) {
  std::uint64_t bytes = 0;
  world.run_and_agree([&] { bytes = io::File::open_to_read(from).size(); });
  create(world, to, bytes);
  const double seconds = timed(world, [&] {
    io::DirectFile in(from, io::DirectFile::Access::read), out(to, io::DirectFile::Access::write);
    if (!in.direct() || !out.direct())
      throw Error(ExitCode::data, "this file system has no O_DIRECT: there is no disk to measure against", to,
                  "Choose another --dir");
    each_block(world, bytes, [&](std::uint64_t at, std::size_t n, Buffers& buffers) {
      out.write(at, in.read(at, at + n, buffers.data), buffers.bounce);
    });
    out.finish();
  });
  if (world.rank() == 0) io::remove_quietly(to);
  return seconds;
}

/// A model of about `bytes` in fp32: blocks of matrices and biases.
std::vector<io::SafetensorsTensor> made_tensors(std::uint64_t bytes) {
  constexpr std::int64_t width = 1024, matrices = 12;
  std::vector<io::SafetensorsTensor> tensors;
  for (std::int64_t b = 0;
       b < std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / (4 * width * width * matrices))); ++b)
    for (std::int64_t m = 0; m < matrices; ++m) {
      tensors.push_back({strfmt("h.%ld.w%ld.weight", b, m), DType::f32, {width, width}});
      tensors.push_back({strfmt("h.%ld.w%ld.bias", b, m), DType::f32, {width}});
    }
  return tensors;
}

/// DIRECTORY/model.safetensors with these tensors and numbers of no meaning.
void make_model(World& world, const std::string& directory, const std::vector<io::SafetensorsTensor>& tensors) {
  const io::ModelFiles files = io::plan_model_files(tensors, ~std::uint64_t{0} >> 1);
  const std::string path = directory + "/" + files.files[0].name;
  world.run_on_rank_0([&] { io::make_directories(directory); });
  const std::uint64_t bytes = files.files[0].plan.file_bytes;
  create(world, path, bytes);
  world.run_and_agree([&] {
    io::DirectFile out(path, io::DirectFile::Access::write);
    const std::string& header = files.files[0].plan.header;
    each_block(world, bytes, [&](std::uint64_t at, std::size_t n, Buffers& buffers) {
      const std::span buffer = buffers.data.span().first(n);
      auto* const numbers = reinterpret_cast<float*>(buffer.data());
      for (std::size_t i = 0; i < buffer.size() / sizeof(float); ++i)
        numbers[i] = static_cast<float>(static_cast<std::int32_t>((at + i) * 2654435761u)) * 1e-9F;
      for (std::size_t i = 0; at + i < header.size() && i < buffer.size(); ++i)
        buffer[i] = static_cast<std::byte>(header[at + i]);
      out.write(at, buffer, buffers.bounce);
    });
    out.finish();
  });
}

std::vector<io::ConvertTensor> identity_tensors(const io::TensorCatalog& stored, std::size_t skip) {
  std::vector<io::ConvertTensor> tensors;
  for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
    const io::TensorEntry& t = stored.tensors[i];
    Shape shape;
    for (const std::int64_t dimension : t.shape) shape.push_back(dimension);
    tensors.push_back({t.name.substr(skip), DType::f32, shape, {{static_cast<int>(i), 0, t.numel()}}});
  }
  return tensors;
}

double to_native(World& world, const std::string& from, const std::string& to) {
  io::TensorCatalog stored;
  world.run_and_agree([&] { stored = io::catalog_safetensors(from); });
  const auto start = Clock::now();
  (void)io::convert_to_checkpoint(world, stored, identity_tensors(stored, 0),
                                  {.directory = to, .max_file_bytes = ~std::uint64_t{0} >> 1},
                                  {.threads = copy_threads});
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double to_hf(World& world, const std::string& from, const std::string& to) {
  const auto start = Clock::now();
  const io::CheckpointReader checkpoint(world, from);
  const io::TensorCatalog stored = io::catalog_checkpoint(from, checkpoint.manifest());
  (void)io::convert_to_safetensors(world, stored, identity_tensors(stored, std::string("/model/").size()),
                                   {.directory = to, .max_file_bytes = ~std::uint64_t{0} >> 1},
                                   {.threads = copy_threads});
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void bench_convert_command(const Call& call, World& world) {
  const Options& options = call.options();
  const std::string base = options.text("dir") + "/tessera-bench-convert", model = base + ".model",
                    native = base + ".native", out = base + ".out";
  const auto clean = [&] {
    if (world.rank() != 0) return;
    for (const std::string& path : {model, native, out}) io::remove_tree_quietly(path);
  };
  const std::int64_t turns = options.given("bench_repeats") ? options.integer("bench_repeats") : 3;
  std::vector<double> raw, hf, back;
  double bytes = 0;
  try {
    clean();
    make_model(world, model, made_tensors(options.bytes("size")));
    (void)to_native(world, model, native);
    const std::string file = native + "/" + io::read_manifest(native).files[0].name;
    bytes = static_cast<double>(io::read_manifest(native).files[0].bytes);
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      raw.push_back(bytes / raw_copy(world, file, base + ".raw"));
      hf.push_back(bytes / to_hf(world, native, out));
      if (world.rank() == 0) io::remove_tree_quietly(out);
      world.barrier();
      back.push_back(bytes / to_native(world, model, out));
      if (world.rank() == 0) io::remove_tree_quietly(out);
      world.barrier();
    }
  } catch (...) {
    clean();
    throw;
  }
  clean();
  if (options.flag("json")) {
    nlohmann::ordered_json json = {{"ranks", world.size()},
                                   {"bytes", bytes},
                                   {"raw_copy_bytes_per_s", median(raw)},
                                   {"to_hf_bytes_per_s", median(hf)},
                                   {"to_native_bytes_per_s", median(back)},
                                   {"to_hf_over_raw", median(hf) / median(raw)},
                                   {"to_native_over_raw", median(back) / median(raw)}};
    return log::info(json.dump(2));
  }
  log::info(version_line());
  log::info(strfmt("%s, %d ranks, %d threads each; medians of %ld turns; all of them sync", human_bytes(bytes).c_str(),
                   world.size(), copy_threads, turns));
  log::info(strfmt("%-34s %10s/s", "copy, O_DIRECT read and write", human_bytes(median(raw)).c_str()));
  log::info(strfmt("%-34s %10s/s  %5.1f%% of the copy", "checkpoint -> safetensors, checked",
                   human_bytes(median(hf)).c_str(), 100 * median(hf) / median(raw)));
  log::info(strfmt("%-34s %10s/s  %5.1f%% of the copy", "safetensors -> checkpoint", human_bytes(median(back)).c_str(),
                   100 * median(back) / median(raw)));
}

}  // namespace tessera::jobs

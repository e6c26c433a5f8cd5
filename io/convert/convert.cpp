// SPDX-License-Identifier: Apache-2.0
// From tensors to a committed directory: plan, check the space, write, verify, rename.
#include "io/convert/convert.hpp"

#include <chrono>
#include <filesystem>
#include <map>

#include "io/checkpoint/transaction.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_directory.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_auxiliary_bytes = 1u << 30;

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Checks the space; returns the new name of an existing output directory, "" if there is none.
std::string prepare(World& world, const ConvertTarget& target, std::uint64_t bytes) {
  return world.text_of_rank_0([&] {
    for (const auto& a : target.auxiliary_files)
      bytes += a.source.empty() ? a.text.size() : File::open_to_read(a.source).size();
    check_space(target.directory, bytes);
    std::error_code failed;
    return target.replace && fs::exists(target.directory, failed) ? backup_path(target.directory) : std::string();
  });
}

/// A manifest has their checksums.
std::vector<AuxiliaryFile> in_memory(std::vector<AuxiliaryFile> files) {
  for (AuxiliaryFile& file : files)
    if (!file.source.empty()) file = {file.name, read_text(file.source, most_auxiliary_bytes)};
  return files;
}

/// Writes, and verifies if asked to; fills in the times.
void run(World& world, Conversion& conversion, const ConvertTarget& target, ConvertReport& report) {
  const auto start = Clock::now();
  conversion.write(world);
  report.seconds = since(start);
  if (!target.verify) return;
  const auto again = Clock::now();
  conversion.verify(world);
  report.verify_seconds = since(again);
}

}  // namespace

ConvertReport convert_to_safetensors(World& world, const TensorCatalog& source,
                                     const std::vector<ConvertTensor>& tensors, const ConvertTarget& target,
                                     ConvertOptions options) {
  std::vector<SafetensorsTensor> planned;
  for (const ConvertTensor& t : tensors) planned.push_back({t.name, t.dtype, t.shape, t.stored});
  const ModelFiles files = target.file.empty() ? plan_model_files(planned, target.max_file_bytes, target.metadata)
                                               : plan_model_file(planned, target.file, target.metadata);
  ConvertReport report{.tensors = static_cast<std::int64_t>(tensors.size()),
                       .files = static_cast<int>(files.files.size())};
  for (const PlannedFile& file : files.files) report.bytes += file.plan.file_bytes;
  const std::string backup = prepare(world, target, report.bytes + files.index.size());

  ModelDirectory directory(world, target.directory, files, ModelDirectory::Holds::model_alone);
  ConversionPlan plan;
  const std::vector<std::string> paths = directory.paths();
  for (std::size_t f = 0; f < files.files.size(); ++f)
    plan.files.push_back({paths[f], files.files[f].plan.file_bytes, files.files[f].plan.header});
  for (std::size_t i = 0; i < tensors.size(); ++i)
    plan.tensors.push_back({tensors[i].name, tensors[i].dtype, files.locations[i].file, files.locations[i].begin,
                            tensors[i].shape.numel(), tensors[i].slices});
  Conversion conversion(source, std::move(plan), std::move(options));
  run(world, conversion, target, report);
  directory.commit(target.auxiliary_files, backup);
  report.backup = backup;
  return report;
}

ConvertReport convert_to_checkpoint(World& world, const TensorCatalog& source,
                                    const std::vector<ConvertTensor>& tensors, const ConvertTarget& target,
                                    ConvertOptions options) {
  std::vector<ParamSpec> params;
  std::map<std::string, const ConvertTensor*> by_path;
  for (const ConvertTensor& t : tensors) {
    params.push_back({.name = t.name, .shape = t.shape});
    by_path[model_group + t.name] = &t;
  }
  const std::vector<StateFile> files = plan_state_files(params, /*states=*/{}, target.max_file_bytes);
  ConvertReport report{.tensors = static_cast<std::int64_t>(tensors.size()), .files = static_cast<int>(files.size())};
  for (const StateFile& file : files)
    for (const auto& d : file.datasets) report.bytes += d.bytes + hdf5_alignment;
  const std::string backup = prepare(world, target, report.bytes);

  std::vector<AuxiliaryFile> auxiliary_files;
  world.run_on_rank_0([&] { auxiliary_files = in_memory(target.auxiliary_files); });
  CheckpointTransaction transaction(world, {.directory = target.directory,
                                            .step = 0,
                                            .optimizer = false,
                                            .files = files,
                                            .auxiliary_files = auxiliary_files,
                                            .backup = backup,
                                            .must_be_new = backup.empty()});
  ConversionPlan plan;
  const std::vector<std::string> paths = transaction.paths();
  report.bytes = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const StateFile& file = transaction.files()[f];
    plan.files.push_back({paths[f], file.bytes, {}});
    for (const auto& d : file.datasets) {
      const ConvertTensor& t = *by_path.at(d.path);
      plan.tensors.push_back({t.name, d.dtype, static_cast<int>(f), d.offset, t.shape.numel(), t.slices});
    }
    report.bytes += file.bytes;
  }
  options.checksums = true;
  Conversion conversion(source, std::move(plan), std::move(options));
  run(world, conversion, target, report);
  transaction.commit(conversion.checksums(), "{}", target.run_metadata);
  report.backup = backup;
  return report;
}

}  // namespace tessera::io

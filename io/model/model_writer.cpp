// SPDX-License-Identifier: Apache-2.0
// write_model: every rank writes its own slices of the weight files.

#include <algorithm>
#include <map>
#include <memory>

#include "io/file/crc32c.hpp"
#include "io/file/file.hpp"
#include "io/model/bnb_tensors.hpp"
#include "io/model/model_directory.hpp"
#include "io/model/model_io.hpp"
#include "io/model/model_part.hpp"
#include "io/model/safetensors_index.hpp"
#include "kernels/convert.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

namespace {

/// As `dtype`. A device's memory is copied through a host buffer; other types are converted in one.
void write_elements(const File& file, std::uint64_t offset, const TensorView& elements, DType dtype,
                    const std::string& name) {
  if (elements.device == host_device && elements.dtype == dtype)
    return file.write_at(offset, {static_cast<const std::byte*>(elements.data), elements.nbytes()});
  constexpr auto most = static_cast<std::int64_t>(host_staging_bytes / sizeof(float));
  const auto room = static_cast<std::size_t>(std::min(most, elements.numel()));
  std::vector<std::byte> converted(room * size_of(dtype));
  std::vector<std::byte> copied(elements.dtype == dtype ? 0 : room * size_of(elements.dtype));
  for (std::int64_t done = 0; done < elements.numel(); done += most) {
    const TensorView rows = elements.rows(done, std::min(most, elements.numel() - done));
    copy_now(rows.device, copied.empty() ? converted.data() : copied.data(), rows.data, rows.nbytes());
    if (!copied.empty() &&
        kernels::convert_bytes({copied.data(), rows.dtype, converted.data(), dtype, rows.numel()}) < rows.numel())
      throw Error(ExitCode::data, strfmt("%s has an element that %s cannot hold", name.c_str(), name_of(dtype)), {},
                  "Save in bf16 or fp32");
    file.write_at(offset + static_cast<std::uint64_t>(done) * size_of(dtype),
                  {converted.data(), static_cast<std::size_t>(rows.numel()) * size_of(dtype)});
  }
}

/// The slices of this rank's shards, durably. `params`: the parameter of each tensor. Returns the bytes written.
std::uint64_t write_shards(const ModelFiles& model, std::span<const int> params, const std::vector<std::string>& paths,
                           const std::vector<SafetensorsTensor>& tensors, const shard::ShardLayout& layout,
                           std::span<const ShardView> shards, int rank) {
  std::vector<File> files(paths.size());  // those that this rank writes to
  std::uint64_t written = 0;
  std::multimap<int, std::size_t> tensors_of;
  for (std::size_t t = 0; t < params.size(); ++t) tensors_of.emplace(params[t], t);
  for (const auto& view : shards) {
    if (layout.replica_of(view.unit, rank) != 0) continue;
    const std::int64_t first = view.shard * layout.shard_numel(view.unit);
    for (const auto& s : layout.whole_segments(view.unit, view.shard, view.part)) {
      const auto [begin, end] = tensors_of.equal_range(s.param);
      for (auto at = begin; at != end; ++at) {
        const ModelFiles::TensorLocation& location = model.locations[at->second];
        const SafetensorsTensor& tensor = tensors[at->second];
        const auto f = static_cast<std::size_t>(location.file);
        if (files[f].descriptor() < 0) files[f] = File::open_to_write(paths[f]);
        write_elements(files[f], location.begin + static_cast<std::uint64_t>(s.param_offset) * size_of(tensor.dtype),
                       view.data.rows(s.unit_offset - first, s.length), tensor.dtype, tensor.name);
        written += static_cast<std::uint64_t>(s.length) * size_of(tensor.dtype);
      }
    }
  }
  for (File& file : files) {
    if (file.descriptor() < 0) continue;
    file.sync();
    file.close();
  }
  return written;
}

/// Of the model of which the parameters are a part: the names of parameters in its files, and its other tensors.
struct OtherTensors {
  std::vector<SafetensorsFile> files;
  std::map<std::string, std::string> names;
  std::vector<StoredTensor> tensors;

  explicit OtherTensors(const PartOf& of) : files(open_safetensors_model(of.directory)) {
    for (const SafetensorsFile& file : files)
      for (const SafetensorsEntry& entry : file.entries()) {
        const TensorUse use = of.use(entry.name);
        if (use.ignored()) add({&file, &entry});
        else if (use.parts.size() == 1) names.emplace(use.parts.front(), entry.name);
      }
  }
  void add(const StoredTensor& tensor) {
    const std::string_view type = tensor.entry->type;
    if (type.starts_with("F8") || type.starts_with("F4") || type.starts_with("F6") || type == "U8" || type == "I8")
      throw Error(ExitCode::usage,
                  tensor.file->path() + ": " + quote_name(tensor.entry->name) + " is " + tensor.entry->type +
                      ", and tensors of other parts than the text are copied only in floats",
                  {}, "Give the model in bf16");
    tensors.push_back(tensor);
  }
  [[nodiscard]] const std::string& name_of(const std::string& parameter) const {
    const auto found = names.find(parameter);
    return found == names.end() ? parameter : found->second;
  }
};

/// Calls use(offset, bytes) for the tensor's bytes, part by part.
template <class Use>
void for_each_part(const StoredTensor& tensor, const Use& use) {
  constexpr std::uint64_t most = 4 << 20;
  const std::uint64_t bytes = tensor.entry->end - tensor.entry->begin;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(most, bytes)));
  for (std::uint64_t done = 0; done < bytes; done += buffer.size()) {
    const std::span<std::byte> part = std::span(buffer).first(static_cast<std::size_t>(std::min(most, bytes - done)));
    tensor.file->read_bytes(*tensor.entry, done, part);
    use(done, part);
  }
}

/// Copies every `ranks`-th of the other tensors, the last ones of the model, from the `rank`-th on. Returns the bytes.
std::uint64_t copy_others(const OtherTensors& others, const ModelFiles& model, const std::vector<std::string>& paths,
                          std::size_t rank, std::size_t ranks) {
  std::uint64_t copied = 0;
  const std::size_t first = model.locations.size() - others.tensors.size();
  for (std::size_t i = rank; i < others.tensors.size(); i += ranks) {
    const StoredTensor& tensor = others.tensors[i];
    const ModelFiles::TensorLocation& to = model.locations[first + i];
    File file = File::open_to_write(paths[static_cast<std::size_t>(to.file)]);
    for_each_part(tensor, [&](std::uint64_t offset, std::span<const std::byte> part) {
      file.write_at(to.begin + offset, part);
      copied += part.size();
    });
    file.sync();
    file.close();
  }
  return copied;
}

void write_headers(const ModelFiles& model, const std::vector<std::string>& paths) {
  for (std::size_t f = 0; f < paths.size(); ++f) {
    File file = File::open_to_write(paths[f]);
    file.write_at(0, std::as_bytes(std::span(model.files[f].plan.header)));
    file.sync();
    file.close();
  }
}

void write_with_others(World& world, const std::string& directory, const std::string& config,
                       std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                       std::span<const ShardView> shards, const WriteModelOptions& options,
                       const OtherTensors* others) {
  std::vector<SafetensorsTensor> tensors;
  std::vector<int> param_of;
  const auto add = [&](const std::string& name, int param) {
    tensors.push_back(
        {.name = name, .dtype = options.dtype, .shape = params[static_cast<std::size_t>(param)].whole_shape()});
    param_of.push_back(param);
  };
  for (const auto& tensor : options.tensors) add(tensor.name, tensor.param);
  for (std::size_t p = 0; options.file.empty() && p < params.size(); ++p)
    if (!params[p].adapter)
      add(others != nullptr ? others->name_of(params[p].name) : params[p].name, static_cast<int>(p));
  if (others != nullptr)
    for (const StoredTensor& tensor : others->tensors) {
      const StoredForm form{find_safetensors_type(tensor.entry->type), tensor.entry->shape};
      tensors.push_back({.name = tensor.entry->name, .dtype = DType::u8, .shape = {}, .stored = form});
      param_of.push_back(-1);
    }
  ModelFiles model = options.file.empty() ? plan_model_files(tensors, options.max_shard_bytes)
                                          : plan_model_file(tensors, options.file, options.metadata);
  model.config_name = options.config_name;
  std::uint64_t expected = 0, written = 0;
  for (const auto& file : model.files) expected += file.plan.file_bytes - file.plan.header.size();

  ModelDirectory target(
      world, directory, model,
      options.new_directory ? ModelDirectory::Holds::model_alone : ModelDirectory::Holds::other_files);
  std::vector<AuxiliaryFile> auxiliary_files;
  world.run_and_agree([&] {
    if (world.rank() == 0) {
      write_headers(model, target.paths());
      if (!options.auxiliary_source.empty()) auxiliary_files = read_auxiliary_files(options.auxiliary_source);
      for (const AuxiliaryFile& file : options.auxiliary_files) replace(auxiliary_files, file);
      auxiliary_files.push_back({options.config_name, config});
    }
    written = write_shards(model, param_of, target.paths(), tensors, layout, shards, world.rank());
    if (others != nullptr)
      written += copy_others(*others, model, target.paths(), static_cast<std::size_t>(world.rank()),
                             static_cast<std::size_t>(world.size()));
  });
  const auto all = static_cast<std::uint64_t>(world.sum(static_cast<std::int64_t>(written)));
  TESSERA_ASSERT(all == expected, "%lu bytes written of %lu", all, expected);
  target.commit(auxiliary_files);
}

}  // namespace

void write_model(World& world, const std::string& directory, const std::string& config,
                 std::span<const ParamSpec> params, const shard::ShardLayout& layout, std::span<const ShardView> shards,
                 const WriteModelOptions& options) {
  write_with_others(world, directory, config, params, layout, shards, options, nullptr);
}

void check_copied_tensors(const PartOf& whole) { (void)OtherTensors(whole); }

std::uint32_t checksum_of_copied(World& world, const PartOf& whole) {
  std::string lines;  // one a tensor
  world.run_and_agree([&] {
    const OtherTensors others(whole);
    for (auto i = static_cast<std::size_t>(world.rank()); i < others.tensors.size();
         i += static_cast<std::size_t>(world.size())) {
      const SafetensorsEntry& entry = *others.tensors[i].entry;
      std::uint32_t crc = 0;
      for_each_part(others.tensors[i],
                    [&](std::uint64_t, std::span<const std::byte> part) { crc = crc32c(crc, part); });
      lines += quote_name(entry.name) + " " + entry.type;
      for (const std::int64_t dimension : entry.shape) lines += strfmt(" %ld", dimension);
      lines += strfmt(" %08x\n", crc);
    }
  });
  const std::vector<std::string> of_ranks = world.gather(lines);
  const std::string crc = world.text_of_rank_0([&] {
    std::vector<std::string> all;
    for (const std::string& text : of_ranks)
      for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
        end = text.find('\n', at) + 1;
        all.push_back(text.substr(at, end - at));
      }
    std::ranges::sort(all);
    std::uint32_t sum = 0;
    for (const std::string& line : all) sum = crc32c(sum, std::as_bytes(std::span(line)));
    return std::to_string(sum);
  });
  return static_cast<std::uint32_t>(std::stoul(crc));
}

void write_model_part(World& world, const std::string& directory, const std::string& config,
                      std::span<const ParamSpec> params, const shard::ShardLayout& layout,
                      std::span<const ShardView> shards, const WriteModelOptions& options, const PartOf& whole) {
  std::unique_ptr<OtherTensors> others;
  world.run_and_agree([&] { others = std::make_unique<OtherTensors>(whole); });
  write_with_others(world, directory, config, params, layout, shards, options, others.get());
}

}  // namespace tessera::io

// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/model_tensors.hpp"

#include <algorithm>
#include <map>

#include "io/checkpoint/checkpoint.hpp"
#include "io/file/crc32c.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_match.hpp"
#include "io/model/model_part.hpp"
#include "io/model/safetensors.hpp"
#include "jobs/cli/session/weights.hpp"
#include "kernels/convert.hpp"
#include "models/quantize.hpp"

namespace tessera::jobs {

ModelTensors match_model_tensors(const models::Model& model, const io::TensorCatalog& stored,
                                 const std::string& source) {
  std::vector<io::TensorInfo> infos;
  for (const io::TensorEntry& t : stored.tensors)
    infos.push_back({t.name, t.shape, t.type, t.known && is_float(t.dtype)});
  const io::ModelMatch match = io::match_model(
      infos, source, model.params, [&](const std::string& name) { return models::tensor_use(model, name); });
  ModelTensors result;
  for (std::size_t i = 0; i < model.params.size(); ++i) {
    const auto& [tensor, first] = match.params[i];
    const ParamSpec& param = model.params[i];
    result.tensors.push_back({param.name, DType::f32, param.shape, {{tensor, first, param.numel()}}});
  }
  for (const auto& [tensor, param] : match.copies)
    result.copies.push_back({tensor, match.params[static_cast<std::size_t>(param)].tensor});
  return result;
}

namespace {

CheckpointTensors tensors_of(const models::Model& model, const std::string& directory, int depth);

/// Adds the files and tensors of `base`; returns what to add to an index of its tensors.
int append(io::TensorCatalog& stored, const io::TensorCatalog& base) {
  const auto files = static_cast<int>(stored.files.size()), tensors = static_cast<int>(stored.tensors.size());
  stored.files.insert(stored.files.end(), base.files.begin(), base.files.end());
  for (io::TensorEntry tensor : base.tensors) {
    tensor.file += files;
    stored.tensors.push_back(std::move(tensor));
  }
  stored.make_index();  // keeps the order: the files of `base` come after the others
  return tensors;
}

std::uint32_t crc_as(const CheckpointTensors& source, const io::ConvertTensor& tensor, DType dtype,
                     io::BlockCache& cache, std::uint32_t crc) {
  constexpr std::int64_t most = 1 << 20;  // elements at a time
  std::vector<std::byte> bytes, converted;
  for (const io::TensorSlice& slice : tensor.slices) {
    const io::TensorEntry& entry = source.stored.tensors[static_cast<std::size_t>(slice.tensor)];
    const auto width = static_cast<std::int64_t>(size_of(entry.dtype));
    for (std::int64_t done = 0; done < slice.count; done += most) {
      const std::int64_t n = std::min(most, slice.count - done);
      bytes.resize(static_cast<std::size_t>(n * width));
      cache.read(entry.file, entry.offset + static_cast<std::uint64_t>((slice.first + done) * width), bytes);
      converted.assign(static_cast<std::size_t>(n) * size_of(dtype), std::byte{0});
      (void)kernels::convert_bytes({bytes.data(), entry.dtype, converted.data(), dtype, n});
      crc = io::crc32c(crc, converted);
    }
  }
  return crc;
}

CheckpointTensors tensors_of_checkpoint(const models::Model& model, const std::string& directory,
                                        const io::Manifest& manifest, int depth) {
  CheckpointTensors result{io::catalog_checkpoint(directory, manifest), {}};
  for (const ParamSpec& param : model.params) {
    result.tensors.push_back({param.name, DType::f32, param.shape, {}});
    if (const io::TensorEntry* const found = result.stored.find(io::model_group + param.name); found != nullptr)
      result.tensors.back().slices = {{static_cast<int>(found - result.stored.tensors.data()), 0, param.numel()}};
  }
  if (!manifest.base) return result;
  if (depth == max_bases)
    throw Error(ExitCode::data, "base models lead from one to the next and do not end", directory);
  const CheckpointTensors base = tensors_of(model, base_directory(manifest, directory), depth + 1);
  const int offset = append(result.stored, base.stored);
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    std::vector<io::TensorSlice>& slices = result.tensors[p].slices;
    if (!slices.empty()) continue;
    slices = base.tensors[p].slices;
    for (io::TensorSlice& slice : slices) slice.tensor += offset;
  }
  return result;
}

CheckpointTensors tensors_of(const models::Model& model, const std::string& directory, int depth) {
  if (io::exists(directory + "/" + io::manifest_name))
    return tensors_of_checkpoint(model, directory, io::read_manifest(directory), depth);
  CheckpointTensors result{io::catalog_safetensors(directory), {}};
  result.tensors = match_model_tensors(model, result.stored, directory).tensors;
  return result;
}

}  // namespace

CheckpointTensors tensors_with_base(const models::Model& model, const std::string& directory,
                                    const io::Manifest& manifest) {
  return tensors_of_checkpoint(model, directory, manifest, 0);
}

io::ConvertTensor copied_tensor(const io::TensorCatalog& stored, std::size_t index, std::string name,
                                std::optional<DType> dtype) {
  const io::TensorEntry& t = stored.tensors[index];
  const DType as = dtype && t.known && is_float(t.dtype) ? *dtype : t.dtype;
  const std::int64_t count = t.known ? t.numel() : static_cast<std::int64_t>(t.bytes);
  const io::SafetensorsType& type = t.known ? io::safetensors_type(as) : *io::find_safetensors_type(t.type);
  return {std::move(name), as, {count}, {{static_cast<int>(index), 0, count}}, io::StoredForm{&type, t.shape}};
}

void add_other_parts(CheckpointTensors& source, const models::Model& model, const std::string& directory) {
  const auto use = [&](const std::string& name) { return models::tensor_use(model, name); };
  io::check_copied_tensors({directory, use});
  const io::TensorCatalog whole = io::catalog_safetensors(directory);
  if (models::coded_method(io::read_text(directory + "/config.json")).empty())
    (void)match_model_tensors(model, whole, directory);  // throws if it is another model
  const auto offset = static_cast<std::size_t>(append(source.stored, whole));
  std::map<std::string, std::string> names;
  std::vector<io::ConvertTensor> others;
  for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
    const std::string& name = whole.tensors[i].name;
    const TensorUse of = use(name);
    if (of.ignored()) others.push_back(copied_tensor(source.stored, offset + i, name, /*dtype=*/{}));
    else if (of.parts.size() == 1) names.emplace(of.parts.front(), name);
  }
  for (io::ConvertTensor& tensor : source.tensors)
    if (const auto found = names.find(tensor.name); found != names.end()) tensor.name = found->second;
  for (io::ConvertTensor& tensor : others) source.tensors.push_back(std::move(tensor));
}

void check_base(const CheckpointTensors& source, const std::string& directory, const io::Manifest& manifest) {
  std::map<std::string, const io::ConvertTensor*> by_name;
  for (const io::ConvertTensor& tensor : source.tensors) by_name[tensor.name] = &tensor;
  io::BlockCache cache(source.stored.files, 4);
  std::uint32_t crc = 0;
  for (const std::string& name : manifest.frozen) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || found->second->slices.empty())
      throw Error(ExitCode::data, "E112 " + directory + ": " + io::quote_name(name) + " is missing");
    crc = crc_as(source, *found->second, manifest.base->dtype, cache, crc);
  }
  if (crc != manifest.base->crc) throw io::other_base_error(directory, crc, manifest.base->crc);
}

std::optional<DType> parse_dtype(const std::string& word) {
  if (word == "fp32" || word == "float32") return DType::f32;
  if (word == "bf16" || word == "bfloat16") return DType::bf16;
  if (word == "fp16" || word == "float16") return DType::f16;
  return std::nullopt;
}

}  // namespace tessera::jobs

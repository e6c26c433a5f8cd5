// SPDX-License-Identifier: Apache-2.0
// read_model: this rank's elements of each parameter.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/file/text_file.hpp"
#include "io/file/work_progress.hpp"
#include "io/model/bnb_tensors.hpp"
#include "io/model/coded_tensors.hpp"
#include "io/model/foreign_checkpoint.hpp"
#include "io/model/model_files.hpp"
#include "io/model/model_io.hpp"
#include "io/model/model_match.hpp"
#include "io/model/safetensors_index.hpp"
#include "kernels/convert.hpp"
#include "kernels/quantize.hpp"
#include "runtime/base/transfer.hpp"

namespace tessera::io {

void require_model_files(const std::string& directory) {
  const std::string path = directory + "/" + model_file_name;
  if (exists(path) || exists(directory + "/" + index_file_name)) return;
  if (!exists(directory))
    throw Error(ExitCode::data, "no directory " + directory, {}, "Give --model DIR, or train --from_scratch");
  if (const auto foreign = find_foreign_checkpoint(directory)) throw foreign->error(directory);
  if (const std::string trainer = newest_trainer_checkpoint(directory, weight_file_names); !trainer.empty())
    throw Error(ExitCode::data, "no model.safetensors in " + directory + ", but in its checkpoints", {},
                "Use --model " + trainer);
  throw Error(ExitCode::data, "no model.safetensors in " + directory, {},
              "Train --from_scratch, or give a directory with weights");
}

namespace {

/// A directory's config.json; "": it has none.
std::string config_of(const std::string& directory) {
  const std::string path = directory + "/config.json";
  return exists(path) ? read_text(path) : std::string();
}

/// Whether the config.json says that bitsandbytes has quantized the weights beside it.
bool has_bnb_config(const std::string& config_json) {
  const auto config = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("quantization_config")) return false;
  const auto& of = config.at("quantization_config");
  return !of.is_null() && (!of.is_object() || !of.contains("quant_method") || of.at("quant_method") == "bitsandbytes");
}

/// A model's files and their tensors, in the order of match_model's.
class ModelTensors {
 public:
  /// The config says whether the model came quantized. Files that have a quantized matrix say it, too.
  ModelTensors(const std::vector<SafetensorsFile>& files, const std::string& config_json)
      : quantized_(all_of(files)),
        coded_(all_of(files), fp8_block_of(config_json)),
        came_quantized_(has_bnb_config(config_json)) {
    for (const StoredTensor& tensor : all_of(files)) {
      const SafetensorsEntry& e = *tensor.entry;
      if (quantized_.is_part(e.name) || coded_.is_part(e.name)) continue;
      if (const BnbMatrix* matrix = quantized_.find(e.name)) {
        came_quantized_ = true;
        infos_.push_back({e.name, matrix->shape(), name_of(matrix->matrix().format), true});
      } else if (const CodedTensor* coded = coded_.find(e.name)) {
        infos_.push_back({coded->name(), coded->shape(), e.type, true});
      } else {
        infos_.push_back({e.name, e.shape, e.type, e.known_dtype && is_float(e.dtype)});
      }
      tensors_.push_back(tensor);
    }
  }
  [[nodiscard]] std::span<const TensorInfo> infos() const { return infos_; }
  [[nodiscard]] const std::string& path(int tensor) const { return at(tensor).file->path(); }
  [[nodiscard]] const std::string& name(int tensor) const { return at(tensor).entry->name; }

  /// Bytes of a quantized parameter from `first` on, which begins at element `begin` of a tensor: as they are stored,
  /// if the model came quantized; else quantized here. Throws Error (data): a model that came quantized has the tensor
  /// in floats, or as another matrix.
  void read_quantized(int tensor, std::int64_t begin, const QuantizedMatrix& matrix, std::int64_t first,
                      const TensorView& to) const {
    const BnbMatrix* const stored = quantized_.find(name(tensor));
    const bool same = stored != nullptr && begin == 0 && stored->matrix() == matrix;
    if (came_quantized_ && !same) refuse_quantizing(tensor, matrix);
    kernels::Quantizer quantizer(matrix, [&](std::int64_t element, std::int64_t count, float* values) {
      read_fp32(tensor, begin + element, count, values);
    });
    std::vector<std::byte> bytes(std::min(to.nbytes(), host_staging_bytes));
    for (std::int64_t done = 0; done < to.numel(); done += static_cast<std::int64_t>(bytes.size())) {
      const TensorView rows = to.rows(done, std::min(static_cast<std::int64_t>(bytes.size()), to.numel() - done));
      const std::span<std::byte> part = std::span(bytes).first(rows.nbytes());
      try {
        if (same) stored->read_bytes(first + done, part);
        else quantizer.read(first + done, part);
      } catch (const Error& error) {
        if (same) throw;
        throw Error(error.code(), path(tensor) + ": tensor " + quote_name(name(tensor)) + ": " + error.line());
      }
      copy_now(rows.device, rows.data, bytes.data(), rows.nbytes());
    }
  }

  /// Elements of a tensor from `first` on, as many as `to` has, in its type; to a device through a host buffer.
  void read(int tensor, std::int64_t first, const TensorView& to) const {
    if (to.device == host_device && to.dtype == DType::f32)
      return read_fp32(tensor, first, to.numel(), static_cast<float*>(to.data));
    constexpr auto most = static_cast<std::int64_t>(host_staging_bytes / sizeof(float));
    std::vector<float> buffer(static_cast<std::size_t>(std::min(most, to.numel())));
    std::vector<std::byte> converted(to.dtype == DType::f32 ? 0 : buffer.size() * size_of(to.dtype));
    for (std::int64_t done = 0; done < to.numel(); done += most) {
      const TensorView rows = to.rows(done, std::min(most, to.numel() - done));
      read_fp32(tensor, first + done, rows.numel(), buffer.data());
      const auto* from = reinterpret_cast<const std::byte*>(buffer.data());
      if (!converted.empty()) {
        const std::int64_t bad = kernels::convert_bytes({from, DType::f32, converted.data(), to.dtype, rows.numel()});
        if (bad != rows.numel())
          throw Error(ExitCode::data, strfmt("%s: element %ld of tensor %s is too large for %s", path(tensor).c_str(),
                                             first + done + bad, quote_name(name(tensor)).c_str(), name_of(to.dtype)));
        from = converted.data();
      }
      copy_now(to.device, rows.data, from, rows.nbytes());
    }
  }

 private:
  /// What a model that came quantized has in another form is not quantized here, or once more.
  [[noreturn]] void refuse_quantizing(int tensor, const QuantizedMatrix& matrix) const {
    const BnbMatrix* const stored = quantized_.find(name(tensor));
    const std::string has = stored == nullptr
                                ? std::string("in floats")
                                : std::string(name_of(stored->matrix().format)) + " " + shape_text(stored->shape());
    throw Error(ExitCode::data,
                strfmt("%s: tensor %s is %s, and the run needs %s [%ld, %ld]: in a model that is quantized already, "
                       "nothing is quantized here",
                       path(tensor).c_str(), quote_name(name(tensor)).c_str(), has.c_str(), name_of(matrix.format),
                       matrix.rows, matrix.columns),
                {},
                stored == nullptr ? "Name its module in llm_int8_skip_modules of config.json, or give the model in bf16"
                                  : "Give the model in bf16, and quantize it here");
  }
  void read_fp32(int tensor, std::int64_t first, std::int64_t count, float* to) const {
    if (const BnbMatrix* matrix = quantized_.find(name(tensor))) return matrix->read_elements(first, count, to);
    if (const CodedTensor* coded = coded_.find(name(tensor))) return coded->read_elements(first, count, to);
    at(tensor).file->read(*at(tensor).entry, first, count, to);
  }
  static std::vector<StoredTensor> all_of(const std::vector<SafetensorsFile>& files) {
    std::vector<StoredTensor> all;
    for (const SafetensorsFile& file : files)
      for (const SafetensorsEntry& entry : file.entries()) all.push_back({&file, &entry});
    return all;
  }
  [[nodiscard]] const StoredTensor& at(int tensor) const { return tensors_[static_cast<std::size_t>(tensor)]; }
  BnbTensors quantized_;
  CodedTensors coded_;
  bool came_quantized_ = false;
  std::vector<StoredTensor> tensors_;  // without what belongs to a quantized matrix
  std::vector<TensorInfo> infos_;
};

void read_shard(const ModelTensors& tensors, const ModelMatch& match, std::span<const ParamSpec> params,
                const shard::ShardLayout& layout, const ShardView& view) {
  const std::int64_t first = view.shard * layout.shard_numel(view.unit);
  std::int64_t done = 0;  // elements of the shard that are filled
  const auto clear_to = [&](std::int64_t end) {
    const TensorView gap = view.data.rows(done, end - done);
    fill_now(gap.device, gap.data, 0, gap.nbytes());
  };
  for (const auto& s : layout.whole_segments(view.unit, view.shard, view.part)) {
    const std::int64_t at = s.unit_offset - first;
    if (match.params[static_cast<std::size_t>(s.param)].tensor < 0) {  // of another part: stays as it is
      done = at + s.length;
      continue;
    }
    clear_to(at);
    const auto& [tensor, in_tensor] = match.params[static_cast<std::size_t>(s.param)];
    const TensorView to = view.data.rows(at, s.length);
    if (const QuantizedMatrix& matrix = params[static_cast<std::size_t>(s.param)].quantized; matrix)
      tensors.read_quantized(tensor, in_tensor, matrix, s.param_offset, to);
    else tensors.read(tensor, in_tensor + s.param_offset, to);
    done = at + s.length;
  }
  clear_to(layout.shard_numel(view.unit));
}

/// Compares this rank's elements of the copy with those of the parameter, which the shard holds by now.
void check_copy(const ModelTensors& tensors, const ModelMatch::Copy& copy, const ParamSpec& param,
                const shard::ShardLayout& layout, const ShardView& view, ModelPart part) {
  constexpr std::int64_t most = 1 << 18;  // elements at a time
  std::vector<std::byte> stored, held;
  const std::int64_t first = view.shard * layout.shard_numel(view.unit);
  for (const auto& s : layout.whole_segments(view.unit, view.shard, view.part)) {
    if (s.param != copy.param) continue;
    for (std::int64_t done = 0; done < s.length; done += most) {
      const TensorView rows = view.data.rows(s.unit_offset - first + done, std::min(most, s.length - done));
      stored.resize(rows.nbytes());
      tensors.read(copy.tensor, s.param_offset + done, {stored.data(), rows.dtype, rows.shape});
      held.resize(rows.nbytes());
      copy_now(rows.device, held.data(), rows.data, held.size());
      if (stored != held)
        throw Error(ExitCode::data,
                    "E114 " + tensors.path(copy.tensor) + ": " + quote_name(tensors.name(copy.tensor)) +
                        " is not equal to " + quote_name(param.name) +
                        (part == ModelPart::base ? ", which the config ties it to" : " of the base model"),
                    {},
                    part == ModelPart::base
                        ? "Set tie_word_embeddings as the weights were trained, or remove the tensor"
                        : "Give the base model that the adapter was trained from. If peft untied the two when it "
                          "saved the adapter, save it with ensure_weight_tying=True");
    }
  }
}

std::uint64_t read_part(World& world, const std::string& path, std::span<const ParamSpec> params,
                        const shard::ShardLayout& layout, std::span<const ShardView> shards,
                        const std::function<TensorUse(const std::string&)>& use, ModelPart part) {
  std::uint64_t bytes = 0;
  world.run_and_agree([&] {
    if (part == ModelPart::base) require_model_files(path);
    const std::vector<SafetensorsFile> files = open_safetensors_model(path);
    const ModelTensors tensors(files, part == ModelPart::base ? config_of(path) : std::string());
    const ModelMatch match = match_model(tensors.infos(), path, params, use, part);
    std::uint64_t elements = 0;
    for (const ShardView& view : shards) elements += static_cast<std::uint64_t>(layout.shard_numel(view.unit));
    WorkCounter progress("load", elements * sizeof(float));
    for (const ShardView& view : shards) {
      read_shard(tensors, match, params, layout, view);
      progress.add(static_cast<std::uint64_t>(layout.shard_numel(view.unit)) * sizeof(float));
    }
    for (const ModelMatch::Copy& copy : match.copies)
      for (const ShardView& view : shards)
        check_copy(tensors, copy, params[static_cast<std::size_t>(copy.param)], layout, view, part);
    for (const SafetensorsFile& file : files) bytes += file.bytes_read();
  });
  return bytes;
}

}  // namespace

std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<TensorUse(const std::string&)>& use) {
  return read_part(world, directory, params, layout, shards, use, ModelPart::base);
}

std::uint64_t read_adapter(World& world, const std::string& file, std::span<const ParamSpec> params,
                           const shard::ShardLayout& layout, std::span<const ShardView> shards,
                           const std::function<TensorUse(const std::string&)>& use) {
  return read_part(world, file, params, layout, shards, use, ModelPart::adapter);
}

std::uint64_t read_model(World& world, const std::string& directory, std::span<const ParamSpec> params,
                         const shard::ShardLayout& layout, std::span<const ShardView> shards,
                         const std::function<std::string(const std::string&)>& canonical) {
  return read_model(world, directory, params, layout, shards, [&](const std::string& name) {
    const std::string parameter = canonical(name);
    return parameter.empty() ? TensorUse{} : TensorUse{.parts = {parameter}, .shape = {}, .same_as = ""};
  });
}

}  // namespace tessera::io

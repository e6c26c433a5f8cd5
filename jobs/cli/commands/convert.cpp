// SPDX-License-Identifier: Apache-2.0
// `tessera convert`: a checkpoint to a model directory in Hugging Face's format, or back. Options, names and messages;
// io/convert moves the bytes.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/inspect/recognize.hpp"
#include "io/inspect/tensor_stats.hpp"
#include "io/model/model_part.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/commands/whole_model.hpp"
#include "jobs/cli/session/host_info.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/model_tensors.hpp"
#include "jobs/cli/session/progress.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/lora_config.hpp"
#include "models/lora_files.hpp"
#include "models/quantize.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr const char *prefix_key = "tensor_prefix", *metadata_key = "safetensors_metadata";  // in run metadata

struct ConvertRequest {
  const Options* options = nullptr;
  std::string in, out;
  bool from_native = true, to_native = false;
  std::optional<DType> dtype;  // none: as stored
  std::uint64_t state_file_bytes = 0;
  io::ConvertTarget target;
  std::unique_ptr<io::OutputLock> lock;  // rank 0 only
};

std::string required(const Options& options, const char* name, const char* example) {
  if (!options.has(name) || options.text(name).empty())
    throw Error(ExitCode::usage, std::string("convert needs --") + name, "command line",
                std::string("Give it ") + example);
  return options.text(name);
}

/// W024: the size of files that are not written.
void warn_of_file_size(const Options& options, const char* unread, const char* why) {
  if (options.given(unread)) log::warn(24, options.no_effect(unread, why));
}

/// The request by the options and the kind of input. Throws what can be refused before the data are read.
ConvertRequest read_request(const Options& options, World& world) {
  ConvertRequest request{.options = &options};
  request.in = io::without_slash(required(options, "in", "a checkpoint or a model directory"));
  request.out = io::output_path(required(options, "out", "a directory that does not exist yet"));
  request.target.directory = request.out;
  request.target.replace = options.flag("force");
  request.target.verify = options.flag("verify");
  request.target.max_file_bytes = options.bytes("max_shard_size");
  request.state_file_bytes = options.bytes("checkpoint_file_size");
  if (options.has("dtype")) request.dtype = parse_dtype(options.text("dtype"));
  const std::string found = world.text_of_rank_0([&] {
    const std::string from = options.text("from");
    const io::LocatedPath located = io::recognize(request.in, from == "hf"       ? io::Prefer::model
                                                              : from == "native" ? io::Prefer::checkpoint
                                                                                 : io::Prefer::automatic);
    if (located.kind != io::PathKind::checkpoint && located.kind != io::PathKind::model)
      throw Error(ExitCode::data, request.in + " is " + io::name_of(located.kind), {},
                  "Convert a directory: a checkpoint, or a model with its config.json");
    const std::string is = located.kind == io::PathKind::checkpoint ? "native" : "hf";
    if (from != "auto" && from != is)
      throw options.refuse("from", request.in + " is " + io::name_of(located.kind), "Use --from " + is + ", or auto");
    return is + "\n" + located.path;
  });
  request.from_native = found.starts_with("native");
  if (const std::string located = found.substr(found.find('\n') + 1); located != request.in) {
    log::info("input     the newest in " + request.in + " | " + located);
    request.in = located;
  }
  // Without --to: the other format; a model that is to have another dtype stays a model.
  const bool stays = request.from_native || (request.dtype && *request.dtype != DType::f32);
  request.to_native = options.has("to") ? options.text("to") == "native" : !stays;
  if (request.from_native && request.to_native)
    throw Error(ExitCode::usage,
                request.in + " is a checkpoint already, which any number of ranks, ZeRO stage and mesh can read",
                "--to: command line", "Convert it --to hf");
  if (request.to_native && request.dtype && *request.dtype != DType::f32)
    throw options.refuse("dtype", "a checkpoint holds its master weights in fp32", "Drop --dtype, or convert --to hf");
  world.run_on_rank_0(
      [&] { request.lock = std::make_unique<io::OutputLock>(request.in, request.out, request.target.replace); });
  return request;
}

std::string speed_text(double bytes, double seconds) { return human_bytes(bytes / std::max(seconds, 1e-9)) + "/s"; }

io::ConvertOptions stream_options(const Options& options) {
  io::ConvertOptions stream;
  stream.threads = static_cast<int>(options.optional_integer("threads").value_or(2));
  stream.progress = [view = std::make_shared<ProgressView>(Work{.name = "convert"})](const io::ConvertProgress& p) {
    (*view)(p.done, p.total);
  };
  return stream;
}

/// The auxiliary files, with config.json saying what is written.
void set_config_dtype(World& world, io::ConvertTarget& target, DType dtype) {
  world.run_and_agree([&] {
    for (io::AuxiliaryFile& a : target.auxiliary_files)
      if (a.name == "config.json") a.text = io::config_for_dtype(a.text, dtype);
  });
}

Shape shape_of(const io::TensorEntry& t) {
  if (t.shape.size() > static_cast<std::size_t>(Shape::max_rank))
    throw Error(ExitCode::data, strfmt("tensor %s has %zu dimensions, more than %d", io::quote_name(t.name).c_str(),
                                       t.shape.size(), Shape::max_rank));
  Shape shape;
  for (const std::int64_t dimension : t.shape) shape.push_back(dimension);
  return shape;
}

/// Of the types that are no DType: those of whole numbers, which no --dtype changes.
bool is_integer_type(const std::string& type) {
  return type == "BOOL" || type.starts_with('U') || type.starts_with('I');
}

/// Every tensor whose name begins with `prefix`, which `new_prefix` replaces; floats as `dtype` if that is given.
std::vector<io::ConvertTensor> renamed(const io::TensorCatalog& stored, const std::string& prefix,
                                       const std::string& new_prefix, std::optional<DType> dtype) {
  std::vector<io::ConvertTensor> tensors;
  for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
    const io::TensorEntry& t = stored.tensors[i];
    if (!t.name.starts_with(prefix)) continue;
    if (!t.known && dtype && !is_integer_type(t.type))
      throw Error(
          ExitCode::data,
          strfmt("tensor %s is %s, which cannot become %s", io::quote_name(t.name).c_str(), t.type, name_of(*dtype)),
          "--dtype", "Drop --dtype, which copies it as it is");
    tensors.push_back(copied_tensor(stored, i, new_prefix + t.name.substr(prefix.size()), dtype));
  }
  return tensors;
}

/// The prefix of all tensor names in the model that this checkpoint was converted from ("transformer."); else "".
std::string tensor_prefix(const io::Manifest& manifest) {
  const auto json = nlohmann::json::parse(manifest.run_metadata);
  const auto prefix = json.find(prefix_key);
  return prefix != json.end() && prefix->is_string() ? prefix->get<std::string>() : "";
}

/// The metadata of the safetensors files that this checkpoint was converted from; none: they had a "format" alone.
std::map<std::string, std::string> file_metadata(const io::Manifest& manifest) {
  std::map<std::string, std::string> metadata;
  const auto json = nlohmann::json::parse(manifest.run_metadata);
  if (const auto found = json.find(metadata_key); found != json.end() && found->is_object())
    for (const auto& [key, value] : found->items())
      if (value.is_string()) metadata[key] = value.get<std::string>();
  return metadata;
}

/// The metadata of the source's files, for each file of the output; W071: those of which its files have several values.
std::map<std::string, std::string> kept_metadata(const io::TensorCatalog& stored, const std::string& path) {
  std::string keys;
  for (const std::string& key : stored.differing_metadata) keys += (keys.empty() ? "\"" : ", \"") + key + "\"";
  if (!keys.empty())
    log::warn(71, "the files of " + path + " differ in the metadata of their headers: of " + keys +
                      " the first file's value is kept, and the others are left out");
  return stored.metadata;
}

/// The prefix that all parameters of a model share before their canonical names, or "".
std::string common_prefix(const io::TensorCatalog& stored, const std::vector<io::ConvertTensor>& tensors) {
  std::optional<std::string> prefix;
  for (const io::ConvertTensor& t : tensors) {
    const std::string& name = stored.tensors[static_cast<std::size_t>(t.slices.front().tensor)].name;
    if (!name.ends_with(t.name) || (prefix && name.size() - t.name.size() != prefix->size())) return "";
    if (!prefix) prefix = name.substr(0, name.size() - t.name.size());
    if (name.substr(0, prefix->size()) != *prefix) return "";
  }
  return prefix.value_or("");
}

/// The trained parameters of a LoRA run's checkpoint, as PEFT has them.
io::ConvertReport adapter_to_peft(World& world, const io::CheckpointReader& checkpoint, ConvertRequest& request,
                                  const io::ConvertOptions& stream) {
  warn_of_file_size(*request.options, "max_shard_size", "an adapter is one file");
  const AdapterConfig adapter{checkpoint.auxiliary_file(io::adapter_config_name), request.in};
  models::Model model = models::make(checkpoint.auxiliary_file("config.json"), request.in + "/config.json");
  models::add_lora(model, models::parse_lora_config(adapter.text, adapter.source()));
  const io::Manifest& manifest = checkpoint.manifest();
  const io::TensorCatalog stored = io::catalog_checkpoint(request.in, manifest);
  std::vector<io::ConvertTensor> tensors;
  for (const models::AdapterTensor& tensor : models::adapter_tensors(model)) {
    const ParamSpec& param = model.params[static_cast<std::size_t>(tensor.param)];
    const io::TensorEntry* const found = stored.find(io::model_group + param.name);
    if (found == nullptr || shape_of(*found) != param.shape)
      throw Error(ExitCode::data,
                  strfmt("%s %s: %s is %s", found == nullptr ? "E112" : "E113", request.in.c_str(),
                         io::quote_name(param.name).c_str(), found == nullptr ? "missing" : "of another shape"));
    tensors.push_back({tensor.name,
                       request.dtype.value_or(DType::f32),
                       param.shape,
                       {{static_cast<int>(found - stored.tensors.data()), 0, param.numel()}}});
  }
  for (const auto& file : manifest.auxiliary_files)
    if (file.name != "config.json")
      request.target.auxiliary_files.push_back({file.name, checkpoint.auxiliary_file(file.name)});
  request.target.file = io::adapter_file_name;
  if (manifest.base) request.target.metadata = adapter_metadata(*manifest.base);
  return io::convert_to_safetensors(world, stored, tensors, request.target, stream);
}

/// The model directory with the other tensors of a model of whose text part a checkpoint is; "": it is of a whole
/// model. Throws Error (data): there is none.
std::string directory_of_other_parts(const std::string& config, const io::Manifest& manifest,
                                     const std::string& directory) {
  const auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model_type") || !json.at("model_type").is_string()) return "";
  const std::string family = json.at("model_type").get<std::string>();
  if (!models::is_text_part(family)) return "";
  std::string recorded = recorded_base(manifest);
  if (holds_weights(recorded)) return recorded;
  throw Error(
      ExitCode::data,
      directory + " has the text part of a model (" + family + ") without its other tensors, and " +
          (recorded.empty() ? "does not say where these are" : "the model that these are of is not in " + recorded),
      {},
      recorded.empty() ? "Continue the run with --resume_from_checkpoint: the model that it saves has all of them"
                       : "Put the model that it was trained from there");
}

io::ConvertReport native_to_hf(World& world, ConvertRequest& request, const io::ConvertOptions& stream) {
  const io::CheckpointReader checkpoint(world, request.in);
  if (!checkpoint.auxiliary_file(io::adapter_config_name).empty())
    return adapter_to_peft(world, checkpoint, request, stream);
  for (const auto& a : checkpoint.manifest().auxiliary_files)
    request.target.auxiliary_files.push_back({a.name, checkpoint.auxiliary_file(a.name)});
  set_config_dtype(world, request.target, request.dtype.value_or(DType::f32));
  const io::Manifest& manifest = checkpoint.manifest();
  const std::string prefix = tensor_prefix(manifest);
  request.target.metadata = file_metadata(manifest);
  // Frozen parameters have types of their own; the output has one.
  const std::optional<DType> dtype = manifest.frozen.empty() ? request.dtype : request.dtype.value_or(DType::f32);
  const std::string config = checkpoint.auxiliary_file("config.json");  // collective
  const std::string others =
      world.text_of_rank_0([&] { return directory_of_other_parts(config, manifest, request.in); });
  if (!manifest.base && others.empty()) {
    const io::TensorCatalog stored = io::catalog_checkpoint(request.in, manifest);
    return io::convert_to_safetensors(world, stored, renamed(stored, io::model_group, prefix, dtype), request.target,
                                      stream);
  }
  const models::Model model = models::make(config, request.in + "/config.json");
  CheckpointTensors all;
  world.run_and_agree([&] { all = tensors_with_base(model, request.in, manifest); });
  if (manifest.base) world.run_on_rank_0([&] { check_base(all, request.in, manifest); });
  for (io::ConvertTensor& tensor : all.tensors)
    tensor.name = prefix + tensor.name, tensor.dtype = dtype.value_or(DType::f32);
  if (!others.empty()) {
    world.run_and_agree([&] { add_other_parts(all, model, others); });
    check_copied_crc(manifest, request.in, others,
                     io::checksum_of_copied(
                         world, {others, [&](const std::string& name) { return models::tensor_use(model, name); }}));
  }
  return io::convert_to_safetensors(world, all.stored, all.tensors, request.target, stream);
}

/// Reads the auxiliary files on rank 0; returns config.json on every rank.
std::string read_auxiliary_files(World& world, ConvertRequest& request) {
  return world.text_of_rank_0([&] {
    request.target.auxiliary_files = io::all_auxiliary_files(request.in);
    return request.target.auxiliary_files.front().text;
  });
}

io::TensorCatalog open_model(World& world, const std::string& path) {
  io::TensorCatalog stored;
  world.run_and_agree([&] { stored = io::catalog_safetensors(path); });
  return stored;
}

/// The tensors of a quantized matrix have types that belong together.
void refuse_quantized(const std::string& config, const std::string& directory) {
  if (models::quantization_of(config, directory + "/config.json") == QuantFormat::none) return;
  throw Error(ExitCode::usage, directory + " is quantized, and convert does not change its types", "--dtype",
              "Drop --dtype, or merge an adapter into it with --adapters and --merge_lora true");
}

/// Throws Error (usage): what is not done with weights in codes that are read as floats.
void refuse_of_coded(const ConvertRequest& request, const std::string& method) {
  const std::string is = request.in + " has weights of " + method + ", which ";
  if (request.to_native)
    throw Error(ExitCode::usage, is + "are not converted to a checkpoint directly", "--to",
                "Convert it --to hf --dtype bf16 first, and the result --to native");
  if (request.target.verify || request.target.replace)
    throw Error(ExitCode::usage, is + "are read as floats and not compared with the output, which must be new",
                request.target.verify ? "--verify" : "--force", "Drop it");
}

io::ConvertReport hf_to_hf(World& world, ConvertRequest& request, const io::ConvertOptions& stream) {
  const std::string config = read_auxiliary_files(world, request);
  if (request.dtype) {
    refuse_quantized(config, request.in);
    if (const std::string method = models::coded_method(config); !method.empty()) {
      refuse_of_coded(request, method);
      return write_coded_as_floats(world, request.in, config, request.target, *request.dtype);
    }
    set_config_dtype(world, request.target, *request.dtype);
  }
  const io::TensorCatalog stored = open_model(world, request.in);
  request.target.metadata = kept_metadata(stored, request.in);
  return io::convert_to_safetensors(world, stored, renamed(stored, "", "", request.dtype), request.target, stream);
}

/// Collective: compares every element of tied tensors that are stored twice.
void check_copies(World& world, const io::TensorCatalog& stored, const std::vector<TiedCopy>& copies) {
  for (const TiedCopy& copy : copies) {
    const auto &a = stored.tensors[static_cast<std::size_t>(copy.tensor)],
               &b = stored.tensors[static_cast<std::size_t>(copy.parameter)];
    std::int64_t differ = 0;
    world.run_and_agree([&] {
      io::BlockCache cache(stored.files, 4);
      const std::int64_t first = a.numel() * world.rank() / world.size(),
                         last = a.numel() * (world.rank() + 1) / world.size();
      differ = io::compare(a, cache, b, cache, first, last - first).elements;
    });
    differ = world.sum(differ);
    if (differ > 0)
      throw Error(ExitCode::data,
                  strfmt("E114 tensor %s must equal %s, but %ld elements differ", io::quote_name(a.name).c_str(),
                         io::quote_name(b.name).c_str(), differ),
                  {}, "config.json ties the two (tie_word_embeddings): correct it, or the tensor");
  }
}

io::ConvertReport hf_to_native(World& world, ConvertRequest& request, const io::ConvertOptions& stream) {
  const std::string config = read_auxiliary_files(world, request);
  const models::Model model = models::make(config, request.in + "/config.json");
  if (const std::string method = models::coded_method(config); !method.empty()) refuse_of_coded(request, method);
  if (models::is_text_part(model.family))
    throw Error(ExitCode::usage,
                request.in + " is a model of text and images, and a checkpoint has its text part alone", "--to",
                "Train the model as it is");
  const io::TensorCatalog stored = open_model(world, request.in);
  const ModelTensors mapped = match_model_tensors(model, stored, request.in);
  check_copies(world, stored, mapped.copies);
  request.target.max_file_bytes = request.state_file_bytes;
  nlohmann::ordered_json run_metadata = {{"made_by", "convert"}};
  if (const std::string prefix = common_prefix(stored, mapped.tensors); !prefix.empty())
    run_metadata[prefix_key] = prefix;
  const std::map<std::string, std::string> metadata = kept_metadata(stored, request.in);
  if (metadata != std::map<std::string, std::string>{{"format", "pt"}} && !metadata.empty())
    run_metadata[metadata_key] = metadata;
  request.target.run_metadata = run_metadata.dump();
  return io::convert_to_checkpoint(world, stored, mapped.tensors, request.target, stream);
}

}  // namespace

void convert_command(const Call& call, World& world) {
  const Options& options = call.options();
  if (options.flag("merge_lora")) {
    warn_of_file_size(options, "checkpoint_file_size", "no checkpoint is written");
    return merge_lora(call, world);
  }
  if (options.given("save_dtype"))
    throw options.refuse("save_dtype", "--save_dtype is for --merge_lora true", "Use --dtype");
  if (options.has("adapters")) throw options.refuse("adapters", "--adapters is for --merge_lora true", "Add it");
  ConvertRequest request = read_request(options, world);
  if (request.to_native)
    warn_of_file_size(options, "max_shard_size", "a checkpoint is written, for which it is --checkpoint_file_size");
  else warn_of_file_size(options, "checkpoint_file_size", "no checkpoint is written");
  const io::ConvertOptions stream = stream_options(options);
  if (!options.has("to"))
    log::info(strfmt("convert   %s to %s", request.from_native ? "a checkpoint" : "a Hugging Face model",
                     request.to_native ? "a checkpoint" : "a Hugging Face model"));
  const io::ConvertReport report = request.from_native ? native_to_hf(world, request, stream)
                                   : request.to_native ? hf_to_native(world, request, stream)
                                                       : hf_to_hf(world, request, stream);
  const auto bytes = static_cast<double>(report.bytes);
  const auto peak = static_cast<double>(world.max(peak_resident_bytes()));
  if (request.target.verify)
    log::info(strfmt("verify    every element compared | %s in %.2fs (%s)", human_bytes(bytes).c_str(),
                     report.verify_seconds, speed_text(bytes, report.verify_seconds).c_str()));
  if (!report.backup.empty()) log::info("moved     the previous output is now " + report.backup);
  log::info(strfmt("convert   done | %ld tensors in %d file%s | %s in %.2fs (%s), memory of a rank at most %s | %s",
                   report.tensors, report.files, report.files == 1 ? "" : "s", human_bytes(bytes).c_str(),
                   report.seconds, speed_text(bytes, report.seconds).c_str(), human_bytes(peak).c_str(),
                   request.out.c_str()));
}

}  // namespace tessera::jobs

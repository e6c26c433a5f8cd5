// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/lora.hpp"

#include <algorithm>
#include <set>

#include "io/checkpoint/checkpoint.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_files.hpp"
#include "models/lora_config.hpp"
#include "models/lora_files.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* base_dtype_key = "base_dtype";  // in the metadata of adapter_model.safetensors
constexpr const char* base_crc_key = "base_crc32c";   // of the frozen parameters in that type (io::BaseModel)
constexpr const char* base_quantization_key = "base_quantization";  // a QuantFormat's name; not there: none

/// Options that describe an adapter; --adapters has them in its config.
constexpr const char* adapter_options[] = {"lora_rank",       "lora_alpha", "target_modules", "target_regex",
                                           "modules_to_save", "lora_bias",  "use_rslora",     "init_lora_weights"};

/// The parameters alone.
io::TrainingState state_of(const AdapterShards& shards) {
  io::TrainingState state;
  for (const io::ShardView& view : shards.shards)
    state.shards.push_back({view.unit, view.shard, {view.data}, view.part});
  return state;
}

io::BaseModel checksum_of(World& world, const AdapterShards& of, DType dtype) {
  return io::base_model(world, of.model->own_params(), *of.layout, state_of(of),
                        io::frozen_names(of.model->own_params()), dtype);
}

/// The base that a file of ours names; nothing in a file of PEFT's.
std::optional<io::BaseModel> named_base(World& world, const std::string& file) {
  const std::string found = world.text_of_rank_0([&] {
    const auto metadata = io::SafetensorsFile(file).metadata();
    const auto dtype = metadata.find(base_dtype_key), crc = metadata.find(base_crc_key),
               quantization = metadata.find(base_quantization_key);
    return dtype == metadata.end() || crc == metadata.end()
               ? ""
               : dtype->second + " " + crc->second + " " + (quantization == metadata.end() ? "" : quantization->second);
  });
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (const std::string start = std::string(name_of(dtype)) + " "; found.starts_with(start)) {
      io::BaseModel base{dtype, static_cast<std::uint32_t>(std::strtoul(found.c_str() + start.size(), nullptr, 16))};
      for (const QuantFormat format : quant_formats)
        if (found.ends_with(std::string(" ") + name_of(format))) base.quantization = format;
      return base;
    }
  return std::nullopt;
}

void check_base_of_adapter(World& world, const std::string& directory, const std::string& file,
                           const AdapterShards& to) {
  const std::optional<io::BaseModel> expected = named_base(world, file);
  if (!expected) return;
  if (const QuantFormat now = io::quantization_in(to.model->own_params()); now != expected->quantization) {
    log::info(strfmt("adapter   its base was quantized to %s, and this one to %s: they are not compared",
                     name_of(expected->quantization), name_of(now)));
    return;
  }
  if (expected->dtype != to.model->dtype && to.model->dtype != DType::f32) {
    log::info(strfmt("adapter   its base was kept in %s, and this one is in %s: they are not compared",
                     name_of(expected->dtype), name_of(to.model->dtype)));
    return;
  }
  if (const io::BaseModel found = checksum_of(world, to, expected->dtype); found != *expected)
    throw Error(ExitCode::data,
                strfmt("E145 %s is an adapter of another base model: the checksum of this one is %08x, not %08x",
                       directory.c_str(), found.crc, expected->crc),
                {}, "Give the base model that it was trained from");
}

}  // namespace

bool trains_lora(const Options& options) { return options.text("tuner_type") == "lora" || options.has("adapters"); }

bool saves_only_trainable(const Options& options) {
  if (options.given("save_only_trainable")) return options.flag("save_only_trainable");
  return trains_lora(options) && !options.flag("from_scratch");
}

void check_lora_options(const Options& options) {
  const bool lora = trains_lora(options);
  if (options.has("adapters") && options.given("tuner_type") && options.text("tuner_type") != "lora")
    throw options.refuse("adapters", "--adapters continues an adapter, and --tuner_type is full",
                         "Use --tuner_type lora, or drop one of the two");
  if (options.has("adapters") && options.flag("from_scratch"))
    throw options.refuse("adapters", "--adapters needs a base model, and --from_scratch has none",
                         "Drop one of the two");
  for (const char* name : adapter_options) {
    if (!options.given(name)) continue;
    if (!lora)
      throw options.refuse(name, std::string("--") + name + " has no effect without --tuner_type lora",
                           "Add --tuner_type lora");
    if (options.has("adapters"))
      throw options.refuse(name, std::string("--") + name + " is what adapter_config.json of --adapters says",
                           "Drop it");
  }
  for (const char* name : {"lora_dropout", "lorap_lr_ratio"})
    if (!lora && options.given(name))
      throw options.refuse(name, std::string("--") + name + " has no effect without --tuner_type lora",
                           "Add --tuner_type lora");
  for (const char* name : {"freeze_parameters", "trainable_parameters"})
    if (lora && options.given(name))
      throw options.refuse(name, std::string("--") + name + " is for --tuner_type full: LoRA freezes the model",
                           "Use --modules_to_save to train more than adapters");
  if (options.given("target_modules") && options.given("target_regex"))
    throw options.refuse("target_regex", "--target_modules and --target_regex both choose modules",
                         "Keep one of the two");
}

void add_adapters(models::Model& model, const AdapterConfig& config, std::optional<double> dropout) {
  models::LoraSpec spec = models::parse_lora_config(config.text, config.source());
  spec.dropout = dropout.value_or(spec.dropout);
  if (model.score >= 0) std::erase(spec.modules_to_save, "classifier");  // PEFT's other name of a score
  try {
    models::add_lora(model, spec);
  } catch (const Error& error) { throw Error(error.code(), config.source() + ": " + error.line()); }
}

namespace {

/// transformers 5 has one tensor for the projections of all experts, and PEFT looks for it under another name than
/// ours.
void refuse_saved_experts(const models::Model& model) {
  for (const ParamSpec& param : model.params)
    if (param.trainable && !param.adapter &&
        models::huggingface_name(model, param.name).find(".experts.") != std::string::npos)
      throw Error(ExitCode::usage, "--modules_to_save names experts (" + param.name + "): PEFT would not read them",
                  "modules_to_save", "Train adapters of them, as --target_modules gate_proj up_proj down_proj does");
}

}  // namespace

void add_adapters(models::Model& model, const Options& options, const AdapterConfig& config) {
  const double dropout = options.real("lora_dropout");
  if (!config.text.empty()) {
    // Of preferences, too, dropout is what the option says, 0 by default, and not what the adapters were trained with.
    const bool said = options.given("lora_dropout") || options.text("stage") == "rlhf";
    add_adapters(model, config, said ? std::optional(dropout) : std::nullopt);
    return refuse_saved_experts(model);
  }
  models::LoraSpec spec;
  spec.rank = options.integer("lora_rank");
  spec.alpha = options.real("lora_alpha");
  spec.dropout = dropout;
  spec.rslora = options.flag("use_rslora");
  spec.init = options.text("init_lora_weights") == "gaussian" ? models::LoraSpec::Init::gaussian
                                                              : models::LoraSpec::Init::uniform;
  if (options.given("target_modules")) spec.targets = options.list("target_modules");
  if (options.has("target_regex")) spec.targets.clear(), spec.regex = options.text("target_regex");
  spec.modules_to_save = options.list("modules_to_save");
  if (model.score >= 0 && std::ranges::find(spec.modules_to_save, "score") == spec.modules_to_save.end())
    spec.modules_to_save.emplace_back("score");
  const std::string bias = options.text("lora_bias");
  spec.bias = bias == "all"         ? models::LoraSpec::Bias::all
              : bias == "lora_only" ? models::LoraSpec::Bias::lora_only
                                    : models::LoraSpec::Bias::none;
  models::add_lora(model, spec);
  refuse_saved_experts(model);
}

namespace {

/// Which options of LoRA differ, with both values where they are short; "": none.
std::string differences(const models::Model& now, const models::Model& saved) {
  const models::LoraSpec &a = now.lora->spec, &b = saved.lora->spec;
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (a.rank != b.rank) add(strfmt("lora_rank %ld and not %ld", a.rank, b.rank));
  if (a.alpha != b.alpha) add(strfmt("lora_alpha %g and not %g", a.alpha, b.alpha));
  if (a.rslora != b.rslora) add(strfmt("use_rslora %s", a.rslora ? "true" : "false"));
  const auto trained = [](const models::Model& model, bool adapters) {
    std::set<std::string> names;
    for (const ParamSpec& param : model.params)
      if (param.trainable && param.adapter == adapters) names.insert(param.name);
    return names;
  };
  if (trained(now, true) != trained(saved, true)) add("other modules with adapters (target_modules, target_regex)");
  if (trained(now, false) != trained(saved, false)) add("other parameters beside them (modules_to_save, lora_bias)");
  return text;
}

}  // namespace

void require_same_adapters(const models::Model& model, const std::string& config_json, const AdapterConfig& saved) {
  if (!model.lora && saved.text.empty()) return;
  if (!model.lora)
    throw Error(ExitCode::usage, saved.directory + " is of a LoRA run, and this run trains the model in full",
                "--tuner_type", "Resume with --tuner_type lora and the options of that run");
  if (saved.text.empty())
    throw Error(ExitCode::usage, saved.directory + " is not of a LoRA run, and this run trains adapters",
                "--tuner_type", "Start from its weights: --model " + saved.directory);
  models::Model then = models::make(config_json, "--model", model.dtype);
  add_adapters(then, saved);
  if (const std::string text = differences(model, then); !text.empty())
    throw Error(ExitCode::usage, saved.directory + " has other adapters; this run has " + text,
                "--resume_from_checkpoint", "Resume with the options of that run");
}

namespace {

/// Loads what the checkpoint has; if that is the base too, it must be the one in place.
void read_adapter_of_checkpoint(World& world, const std::string& directory, const AdapterShards& to) {
  const io::CheckpointReader reader(world, directory);
  const DType dtype = to.model->dtype;
  std::optional<io::BaseModel> before;
  if (!reader.manifest().base) before = checksum_of(world, to, dtype);
  (void)reader.load(to.model->own_params(), *to.layout, state_of(to));
  if (!before) return;
  if (const io::BaseModel after = checksum_of(world, to, dtype); after != *before)
    throw Error(ExitCode::data,
                strfmt("E145 %s has the parameters of another base model: the checksum of this one is %08x, not %08x",
                       directory.c_str(), before->crc, after.crc),
                {}, "Give the base model that it was trained from");
}

}  // namespace

void read_adapter(World& world, const std::string& directory, const AdapterShards& to) {
  const auto is_checkpoint = [&] { return std::string(io::exists(directory + "/" + io::manifest_name) ? "yes" : ""); };
  if (!world.text_of_rank_0(is_checkpoint).empty()) return read_adapter_of_checkpoint(world, directory, to);
  const std::string file = directory + "/" + io::adapter_file_name;
  check_base_of_adapter(world, directory, file, to);
  io::read_adapter(world, file, to.model->own_params(), *to.layout, to.shards,
                   [&](const std::string& name) { return models::adapter_tensor_use(*to.model, name); });
}

std::map<std::string, std::string> adapter_metadata(const io::BaseModel& base) {
  std::map<std::string, std::string> metadata{{base_dtype_key, name_of(base.dtype)},
                                              {base_crc_key, strfmt("%08x", base.crc)}};
  if (base.quantization != QuantFormat::none) metadata[base_quantization_key] = name_of(base.quantization);
  return metadata;
}

void write_adapter(World& world, const std::string& directory, const std::string& base, io::WriteModelOptions options,
                   const AdapterShards& from) {
  options.file = io::adapter_file_name;
  options.config_name = io::adapter_config_name;
  options.metadata = adapter_metadata(checksum_of(world, from, from.model->dtype));
  for (const models::AdapterTensor& tensor : models::adapter_tensors(*from.model))
    options.tensors.push_back({tensor.name, tensor.param});
  io::write_model(world, directory, models::lora_config_text(*from.model, base), from.model->own_params(), *from.layout,
                  from.shards, options);
}

}  // namespace tessera::jobs

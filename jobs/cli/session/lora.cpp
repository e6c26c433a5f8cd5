#include "jobs/cli/session/lora.hpp"

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

/// Options that describe an adapter; --adapters has them in its config.
constexpr const char* adapter_options[] = {"lora_rank",       "lora_alpha", "target_modules", "target_regex",
                                           "modules_to_save", "lora_bias",  "use_rslora",     "init_lora_weights"};

io::BaseModel checksum_of(World& world, const AdapterShards& of, DType dtype) {
  io::TrainingState state;
  for (const io::ShardView& view : of.shards) state.shards.push_back({view.unit, view.shard, {view.data}});
  return io::base_model(world, of.model->params, *of.layout, state, io::frozen_names(of.model->params), dtype);
}

/// The base that a file of ours names; nothing in a file of PEFT's.
std::optional<io::BaseModel> named_base(World& world, const std::string& file) {
  const std::string found = world.text_of_rank_0([&] {
    const auto metadata = io::SafetensorsFile(file).metadata();
    const auto dtype = metadata.find(base_dtype_key), crc = metadata.find(base_crc_key);
    return dtype == metadata.end() || crc == metadata.end() ? "" : dtype->second + " " + crc->second;
  });
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (const std::string start = std::string(name_of(dtype)) + " "; found.starts_with(start))
      return io::BaseModel{dtype, static_cast<std::uint32_t>(std::strtoul(found.c_str() + start.size(), nullptr, 16))};
  return std::nullopt;
}

void check_base_of_adapter(World& world, const std::string& directory, const std::string& file,
                           const AdapterShards& to) {
  const std::optional<io::BaseModel> expected = named_base(world, file);
  if (!expected) return;
  if (expected->dtype != to.model->dtype && to.model->dtype != DType::f32) {
    log::info(strfmt("adapter   its base was kept in %s, and this one is in %s: they are not compared",
                     name_of(expected->dtype), name_of(to.model->dtype)));
    return;
  }
  if (const io::BaseModel found = checksum_of(world, to, expected->dtype); found != *expected)
    throw Error(ExitCode::data,
                strfmt("E145 %s is an adapter of another base model: the checksum of this one is %08x, not %08x",
                       directory.c_str(), found.crc, expected->crc),
                {}, "Give the base model that it was trained from, with --model");
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

void add_adapters(models::Model& model, const Options& options, const std::string& config) {
  models::LoraSpec spec;
  if (!config.empty()) {
    spec = models::parse_lora_config(config, adapter_config_name);
  } else {
    spec.rank = options.integer("lora_rank");
    spec.alpha = options.real("lora_alpha");
    spec.rslora = options.flag("use_rslora");
    spec.init = options.text("init_lora_weights") == "gaussian" ? models::LoraSpec::Init::gaussian
                                                                : models::LoraSpec::Init::uniform;
    if (options.given("target_modules")) spec.targets = options.list("target_modules");
    if (options.has("target_regex")) spec.targets.clear(), spec.regex = options.text("target_regex");
    spec.modules_to_save = options.list("modules_to_save");
    const std::string bias = options.text("lora_bias");
    spec.bias = bias == "all"         ? models::LoraSpec::Bias::all
                : bias == "lora_only" ? models::LoraSpec::Bias::lora_only
                                      : models::LoraSpec::Bias::none;
  }
  if (config.empty() || options.given("lora_dropout")) spec.dropout = options.real("lora_dropout");
  models::add_lora(model, spec);
}

std::string read_adapter_config(const std::string& directory) {
  const std::string path = directory + "/" + adapter_config_name;
  if (!io::exists(path))
    throw Error(ExitCode::data, "there is no " + std::string(adapter_config_name) + " in " + directory, "--adapters",
                "Give the directory of an adapter, as PEFT or a LoRA run writes it");
  return io::read_text(path, 16U << 20);
}

void read_adapter(World& world, const std::string& directory, const AdapterShards& to) {
  const std::string file = directory + "/" + io::adapter_file_name;
  world.run_and_agree([&] {
    if (!io::exists(file))
      throw Error(ExitCode::data, "there is no " + std::string(io::adapter_file_name) + " in " + directory,
                  "--adapters", "Save the adapter with safe_serialization");
  });
  check_base_of_adapter(world, directory, file, to);
  io::read_adapter(world, file, to.model->params, *to.layout, to.shards,
                   [&](const std::string& name) { return models::adapter_tensor_use(*to.model, name); });
}

void write_adapter(World& world, const std::string& directory, const std::string& base,
                   const std::string& auxiliary_source, const AdapterShards& from) {
  const io::BaseModel frozen = checksum_of(world, from, from.model->dtype);
  io::WriteModelOptions options{.auxiliary_source = auxiliary_source};
  options.file = io::adapter_file_name;
  options.config_name = adapter_config_name;
  options.metadata = {{base_dtype_key, name_of(frozen.dtype)}, {base_crc_key, strfmt("%08x", frozen.crc)}};
  for (const models::AdapterTensor& tensor : models::adapter_tensors(*from.model))
    options.tensors.push_back({tensor.name, tensor.param});
  io::write_model(world, directory, models::lora_config_text(*from.model, base), from.model->params, *from.layout,
                  from.shards, options);
}

}  // namespace tessera::jobs

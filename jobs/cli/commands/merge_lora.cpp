// SPDX-License-Identifier: Apache-2.0
// `tessera convert --merge_lora true`: a model directory with an adapter's branches added to the weights.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "io/checkpoint/checkpoint.hpp"
#include "io/convert/output.hpp"
#include "io/file/text_file.hpp"
#include "io/inspect/recognize.hpp"
#include "io/model/model_part.hpp"
#include "io/model/safetensors.hpp"
#include "jobs/cli/commands/commands.hpp"
#include "jobs/cli/commands/whole_model.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/model_tensors.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/quantize.hpp"
#include "models/wrappers.hpp"
#include "runtime/base/log.hpp"
#include "runtime/infer/inference.hpp"

namespace tessera::jobs {

namespace {

/// Where ms-swift writes the merged model by default.
std::string merged_path(const std::string& adapter) { return io::output_path(adapter) + "-merged"; }

/// A model with its base or a checkpoint of a LoRA run, and the adapter.
ModelConfig read_merge_input(const Options& options, World& world) {
  ModelConfig config;
  world.run_on_rank_0([&] {
    const std::string in =
        options.has("in") ? options.text("in") : base_of_adapter(locate_adapter(options.text("adapters")));
    const io::LocatedPath located =
        io::recognize(in, options.has("adapters") ? io::Prefer::model : io::Prefer::automatic);
    config.directory = located.path;
    config.path = located.path + "/config.json";
    if (located.kind == io::PathKind::checkpoint) {
      for (const io::AuxiliaryFileRecord& file : io::read_manifest(located.path).auxiliary_files)
        if (file.name == "config.json") config.text = io::read_auxiliary_file(located.path, file);
      config.adapter = adapter_of_checkpoint(located.path);
      if (config.text.empty() || config.adapter.text.empty())
        throw Error(ExitCode::data, located.path + " is no checkpoint of a LoRA run", "--merge_lora",
                    "Give its base model with --in, and the adapter with --adapters");
      if (options.has("adapters"))
        throw options.refuse("adapters", "the checkpoint has an adapter already", "Drop --adapters");
      return;
    }
    if (located.kind != io::PathKind::model)
      throw Error(ExitCode::data, in + " is " + io::name_of(located.kind), "--in",
                  "Give the base model, or a checkpoint of a LoRA run");
    if (!options.has("adapters"))
      throw options.refuse("merge_lora", "--merge_lora needs an adapter", "Give its directory with --adapters");
    config.text = io::read_text(config.path, 16U << 20);
    config.adapter = locate_adapter(options.text("adapters"));
    make_reward_config(options, config, PadToken::of_tokenizer);
  });
  for (std::string* text :
       {&config.directory, &config.path, &config.text, &config.adapter.text, &config.adapter.directory})
    *text = world.broadcast(*text);
  return config;
}

/// A parameter that every rank holds in full.
std::vector<float> unsharded(const shard::ShardLayout& layout, std::span<const io::ShardView> shards, int param) {
  for (const io::ShardView& view : shards)
    for (const shard::Segment& s : layout.segments(view.unit, view.shard)) {
      if (s.param != param) continue;
      const TensorView rows = view.data.rows(s.unit_offset - view.shard * layout.shard_numel(view.unit), s.length);
      return {rows.as<float>(), rows.as<float>() + s.length};
    }
  TESSERA_ASSERT(false, "parameter %d is not here", param);
  return {};
}

/// Throws Error (usage): an adapter of a tied head or embedding. W + ΔW would be of both.
void require_own_weights(const models::Model& model) {
  for (const models::AdaptedModule& module : model.lora->modules)
    if (std::ranges::any_of(model.aliases, [&](const auto& alias) {
          return alias.second.same_as == model.params[static_cast<std::size_t>(module.weight)].name;
        }))
      throw Error(ExitCode::usage,
                  module.name + " has an adapter, and is one weight with another module (tie_word_embeddings)",
                  "--merge_lora", "Keep the adapter apart: generate and eval take it with --adapters");
}

/// W += s·B·A for the elements of a weight that this rank holds; sums in double.
void merge_module(const models::AdaptedModule& module, const models::Model& model, const shard::ShardLayout& layout,
                  std::span<const io::ShardView> shards) {
  const std::vector<float> a = unsharded(layout, shards, module.a), b = unsharded(layout, shards, module.b);
  const std::int64_t rank = model.lora->spec.rank;
  const std::int64_t in = static_cast<std::int64_t>(a.size()) / rank, out = static_cast<std::int64_t>(b.size()) / rank;
  const double scale = model.lora->spec.scale();
  for (const io::ShardView& view : shards)
    for (const shard::Segment& s : layout.segments(view.unit, view.shard)) {
      if (s.param != module.weight) continue;
      auto* const weight =
          view.data.rows(s.unit_offset - view.shard * layout.shard_numel(view.unit), s.length).as<float>();
      for (std::int64_t e = 0; e < s.length; ++e) {
        const std::int64_t at = s.param_offset + e;
        const std::int64_t o = module.transposed ? at % out : at / in, i = module.transposed ? at / out : at % in;
        double sum = 0;
        for (std::int64_t k = 0; k < rank; ++k)
          sum += static_cast<double>(b[static_cast<std::size_t>(o * rank + k)]) *
                 static_cast<double>(a[static_cast<std::size_t>(k * in + i)]);
        weight[e] = static_cast<float>(static_cast<double>(weight[e]) + scale * sum);
      }
    }
}

/// --save_dtype, or --dtype; else the type of the base model.
DType merged_dtype(const Options& options, World& world, const ModelConfig& config) {
  if (options.has("dtype") && options.given("save_dtype"))
    throw options.refuse("save_dtype", "--dtype and --save_dtype both name the type of the output",
                         "Keep one of the two");
  if (const auto dtype = parse_dtype(options.text(options.has("dtype") ? "dtype" : "save_dtype"))) return *dtype;
  return parse_dtype(
             world.text_of_rank_0([&] { return std::string(name_of(model_dtype(config.text, config.directory))); }))
      .value();
}

/// Rank 0: what the base model has beside its weights, or the checkpoint; without the configs, which the merge writes.
std::vector<io::AuxiliaryFile> files_of_base(World& world, const std::string& directory) {
  std::vector<io::AuxiliaryFile> files;
  world.run_on_rank_0([&] {
    if (!io::exists(directory + "/" + io::manifest_name)) files = io::all_auxiliary_files(directory);
    else
      for (const io::AuxiliaryFileRecord& file : io::read_manifest(directory).auxiliary_files)
        files.push_back({file.name, io::read_auxiliary_file(directory, file)});
    std::erase_if(files, [](const io::AuxiliaryFile& file) {
      return file.name == "config.json" || file.name == io::adapter_config_name;
    });
  });
  return files;
}

/// Rank 0, W071: the metadata of the base model's headers describe other weights than those that are written.
void warn_of_metadata(World& world, const std::string& directory) {
  world.run_on_rank_0([&] {
    std::set<std::string> keys;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() != ".safetensors" || entry.path().filename() == io::adapter_file_name) continue;
      const io::SafetensorsFile file(entry.path().string());
      for (const auto& [key, value] : file.metadata())
        if (key != "format") keys.insert(key);
    }
    std::string list;
    for (const std::string& key : keys) list += (list.empty() ? "\"" : ", \"") + key + "\"";
    if (!list.empty())
      log::warn(71, "the metadata of the files' headers in " + directory +
                        " are of the model before the merge, and are left out: " + list);
  });
}

}  // namespace

void merge_lora(const Call& call, World& world) {
  const Options& options = call.options();
  const bool with_adapter = options.has("adapters");
  if (!options.has("in") && !with_adapter)
    throw Error(ExitCode::usage, "convert --merge_lora needs --in or --adapters", "command line",
                "Give a checkpoint of a LoRA run with --in, or an adapter with --adapters");
  if (!options.has("out") && !with_adapter)
    throw Error(ExitCode::usage, "convert needs --out", "command line", "Give it a directory that does not exist yet");
  const std::string out =
      options.has("out") ? io::output_path(options.text("out")) : merged_path(options.text("adapters"));
  if (options.flag("verify") || (options.has("to") && options.text("to") != "hf"))
    throw options.refuse("merge_lora", "--merge_lora writes a model for --to hf, and takes no --verify",
                         "Convert its output again");
  std::unique_ptr<io::OutputLock> lock;
  world.run_on_rank_0([&] {
    lock = std::make_unique<io::OutputLock>(io::without_slash(options.text(options.has("in") ? "in" : "adapters")), out,
                                            /*replace=*/false);
  });
  const ModelConfig config = read_merge_input(options, world);
  const models::Model model = make_inference_model(options, config);
  require_own_weights(model);
  const bool is_part = models::is_text_part(model.family);
  if (is_part && !options.has("adapters"))
    throw Error(ExitCode::usage, config.directory + " has no other tensors of the model than those of its text part",
                "--in", "Give the base model with --in, and the checkpoint with --adapters");
  const io::PartOf whole{config.directory, [&](const std::string& name) { return models::tensor_use(model, name); }};
  if (is_part) world.run_and_agree([&] { io::check_copied_tensors(whole); });
  infer::Inference run(world, {.run = whole_model_spec(model, world)});
  const shard::ShardLayout& layout = run.plan().layout;
  const std::vector<io::ShardView> shards = run.shards();
  read_weights(world, config.directory, {.model = &model, .layout = &layout, .shards = shards});
  if (options.has("adapters")) read_adapter(world, config.adapter.directory, {&model, &layout, shards});
  for (const models::AdaptedModule& module : model.lora->modules) merge_module(module, model, layout, shards);
  const DType dtype = merged_dtype(options, world, config);
  warn_of_metadata(world, config.directory);
  const std::string text = io::config_for_dtype(models::without_quantization(config.text), dtype);
  const io::WriteModelOptions how{.max_shard_bytes = options.bytes("max_shard_size"),
                                  .dtype = dtype,
                                  .auxiliary_files = files_of_base(world, config.directory),
                                  .new_directory = true};
  if (is_part) io::write_model_part(world, out, text, model.params, layout, shards, how, whole);
  else io::write_model(world, out, text, model.params, layout, shards, how);
  log::info(strfmt("convert   done | %zu adapters merged in fp32, saved in %s | %s", model.lora->modules.size(),
                   name_of(dtype), out.c_str()));
}

}  // namespace tessera::jobs

// SPDX-License-Identifier: Apache-2.0
// Options that contradict one another, where no file is needed to see it.
#include <algorithm>
#include <bit>

#include "io/chat/chat_template.hpp"
#include "io/file/file.hpp"
#include "io/hdf5/mpio_file.hpp"
#include "jobs/cli/options/other_tools.hpp"
#include "jobs/cli/session/best_checkpoint.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/precision.hpp"
#include "jobs/cli/session/preferences.hpp"
#include "jobs/cli/session/quantization.hpp"
#include "jobs/cli/session/setup.hpp"
#include "jobs/cli/session/setup_errors.hpp"
#include "jobs/cli/session/strategy.hpp"

namespace tessera::jobs {

namespace {

/// Throws Error (usage) of two options that are not for one run.
[[noreturn]] void refuse_both(const Options& options, const std::string& what, std::initializer_list<const char*> names,
                              const std::string& what_to_do = "Drop one of the two") {
  throw Error(ExitCode::usage, what, option_sources(options, names), what_to_do);
}

void check_precision(const Options& options) {
  if (asked_compute(options)) (void)precision_of(options);
  (void)loss_scale_of(options);
}

void check_order_of_sums(const Options& options) {
  if (options.flag("reproducible") && options.given("reduce_gradients") && options.text("reduce_gradients") == "last")
    refuse_both(options, "--reproducible reduces gradients after each micro-batch, but --reduce_gradients is last",
                {"reproducible", "reduce_gradients"});
}

void check_nccl_order(const Options& options) {
  if (options.flag("reproducible") && options.text("comm") == "nccl")
    refuse_both(options, "--reproducible needs the documented order of additions, and NCCL has its own",
                {"reproducible", "comm"}, "Use --comm mpi, or drop --reproducible");
}

void check_measured_choices(const Options& options) {
  for (const char* name : {"gemm_choice", "attention"})
    if (options.text(name) == "measured" && options.flag("reproducible"))
      refuse_both(
          options,
          strfmt("--reproducible needs a fixed order of additions, and with --%s measured timing chooses it", name),
          {name, "reproducible"});
}

void check_choice_file(const Options& options) {
  if (options.has("gemm_choice_file") && options.text("gemm_choice") != "measured")
    throw options.refuse(
        "gemm_choice_file",
        "--gemm_choice_file is for --gemm_choice measured, and --gemm_choice is " + options.text("gemm_choice"),
        "Add --gemm_choice measured");
}

void check_attention(const Options& options) {
  if (options.text("attention") != "cudnn") return;
  if (asked_compute(options) == DType::f32)
    throw options.refuse("attention", "--attention cudnn needs bf16 or fp16", "Add --bf16, or use --attention own");
}

void check_transport(const Options& options) {
  if (options.text("comm") == "nccl" && options.text("backend") == "cpu")
    throw options.refuse("comm", "--comm nccl needs GPUs, and --backend is " + options.text("backend"),
                         "Use --comm auto, node or mpi");
}

void check_validation_data(const Options& options) {
  if (options.given("val_dataset") && options.given("split_dataset_ratio") && options.real("split_dataset_ratio") > 0)
    refuse_both(options, "--val_dataset and --split_dataset_ratio both choose the validation data",
                {"val_dataset", "split_dataset_ratio"}, "Keep one of the two");
}

/// Options of evaluation, each by itself.
void check_validates(const Options& options, const char* name) {
  if (options.has("val_dataset") || options.real("split_dataset_ratio") > 0 || !options.given(name)) return;
  const std::string text = options.has(name) ? options.text(name) : "";
  if (text != "0" && text != "none" && text != "false" && text != "no" && text != "steps")
    throw options.refuse(name, std::string("--") + name + " needs validation data",
                         "Give --val_dataset, or --split_dataset_ratio 0.1");
}

/// ms-swift and LLaMA-Factory name a template by the family of its model; here a model's own template is the default.
void check_template(const Options& options) {
  const std::string name = options.text("template");
  const std::vector<std::string> known = io::ChatTemplate::names();
  if (std::ranges::find(known, name) != known.end() || io::exists(name)) return;
  constexpr const char* of_families =
      "qwen* qwq* llama* mistral* mixtral* gemma* deepseek* phi* chatglm* glm* internlm* "
      "yi* baichuan* minicpm* gpt* cohere* falcon* granite* hunyuan* vicuna* zephyr* "
      "alpaca";
  if (!is_named(of_families, canonical_spelling(name))) return;
  std::string names;
  for (const std::string& one : known) names += (names.empty() ? "" : ", ") + one;
  throw options.refuse("template", "--template " + name + ": a name of ms-swift or LLaMA-Factory",
                       "Leave --template out for the model's own chat template, or give a file, or one of " + names);
}

void check_bigram(const Options& options) {
  if (options.text("baseline") != "bigram") return;
  if (options.has("val_dataset") && options.list("val_dataset").size() > 1)
    refuse_both(options, "--baseline bigram takes one validation file", {"baseline", "val_dataset"},
                "Give one --val_dataset, or drop --baseline");
  if (options.flag("packing"))
    refuse_both(options, "--baseline bigram counts pairs of tokens across the documents that --packing keeps apart",
                {"packing", "baseline"});
}

void check_packing(const Options& options) {
  if (options.given("packing_strategy") && !options.flag("packing"))
    throw options.refuse("packing_strategy", "--packing_strategy has no effect without --packing",
                         "Add --packing true");
}

void check_group_by_length(const Options& options) {
  if (!options.flag("group_by_length")) return;
  if (options.flag("packing"))
    refuse_both(options, "--packing fills samples, and leaves --group_by_length nothing to group",
                {"packing", "group_by_length"});
  if (!options.flag("dataset_shuffle"))
    refuse_both(options, "--dataset_shuffle false keeps the order of the files",
                {"dataset_shuffle", "group_by_length"});
}

/// Throws Error (usage) of an option of the command line that does nothing; files of other tools may have it.
void require_effect(const Options& options, const char* name, bool has_effect, const char* needed) {
  if (has_effect || options.value(name).source.precedence < precedence::command_line) return;
  throw options.refuse(name, strfmt("--%s has no effect without %s", name, needed),
                       strfmt("Add what it is for, or drop --%s", name));
}

void check_scratch(const Options& options) {
  require_effect(options, "nvme_path",
                 options.text("offload_optimizer") == "disk" || options.text("offload_params") == "disk",
                 "--offload_optimizer disk or --offload_params disk");
}

void check_int8(const Options& options) {
  const bool gradients = options.text("reduce_dtype") == "int8";
  require_effect(options, "error_feedback", gradients, "--reduce_dtype int8");
  require_effect(options, "compress_axes", gradients || options.text("gather_dtype") != "compute",
                 "--reduce_dtype int8 or --gather_dtype int8");
}

void check_save_only_trainable(const Options& options) {
  if (!options.flag("save_only_trainable")) return;
  if (!trains_lora(options) && !options.given("freeze_parameters") && !options.given("trainable_parameters"))
    throw options.refuse("save_only_trainable",
                         "--save_only_trainable leaves out frozen parameters, and none is frozen",
                         "Add --freeze_parameters, --trainable_parameters or --tuner_type lora");
  if (options.flag("from_scratch"))
    refuse_both(options, "--save_only_trainable needs a base model, and --from_scratch has none",
                {"save_only_trainable", "from_scratch"});
}

void check_alignment(const Options& options) {
  const std::uint64_t alignment = options.bytes("checkpoint_alignment");
  if (!std::has_single_bit(alignment) || alignment < io::hdf5_alignment || alignment > (4u << 20))
    throw options.refuse("checkpoint_alignment", strfmt("--checkpoint_alignment is %lu bytes", alignment),
                         "Give a power of two from 4KiB to 4MiB");
}

void check_checkpoint_io(const Options& options) {
  if (options.text("checkpoint_io") != "mpio") return;
  if (!io::MpioFile::built())
    throw options.refuse("checkpoint_io", "this program's HDF5 library was built without MPI",
                         "Use direct, or build with a parallel HDF5 (Debian: libhdf5-openmpi-dev)");
  if (options.flag("async_save"))
    refuse_both(options, "MPI-IO needs the thread that trains: it does not write asynchronously",
                {"checkpoint_io", "async_save"});
}

void check_context_kind(const Options& options) {
  if (options.given("context_parallel_kind") && context_ranks_of(options) == 1)
    throw options.refuse("context_parallel_kind", "no ranks share rows: --context_parallel_size is 1",
                         "Give --context_parallel_size C, or leave --context_parallel_kind out");
}

void check_samples(const Options& options) {
  if (context_ranks_of(options) > 1 && (options.has("sample_prompt") || options.has("prompt_file")))
    throw options.refuse("context_parallel_size", "ranks that share rows generate nothing",
                         "Drop --sample_prompt and --prompt_file, and use tessera generate after training");
  if (options.has("sample_prompt") && options.text("sample_prompt").empty())
    throw options.refuse("sample_prompt", "--sample_prompt is empty", "Give it a text to continue");
}

void check_sample_steps(const Options& options) {
  if (options.integer("eval_generate_steps") > 0 && !options.has("prompt_file"))
    throw options.refuse("eval_generate_steps", "--eval_generate_steps has no prompts to continue",
                         "Add --prompt_file FILE");
}

}  // namespace

void check_options(const Options& options) {
  SetupErrors errors;
  for (const auto rule : {check_precision,
                          check_order_of_sums,
                          check_nccl_order,
                          check_measured_choices,
                          check_choice_file,
                          check_attention,
                          check_transport,
                          check_validation_data,
                          refuse_depends,
                          check_best_options,
                          check_sample_steps,
                          check_template,
                          check_bigram,
                          check_packing,
                          check_group_by_length,
                          check_scratch,
                          check_int8,
                          check_lora_options,
                          check_preference_options,
                          check_quantization_options,
                          check_save_only_trainable,
                          check_context_kind,
                          check_samples,
                          check_alignment,
                          check_checkpoint_io})
    errors.check([&] { rule(options); });
  for (const char* name :
       {"eval_strategy", "eval_on_start", "baseline", "load_best_model_at_end", "metric_for_best_model"})
    errors.check([&] { check_validates(options, name); });
  errors.throw_all();
}

}  // namespace tessera::jobs

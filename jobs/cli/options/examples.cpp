// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/options/examples.hpp"

namespace tessera::jobs {

namespace {

// One example per line.
// clang-format off
constexpr Example examples[] = {
    {for_train, "pt", "a small model from scratch, on four ranks", "tessera launch -n 4 -- pt --shape small --dataset text.txt --max_steps 100"},
    {for_train, "sft", "fine-tune a model of the local cache in bf16, resuming where the last run stopped", "tessera launch -n 8 -- sft --model Qwen/Qwen2.5-0.5B --dataset chats.jsonl --bf16 --resume_from_checkpoint auto"},
    {for_train, "sft", "LoRA on one rank, evaluated on a tenth of the rows", "tessera sft --model DIR --tuner_type lora --dataset chats.jsonl --split_dataset_ratio 0.1"},
    {for_train, "sft", "QLoRA: the base model in 4 bits", "tessera sft --model DIR --tuner_type lora --quant_method bnb --quant_bits 4 --bf16 --dataset chats.jsonl"},
    {for_train, "rlhf", "DPO of a fine-tuned model on pairs of answers, with LoRA", "tessera launch -n 8 -- rlhf --rlhf_type dpo --model DIR --tuner_type lora --dataset pairs.jsonl --bf16"},
    {for_train, "", "with a file of accelerate or DeepSpeed", "tessera launch -n 8 -- train accelerate.yaml --model DIR --dataset text.txt"},
    {for_launch, "", "four ranks on this host", "tessera launch -n 4 -- sft --model DIR --dataset chats.jsonl"},
    {for_launch, "", "two hosts with eight ranks each", "tessera launch -n 16 -H a:8,b:8 -- train run.yaml"},
    {for_plan, "", "memory of 64 ranks, and the largest micro-batch that fits", "tessera plan --model DIR --world_size 64 --ranks_per_node 8 --zero_stage 3 --device_memory 80GB"},
    {for_generate, "", "continue a text", "tessera generate --model DIR --prompt 'Once upon a time' --max_new_tokens 64"},
    {for_generate, "", "a conversation on this terminal, with an adapter on its base model", "tessera generate --adapters output/v1/checkpoint-500 --chat"},
    {for_generate, "", "answer questions, one a line, from standard input", "tessera generate --model DIR --chat --prompt_file - --json < questions.txt"},
    {for_eval, "", "loss and perplexity of a checkpoint", "tessera launch -n 4 -- eval --checkpoint output/v1/checkpoint-500 --dataset held-out.txt"},
    {for_convert, "", "a checkpoint to a model in bf16", "tessera convert output/v1/checkpoint-500 model --dtype bf16"},
    {for_convert, "", "a model to a checkpoint", "tessera convert model checkpoint"},
    {for_convert, "", "an adapter added to its base model", "tessera convert --adapters output/v1 --merge_lora true --out merged"},
    {for_inspect, "", "tensors of a checkpoint, with their range", "tessera inspect output/v1/checkpoint-500 --stats"},
    {for_checkpoint, "", "verify checksums", "tessera checkpoint verify output/v1/checkpoint-500"},
    {for_bench, "", "time a step of a model of this size on this machine", "tessera launch -n 4 -- bench step --shape small"},
    {for_tokenize, "", "text to a token file", "tessera launch -n 4 -- tokenize --model DIR --dataset text.jsonl --out tokens.bin"},
    {for_job_script, "", "a script for two nodes, submitted", "tessera job-script slurm --nodes 2 -- train run.yaml > run.sh"},
    {for_config, "", "what each key of a file does", "tessera config explain accelerate.yaml"},
    {for_config, "", "every refusal of a run, without starting it", "tessera config check run.yaml --deepspeed ds.json"},
    {for_completion, "", "completion in this shell", "source <(tessera completion bash)"},
};
// clang-format on

}  // namespace

std::span<const Example> example_table() { return examples; }

std::string examples_text(const CommandSpec& command, const std::string& stage) {
  std::string text;
  for (const Example& example : example_table()) {
    if (example.command != command.bit || (!stage.empty() && stage != example.stage)) continue;
    text += text.empty() ? "\nExamples\n" : "";
    text += std::string("  # ") + example.what + "\n  " + example.line + "\n";
  }
  return text;
}

}  // namespace tessera::jobs

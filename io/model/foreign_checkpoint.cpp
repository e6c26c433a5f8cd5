// SPDX-License-Identifier: Apache-2.0
// The marker files of other programs' checkpoints.
#include "io/model/foreign_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <vector>

#include "io/file/file.hpp"
#include "io/file/lfs_pointer.hpp"
#include "io/file/link_text.hpp"
#include "io/model/model_files.hpp"
#include "runtime/base/log.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

constexpr const char* copy_the_rest = ", and copy config.json and the tokenizer's files there";

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// Without a slash at its end.
fs::path absolute_path(const std::string& directory) {
  const fs::path path = fs::absolute(directory).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::binary_search(names, name);
}

/// The first name for which `test` is true, or "".
template <class Test>
std::string first_of(const std::vector<std::string>& names, Test test) {
  const auto found = std::ranges::find_if(names, test);
  return found == names.end() ? "" : *found;
}

/// A torch pickle of a state dict, perhaps inside another dict.
std::string command_for_pickle(const std::string& file) {
  return "Make safetensors of it: python3 -c 'import sys, torch; from safetensors.torch import save_file; "
         "d = torch.load(sys.argv[1], map_location=\"cpu\"); "
         "d = next((d[k] for k in (\"model\", \"module\", \"state_dict\") if k in d), d); "
         "save_file({k: v.clone().contiguous() for k, v in d.items()}, sys.argv[2], {\"format\": \"pt\"})' " +
         file + " OUT/model.safetensors" + copy_the_rest;
}

std::string command_for_transformers(const std::string& directory, const std::string& extra) {
  return "Make safetensors of it: python3 -c 'import sys; from transformers import AutoModelForCausalLM as M; "
         "M.from_pretrained(sys.argv[1], torch_dtype=\"auto\"" +
         extra + ").save_pretrained(sys.argv[2])' " + directory + " OUT, and copy the tokenizer's files there";
}

bool is_zero_state(const std::string& name) {
  return name.find("zero_pp_rank_") != name.npos && name.ends_with("_states.pt");
}
bool is_deepspeed_state(const std::string& name) {
  return is_zero_state(name) || (name.starts_with("mp_rank_") && name.ends_with("_model_states.pt"));
}

/// `root` has zero_to_fp32.py and the directory `tag`, which has `name`.
ForeignCheckpoint deepspeed(const std::string& root, const std::string& tag, const std::string& name) {
  const std::string script =
      exists(root + "/zero_to_fp32.py") ? root + "/zero_to_fp32.py" : std::string("-m deepspeed.utils.zero_to_fp32");
  const bool zero = !first_of(names_in(root + "/" + tag), is_zero_state).empty();
  return {"a DeepSpeed checkpoint (" + tag + "/" + name + ")",
          zero ? "Make safetensors of it: python3 " + script + " " + root + " OUT --safe_serialization" + copy_the_rest
               : command_for_pickle(root + "/" + tag + "/" + name)};
}

std::optional<ForeignCheckpoint> find_deepspeed(const std::string& directory, const std::vector<std::string>& names) {
  if (const std::string name = first_of(names, is_deepspeed_state); !name.empty()) {
    const fs::path here = absolute_path(directory);
    return deepspeed(here.parent_path().string(), here.filename().string(), name);
  }
  for (auto tag = names.rbegin(); tag != names.rend(); ++tag)
    if (const std::string name = first_of(names_in(directory + "/" + *tag), is_deepspeed_state); !name.empty())
      return deepspeed(directory, *tag, name);
  if (!has(names, "zero_to_fp32.py")) return std::nullopt;
  return ForeignCheckpoint{"a DeepSpeed checkpoint (zero_to_fp32.py) without its global_stepN",
                           "Name the directory that has the states (zero_pp_rank_*_optim_states.pt)"};
}

bool is_megatron_directory(const std::string& directory) {
  const std::vector<std::string> names = names_in(directory);
  if (has(names, "common.pt") && has(names, "metadata.json")) return true;  // its distributed checkpoints
  return !first_of(names, [&](const std::string& name) {
            return name.starts_with("mp_rank_") && (exists(directory + "/" + name + "/model_optim_rng.pt") ||
                                                    exists(directory + "/" + name + "/model_rng.pt"));
          }).empty();
}

std::optional<ForeignCheckpoint> find_megatron(const std::string& directory, const std::vector<std::string>& names) {
  constexpr const char* tracker = "latest_checkpointed_iteration.txt";
  std::string marker = has(names, tracker) ? tracker : "";
  std::string root = directory;
  if (marker.empty())
    marker = first_of(names, [&](const std::string& name) {
      return (name.starts_with("iter_") || name == "release") && is_megatron_directory(directory + "/" + name);
    });
  if (marker.empty() && is_megatron_directory(directory)) {
    marker = has(names, "common.pt")
                 ? "common.pt"
                 : first_of(names, [](const std::string& name) { return name.starts_with("mp_rank_"); });
    root = absolute_path(directory).parent_path().string();
  }
  if (marker.empty()) return std::nullopt;
  return ForeignCheckpoint{"a Megatron checkpoint (" + marker + ")",
                           "Make safetensors of it, with ms-swift: swift export --mcore_model " + root +
                               " --to_hf true --output_dir OUT; or with Megatron Bridge: "
                               "AutoBridge.from_hf_pretrained(MODEL).export_ckpt(\"" +
                               root + "\", \"OUT\")"};
}

/// torch.distributed.checkpoint: `.metadata` and files of ranks, here or in a directory of accelerate's.
std::optional<ForeignCheckpoint> find_distributed(const std::string& directory, const std::vector<std::string>& names) {
  const auto is_part = [](const std::string& name) { return name.ends_with(".distcp"); };
  const auto found = [&](const std::string& at, const std::string& name) {
    return ForeignCheckpoint{
        "a distributed checkpoint of torch (DCP: " + name + ")",
        "Make safetensors of it, with accelerate: accelerate merge-weights " + at + " OUT" + copy_the_rest};
  };
  if (const std::string part = first_of(names, is_part); !part.empty()) return found(directory, part);
  for (const std::string& name : names)
    if (const std::string part = first_of(names_in(directory + "/" + name), is_part);
        !part.empty() && !name.starts_with("optim"))
      return found(directory + "/" + name, name + "/" + part);
  if (!has(names, ".metadata")) return std::nullopt;
  return ForeignCheckpoint{"a distributed checkpoint of torch (DCP: .metadata) whose .distcp files are missing",
                           "Copy all of its files"};
}

/// Pickles that FSDP leaves: of all ranks in one file, or one of each rank.
std::optional<ForeignCheckpoint> find_fsdp(const std::string& directory, const std::vector<std::string>& names) {
  const std::string ranks = first_of(
      names, [](const std::string& name) { return name.starts_with("model_world_size_") && name.ends_with(".pt"); });
  if (!ranks.empty())
    return ForeignCheckpoint{"an FSDP checkpoint with a file for each rank (" + ranks + ")",
                             "Make safetensors of it, with verl: python3 -m verl.model_merger merge --backend fsdp "
                             "--local_dir " +
                                 directory + " --target_dir OUT"};
  const std::string local = first_of(names, [](const std::string& name) {
    return name.starts_with("pytorch_model_fsdp_rank") && name.ends_with(".bin");
  });
  if (!local.empty())
    return ForeignCheckpoint{"an FSDP checkpoint with a file for each rank (LOCAL_STATE_DICT: " + local + ")",
                             "Load it with as many ranks as wrote it, and save it as FULL_STATE_DICT"};
  const std::string full = first_of(names, [](const std::string& name) {
    return name.find("fsdp") != name.npos &&
           (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth"));
  });
  if (full.empty()) return std::nullopt;
  return ForeignCheckpoint{"an FSDP checkpoint (" + full + ")", command_for_pickle(directory + "/" + full)};
}

bool is_other_state(const std::string& name) {
  static constexpr std::array<const char*, 6> starts = {"optim",         "scheduler",     "rng_state",
                                                        "random_states", "training_args", "scaler"};
  return std::ranges::any_of(starts, [&](const char* start) { return name.starts_with(start); });
}

std::optional<ForeignCheckpoint> find_other_weights(const std::string& directory,
                                                    const std::vector<std::string>& names) {
  const std::string bin = first_of(names, [](const std::string& name) {
    return name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json"));
  });
  if (!bin.empty())
    return ForeignCheckpoint{"a model in pickles of torch (" + bin + "), which are not read",
                             command_for_transformers(directory, "")};
  if (has(names, "adapter_model.bin"))
    return ForeignCheckpoint{"an adapter in a pickle of torch (adapter_model.bin), which is not read",
                             "Make safetensors of it: python3 -c 'import sys, torch; from safetensors.torch import "
                             "save_file; save_file(torch.load(sys.argv[1], map_location=\"cpu\"), sys.argv[2])' " +
                                 directory + "/adapter_model.bin " + directory + "/adapter_model.safetensors"};
  if (const std::string gguf = first_of(names, [](const std::string& name) { return name.ends_with(".gguf"); });
      !gguf.empty())
    return ForeignCheckpoint{"a model of llama.cpp (" + gguf + ")",
                             command_for_transformers(directory, ", gguf_file=\"" + gguf + "\"")};
  if (has(names, "tf_model.h5"))
    return ForeignCheckpoint{"a model of TensorFlow (tf_model.h5)",
                             command_for_transformers(directory, ", from_tf=True")};
  if (has(names, "flax_model.msgpack"))
    return ForeignCheckpoint{"a model of Flax (flax_model.msgpack)",
                             command_for_transformers(directory, ", from_flax=True")};
  const std::string original =
      first_of(names, [](const std::string& name) { return name.starts_with("consolidated."); });
  if (!original.empty())
    return ForeignCheckpoint{"a model with the names of its makers' own program (" + original + ")",
                             "Take the model.safetensors that is published beside it, or convert it with transformers"};
  const std::string pickle = first_of(names, [](const std::string& name) {
    return (name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".ckpt")) && !is_other_state(name);
  });
  if (pickle.empty()) return std::nullopt;
  return ForeignCheckpoint{"a directory with a pickle of torch (" + pickle + "), which is not read",
                           command_for_pickle(directory + "/" + pickle)};
}

std::optional<ForeignCheckpoint> find_foreign_file(const std::string& path) {
  const File file = File::open_to_read(path);
  std::array<char, longest_link_text + 1> head{};
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), head.size()));
  file.read_at(0, std::as_writable_bytes(std::span(head).first(n)));
  refuse_lfs_pointer(path, std::string_view(head.data(), n));
  refuse_link_text(path, std::string_view(head.data(), n));
  const std::string name = fs::path(path).filename().string(), type = fs::path(path).extension().string();
  if (n >= 4 && std::memcmp(head.data(), "GGUF", 4) == 0)
    return ForeignCheckpoint{"a model of llama.cpp",
                             command_for_transformers(directory_of(path), ", gguf_file=\"" + name + "\"")};
  const bool zipped = n >= 4 && std::memcmp(head.data(), "PK\x03\x04", 4) == 0;
  const bool pickled = n >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  const bool named = type == ".pt" || type == ".pth" || type == ".ckpt" || type == ".bin";
  if (type == ".distcp" || name == ".metadata") return find_foreign_checkpoint(directory_of(path));
  if (named && (zipped || (pickled && type != ".bin") || name.starts_with("pytorch_model")))
    return ForeignCheckpoint{"a pickle of torch, which is not read", command_for_pickle(path)};
  return std::nullopt;
}

std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view prefix = "checkpoint-";
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [last, failed] = std::from_chars(name.data() + prefix.size(), end, step);
  return failed == std::errc{} && last == end ? std::optional(step) : std::nullopt;
}

}  // namespace

Error ForeignCheckpoint::error(const std::string& path) const {
  return Error(ExitCode::data, path + " is " + what, {}, what_to_do);
}

std::optional<ForeignCheckpoint> find_foreign_checkpoint(const std::string& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed))
    return fs::is_regular_file(path, failed) ? find_foreign_file(path) : std::nullopt;
  const std::vector<std::string> names = names_in(path);
  if (has(names, "manifest.json")) return std::nullopt;
  if (has(names, model_file_name) || has(names, index_file_name)) {
    if (!has(names, "trainer_state.json")) return std::nullopt;
    return ForeignCheckpoint{"a checkpoint of transformers' Trainer (trainer_state.json), whose optimizer is not read",
                             "Start from its weights with --model " + path};
  }
  for (const auto find : {find_deepspeed, find_megatron, find_distributed, find_fsdp, find_other_weights})
    if (auto found = find(path, names)) return found;
  return std::nullopt;
}

std::string newest_trainer_checkpoint(const std::string& directory, std::span<const char* const> file_names) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const std::string& name : names_in(directory))
    if (const auto step = step_of(name); step && !exists(directory + "/" + name + "/manifest.json"))
      found.emplace_back(*step, directory + "/" + name);
  std::ranges::sort(found, std::greater{});
  std::string later;
  for (const auto& [step, path] : found) {
    if (!std::ranges::any_of(file_names, [&](const char* name) { return exists(path + "/" + name); })) {
      const auto foreign = find_foreign_checkpoint(path);
      later += (later.empty() ? "" : ", ") + path + (foreign ? ": " + foreign->what : std::string());
      continue;
    }
    if (!later.empty()) log::warn(94, path + " is taken, because later ones have no safetensors (" + later + ")");
    return path;
  }
  return {};
}

}  // namespace tessera::io

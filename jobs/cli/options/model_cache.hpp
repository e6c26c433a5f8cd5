// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models and data sets that Hugging Face's and ModelScope's tools have downloaded before, by name. Nothing is
// downloaded here. The user's cache directory.

#include <string>
#include <utility>

namespace tessera::jobs {

/// XDG_CACHE_HOME, else ~/.cache; "" if neither is known.
[[nodiscard]] std::string user_cache_directory();

/// True if `model` is spelled as the name of a model of a hub: "gpt2", "Qwen/Qwen3-0.6B".
[[nodiscard]] bool is_hub_name(const std::string& model);

/// The directory of a model in a local cache, with its config.json; "" if there is none. Hugging Face's cache is
/// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub; ModelScope's is
/// MODELSCOPE_CACHE, else ~/.cache/modelscope. `revision`: a branch, a tag, or a commit and its beginning; ModelScope
/// keeps one revision, so that it is asked for "main" only.
[[nodiscard]] std::string find_cached_model(const std::string& name, const std::string& revision);

/// The command that downloads a model to that cache.
[[nodiscard]] std::string download_command(const std::string& name, const std::string& revision);

/// True if a value of --dataset, without its #ROWS or :SHARE, is spelled as the name of a data set of a hub, and is no
/// file, directory or Megatron's PREFIX: "tatsu-lab/alpaca", "squad".
[[nodiscard]] bool is_hub_dataset(const std::string& name);
/// The directory of a data set in Hugging Face's local cache (its branch main); "" if there is none.
[[nodiscard]] std::string find_cached_dataset(const std::string& name);
/// The command that downloads a data set.
[[nodiscard]] std::string download_dataset_command(const std::string& name);
/// NAME#ROWS or NAME:SHARE as NAME and the rest; "" where a name has none.
[[nodiscard]] std::pair<std::string, std::string> split_selection(const std::string& name);

}  // namespace tessera::jobs

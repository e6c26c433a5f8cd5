// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models that Hugging Face's and ModelScope's tools have downloaded before, by name. Nothing is downloaded here. The
// user's cache directory.

#include <string>

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

}  // namespace tessera::jobs

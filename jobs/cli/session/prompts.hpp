// SPDX-License-Identifier: Apache-2.0
#pragma once
// The prompts of `generate`, from the command line and a file, and those that `train` continues.

#include <optional>
#include <string>
#include <vector>

#include "io/chat/chat_template.hpp"
#include "io/chat/conversation_row.hpp"
#include "io/corpus/chat_turn.hpp"
#include "jobs/cli/options/options.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

struct Prompt {
  std::string text;                                      // of a conversation: its last message
  std::optional<std::string> system = {};                // of its row
  std::optional<io::ConversationRow> conversation = {};  // of a row, with a chat template
  std::vector<std::string> unread = {};                  // keys of its row that nothing reads

  /// As the model reads it, with the header of the answer. `system`: for prompts that have none of their own.
  [[nodiscard]] io::PromptText rendered(const io::ChatTemplate& form, const std::string& system_message) const;
};

/// Whether a chat template turns prompts into text: only then may rows have "messages" or "system".
enum class PromptForm : unsigned char { text, chat };

/// Collective; rank 0 reads the file. --prompt first, then --prompt_file: each line of a text that is not blank; or, of
/// JSON Lines (by its name, or if its first line is an object), "prompt" (or "text") and "system", or "messages" and
/// what else rows of training data have (docs/data.md), of each line. W040: what is not UTF-8 or JSON is replaced.
/// Throws Error (usage: no prompt, an empty one; data: the file). `train` has --prompt_file alone.
[[nodiscard]] std::vector<Prompt> read_prompts(const Options& options, World& world, PromptForm form);

/// W080: keys of the prompts' rows that nothing reads, also those of messages, and variables, that the template `form`
/// does not read. `form`: null if prompts are continued as they are. Throws as Prompt::rendered.
void warn_of_unread_keys(const std::vector<Prompt>& prompts, const io::ChatTemplate* form, const std::string& system);

}  // namespace tessera::jobs

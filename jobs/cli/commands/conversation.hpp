// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tessera generate --chat` on a terminal: a conversation.

#include "jobs/cli/session/call.hpp"
#include "runtime/comm/world.hpp"

namespace tessera::jobs {

/// True for --chat without --prompt and --prompt_file, where standard input is a terminal and there is one rank.
[[nodiscard]] bool is_conversation(const Options& options, const World& world);

/// Reads messages from standard input, a line each, and answers them, until its end or /exit; /clear begins anew. Each
/// message is answered with all before it, in a window of conversation_positions or the model's positions, if these are
/// fewer. Throws Error (usage: --json; data: the model, its chat template).
void converse(const Call& call, World& world);

inline constexpr std::int64_t conversation_positions = 4096;

}  // namespace tessera::jobs

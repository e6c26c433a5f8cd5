// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/commands/conversation.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

#include "io/corpus/chat_turn.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/inference.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/prompt_tokenizer.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/weights.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

class ConversationRun {
 public:
  ConversationRun(const Call& call, World& world) : call_(call), options_(call.options()), world_(world) {}

  void run() {
    if (options_.flag("json"))
      throw options_.refuse("json", "--json has no conversation", "Give --prompt TEXT or --prompt_file FILE");
    prepare();
    plan::RunSpec spec = inference_spec(options_, model_, world_.size(), world_.topology(), plan::Purpose::generate, 1);
    spec.tokens = spec.cache_tokens = positions_;
    inference_ = load_inference(options_, world_, config_, model_, spec);
    announce_inference({&call_, &options_, &world_, &config_, inference_.get(), threads_,
                        strfmt("a conversation of up to %ld tokens, answers of up to %ld | ", positions_, most_) +
                            tokenizer_->describe()});
    log::info("chat      /clear begins anew, /exit or Ctrl-D ends");
    for (std::string line; read(line);) {
      if (line == "/exit") break;
      if (line == "/clear") messages_ = {};
      else if (line.find_first_not_of(" \t\r") != std::string::npos) answer(line);
    }
  }

 private:
  void prepare() {
    config_ = read_model_config(options_, &world_);
    decide_precision(options_, config_, world_);
    model_ = make_evaluated_model(options_, config_);
    require_weights(world_, config_.directory);
    tokenizer_.emplace(open_prompt_tokenizer(options_, config_.directory, model_.vocab));
    form_.emplace(io::ChatTemplate::load(config_.directory, options_.text("template")));
    system_ = system_text(options_);
    threads_ = set_rank_threads(options_, world_);
    positions_ = std::min(model_.max_tokens, conversation_positions);
    most_ = options_.optional_integer("max_new_tokens").value_or(std::min(default_new_tokens, positions_));
    if (most_ > positions_)
      throw options_.refuse(
          "max_new_tokens",
          strfmt("%ld new tokens are more than the %ld positions of a conversation", most_, positions_) + limit_note(),
          "Lower it");
    request_.sampling = sampling_of(options_);
    request_.stop = tokenizer_->stop_ids();
    if (const io::TextTokenizer* tokenizer = tokenizer_->tokenizer())
      if (const auto end = io::end_of_turn(*form_, *tokenizer);
          end && std::ranges::find(request_.stop, *end) == request_.stop.end())
        request_.stop.push_back(*end);
    request_.on_token = [this](std::size_t, std::int32_t id) { print(id); };
  }

  /// Where the model's limit is the conversation's.
  [[nodiscard]] std::string limit_note() const { return positions_ == model_.max_tokens ? model_.limit_note() : ""; }

  static bool read(std::string& line) {
    std::fputs("\n> ", stdout);
    std::fflush(stdout);
    return static_cast<bool>(std::getline(std::cin, line));
  }

  void answer(const std::string& message) {
    io::ConversationRow asked = messages_;
    asked.add("user", message);
    infer::TokenIds ids = tokenizer_->encode(io::prompt_text(*form_, asked, system_), io::Special::without);
    if (const auto image = image_token_of(ids, image_tokens(config_.directory))) {
      std::printf("Token %d stands for an image, and only the model's text is read: leave it out.\n", *image);
      return;
    }
    const std::int64_t room = positions_ - static_cast<std::int64_t>(ids.size()) + 1;
    if (room < 1) {
      std::printf("The conversation has %zu tokens, more than %ld%s: /clear begins anew.\n", ids.size(), positions_,
                  limit_note().c_str());
      return;
    }
    request_.max_new_tokens = std::min(most_, room);
    stream_.emplace(*tokenizer_, ids);
    text_.clear();
    request_.prompts = {std::move(ids)};
    const infer::GenerateReport done = inference_->generate(request_);
    put(stream_->finish());
    std::puts(
        done.completions.front().stopped
            ? ""
            : strfmt("\n(%ld tokens, the most for an answer: --max_new_tokens)", request_.max_new_tokens).c_str());
    asked.add("assistant", text_);
    messages_ = std::move(asked);
  }

  void print(std::int32_t id) { put(stream_->push(id)); }

  void put(const std::string& text) {
    text_ += text;
    std::fputs(printable_text(text).c_str(), stdout);
    std::fflush(stdout);
  }

  const Call& call_;
  Options options_;  // with the precision of decide_precision
  World& world_;
  ModelConfig config_;
  models::Model model_;
  ThreadAllocation threads_;
  std::optional<PromptTokenizer> tokenizer_;
  std::optional<io::ChatTemplate> form_;
  std::optional<PromptTokenizer::Stream> stream_;
  std::unique_ptr<infer::Inference> inference_;
  infer::GenerateRequest request_;
  std::string system_, text_;     // text_: of the answer so far
  io::ConversationRow messages_;  // those that have been answered, and the answers
  std::int64_t positions_ = 0, most_ = 0;
};

}  // namespace

bool is_conversation(const Options& options, const World& world) {
  return options.flag("chat") && !options.has("prompt") && !options.has("prompt_file") && world.size() == 1 &&
         ::isatty(STDIN_FILENO) == 1;
}

void converse(const Call& call, World& world) { ConversationRun(call, world).run(); }

}  // namespace tessera::jobs

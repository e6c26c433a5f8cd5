// SPDX-License-Identifier: Apache-2.0
// `tessera generate`: continues prompts; prints the text as it is generated, or one JSON line for each prompt.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "io/corpus/chat_turn.hpp"
#include "jobs/cli/commands/conversation.hpp"
#include "jobs/cli/session/data_source.hpp"
#include "jobs/cli/session/default_precision.hpp"
#include "jobs/cli/session/inference.hpp"
#include "jobs/cli/session/log_lines.hpp"
#include "jobs/cli/session/prompt_tokenizer.hpp"
#include "jobs/cli/session/prompts.hpp"
#include "jobs/cli/session/resources.hpp"
#include "jobs/cli/session/reward_model.hpp"
#include "jobs/cli/session/setup_errors.hpp"
#include "jobs/cli/session/strategy.hpp"
#include "jobs/cli/session/weights.hpp"
#include "models/tensor_split.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

namespace {

class GenerateRun {
 public:
  GenerateRun(const Call& call, World& world) : call_(call), options_(call.options()), world_(world) {}

  void run() {
    try {
      prepare();
    } catch (const Error& error) {
      throw_with_others(options_, world_, error,
                        {[this] { check_model(); }, [this] { check_system(); },
                         [this] {
                           if (!prompts_read_) take_prompts();
                         }});
    }
    plan::RunSpec spec = inference_spec(options_, model_, world_.size(), world_.topology(), plan::Purpose::generate,
                                        static_cast<std::int64_t>(prompts_.size()));
    const infer::GenerationShape shape = infer::generation_shape(request_, spec.batch.micro_batch);
    spec.tokens = shape.tokens;
    spec.cache_tokens = shape.cache_tokens;
    const auto run = load_inference(options_, world_, config_, model_, spec);
    if (!json()) announce_inference({&call_, &options_, &world_, &config_, run.get(), threads_, work(spec)});
    report(run->generate(request_));
  }

 private:
  void prepare() {
    config_ = read_model_config(options_, &world_);
    decide_precision(options_, config_, world_);
    model_ = make_evaluated_model(options_, config_);
    refuse_reward_model(model_, "tessera generate", config_.path);
    models::split_tensors(model_, tensor_ranks_of(options_));
    if (model_.tensor_ranks > 1 && !options_.given("sharding_strategy"))
      options_.decide("sharding_strategy", "zero2", "with parts of matrices nothing is gathered for each token");
    require_weights(world_, config_.directory);
    world_.run_and_agree([&] { images_ = image_tokens(config_.directory); });
    world_.run_and_agree(
        [&] { prompt_tokenizer_.emplace(open_prompt_tokenizer(options_, config_.directory, model_.vocab)); });
    threads_ = set_rank_threads(options_, world_);
    take_prompts();
    check_system();
    texts_ = options_.flag("chat") ? chat_texts() : prompts_;
    if (!options_.flag("chat")) warn_of_unread_keys(given_prompts_, nullptr, "");
    make_request();
  }

  /// What is wrong with the model alone, once prepare() has failed.
  void check_model() {
    if (config_.text.empty()) config_ = read_model_config(options_, &world_);
    require_weights(world_, config_.directory);
  }

  void take_prompts() {
    prompts_read_ = true;  // standard input is read once
    given_prompts_ = read_prompts(options_, world_, options_.flag("chat") ? PromptForm::chat : PromptForm::text);
    for (const Prompt& prompt : given_prompts_) prompts_.push_back(prompt.text);
  }

  /// In a file --system is of the run that the file configures.
  void check_system() const {
    if (options_.given("system") && options_.value("system").source.precedence == precedence::command_line &&
        !options_.flag("chat"))
      throw options_.refuse("system", "--system is for --chat: a prompt alone is continued as it is", "Add --chat");
  }

  [[nodiscard]] bool json() const { return options_.flag("json"); }

  /// Each prompt as a user's message, with the header of the answer, by the model's chat template.
  std::vector<std::string> chat_texts() {
    std::vector<std::string> texts;
    world_.run_and_agree([&] {
      const io::ChatTemplate form = io::ChatTemplate::load(config_.directory, options_.text("template"));
      const std::string system = system_text(options_);
      std::int64_t unread = 0;
      for (const Prompt& prompt : given_prompts_) {
        texts.push_back(prompt.rendered(form, system).text);
        if (!prompt.conversation || prompt.conversation->tools.is_null()) continue;
        Prompt without = prompt;
        without.conversation->tools = nullptr;
        unread += without.rendered(form, system).text == texts.back() ? 1 : 0;
      }
      warn_of_unread_keys(given_prompts_, &form, system);
      io::CorpusReport left_out;
      left_out.without_tools = unread;
      warn_of_left_out(left_out);
      if (const io::TextTokenizer* tokenizer = prompt_tokenizer_->tokenizer())
        end_of_turn_ = io::end_of_turn(form, *tokenizer);
    });
    return texts;
  }

  /// Leaves out prompts that have no room for new tokens, unless that would be all of them.
  void leave_out_long_prompts() {
    const auto fits = [this](std::size_t i) {
      const std::int64_t more = options_.optional_integer("max_new_tokens").value_or(1) - 1;
      return static_cast<std::int64_t>(request_.prompts[i].size()) + more <= model_.max_tokens;
    };
    std::vector<std::string> kept;
    std::vector<infer::TokenIds> ids;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      if (!fits(i)) continue;
      kept.push_back(prompts_[i]);
      ids.push_back(request_.prompts[i]);
      numbers_.push_back(i);
    }
    if (kept.empty()) {
      numbers_.resize(prompts_.size());
      std::iota(numbers_.begin(), numbers_.end(), std::size_t{0});
      return;
    }
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      if (fits(i)) continue;
      log::warn(50, strfmt("prompt %zu is left out: it has %zu tokens, and the model %ld positions", i + 1,
                           request_.prompts[i].size(), model_.max_tokens) +
                        model_.limit_note());
    }
    prompts_ = std::move(kept);
    request_.prompts = std::move(ids);
  }

  void make_request() {
    std::size_t longest = 0;
    const io::Special special = options_.flag("chat") ? io::Special::without : io::Special::with;
    for (const std::string& text : texts_) request_.prompts.push_back(prompt_tokenizer_->encode(text, special));
    given_ = prompts_.size();
    leave_out_long_prompts();
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      check_prompt(i);
      longest = std::max(longest, request_.prompts[i].size());
    }
    const std::int64_t max_new = model_.max_tokens - static_cast<std::int64_t>(longest) + 1;
    request_.max_new_tokens =
        options_.optional_integer("max_new_tokens").value_or(std::min(default_new_tokens, max_new));
    if (request_.max_new_tokens > max_new) {
      throw options_.refuse("max_new_tokens",
                            strfmt("%ld new tokens after a prompt of %zu are more than the model's %ld positions",
                                   request_.max_new_tokens, longest, model_.max_tokens) +
                                model_.limit_note(),
                            strfmt("Set it to at most %ld, or shorten the prompt", max_new));
    }
    request_.stop = prompt_tokenizer_->stop_ids();
    if (end_of_turn_ && std::ranges::find(request_.stop, *end_of_turn_) == request_.stop.end())
      request_.stop.push_back(*end_of_turn_);
    request_.sampling = sampling_of(options_);
    if (given_ == 1 && !json()) request_.on_token = [this](std::size_t, std::int32_t id) { stream(id); };
    request_.on_completion = [this](std::size_t prompt, const infer::Completion& completion) {
      print_completion(prompt, completion);
    };
  }

  void check_prompt(std::size_t i) const {
    const infer::TokenIds& ids = request_.prompts[i];
    const std::string which = strfmt("prompt %zu", numbers_[i] + 1);
    if (ids.empty())
      throw Error(ExitCode::usage, which + " has no token", "--prompt, --prompt_file", "Give it a text to continue");
    const auto largest = *std::max_element(ids.begin(), ids.end());
    if (largest >= model_.vocab)
      throw Error(ExitCode::data,
                  strfmt("%s has token id %d, but the last id of the model's vocabulary is %ld", which.c_str(), largest,
                         model_.vocab - 1),
                  "--prompt, --prompt_file", "Use the model's own tokenizer.json");
    if (const auto image = image_token_of(ids, images_))
      throw Error(ExitCode::data, strfmt("%s has token %d, which stands for an image", which.c_str(), *image),
                  "--prompt, --prompt_file", "Only the model's text is read: leave images out");
    if (static_cast<std::int64_t>(ids.size()) > model_.max_tokens)
      throw Error(
          ExitCode::usage,
          strfmt("%s has %zu tokens, the model has %ld positions", which.c_str(), ids.size(), model_.max_tokens) +
              model_.limit_note(),
          "--prompt, --prompt_file", "Give a shorter prompt");
  }

  [[nodiscard]] std::string work(const plan::RunSpec& spec) const {
    const infer::Sampling& s = request_.sampling;
    std::string how = s.temperature == 0 ? "greedy"
                                         : strfmt("temperature %g, top_k %ld, top_p %g, seed %lu", s.temperature,
                                                  s.top_k, s.top_p, s.seed);
    if (s.repetition_penalty != 1) how += strfmt(", repetition penalty %g", s.repetition_penalty);
    const std::size_t count = prompts_.size();
    return strfmt("%zu prompt%s in micro-batches of %ld, the longest of %ld tokens | up to %ld new tokens, %s | %s",
                  count, count == 1 ? "" : "s", spec.batch.micro_batch, spec.tokens, request_.max_new_tokens,
                  how.c_str(), prompt_tokenizer_->describe().c_str());
  }

  /// Prints the next token of a single prompt; called on rank 0, which generates it.
  void stream(std::int32_t id) {
    if (!stream_) {
      std::fputs(("\n" + before_answer(0)).c_str(), stdout);
      stream_.emplace(*prompt_tokenizer_, request_.prompts[0]);
    }
    std::fputs(printable_text(stream_->push(id)).c_str(), stdout);
    std::fflush(stdout);
  }

  /// What is printed before the new text: the prompt, which it continues or, with --chat, answers.
  [[nodiscard]] std::string before_answer(std::size_t prompt) const {
    return printable_text(prompts_[prompt]) + (options_.flag("chat") ? "\n\n" : "");
  }

  [[nodiscard]] std::string text_of(std::size_t prompt, const infer::Completion& completion) const {
    PromptTokenizer::Stream decoder(*prompt_tokenizer_, request_.prompts[prompt]);
    std::string text;
    for (const std::int32_t id : completion.ids) text += decoder.push(id);
    return text + decoder.finish();
  }

  void print_completion(std::size_t prompt, const infer::Completion& completion) const {
    if (json()) {
      const nlohmann::ordered_json line = {{"index", numbers_[prompt]},
                                           {"prompt", prompts_[prompt]},
                                           {"text", text_of(prompt, completion)},
                                           {"token_ids", completion.ids},
                                           {"prompt_token_ids", request_.prompts[prompt]},
                                           {"finish_reason", completion.stopped ? "stop" : "length"},
                                           {"compute_dtype", name_of(model_.dtype)}};
      std::puts(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    } else if (given_ == 1) {
      std::puts("");  // the text has been streamed
    } else {
      std::printf("\n--- prompt %zu of %zu\n%s\n", numbers_[prompt] + 1, given_,
                  (before_answer(prompt) + printable_text(text_of(prompt, completion))).c_str());
    }
    std::fflush(stdout);
  }

  void report(const infer::GenerateReport& done) {
    std::int64_t made = 0;
    for (const infer::Completion& completion : done.completions)
      made += static_cast<std::int64_t>(completion.ids.size());
    const auto rate = [](const infer::PassTimes& times, std::int64_t tokens) {
      return human_count(static_cast<double>(tokens) / std::max(times.seconds, 1e-12));
    };
    const std::int64_t shown = world_.sum(done.prefill.tokens), grown = world_.sum(done.decode.tokens);
    if (json()) return;
    log::info(strfmt("\ndone %zu prompt%s | %ld new tokens | prompts %s tok/s | then %s tok/s", prompts_.size(),
                     prompts_.size() == 1 ? "" : "s", made, rate(done.prefill, shown).c_str(),
                     rate(done.decode, grown).c_str()));
  }

  const Call& call_;
  Options options_;  // with the precision that prepare() decides
  World& world_;
  ModelConfig config_;
  std::vector<std::int32_t> images_;  // tokens that stand for images
  models::Model model_;
  ThreadAllocation threads_;
  std::optional<PromptTokenizer> prompt_tokenizer_;
  std::optional<PromptTokenizer::Stream> stream_;
  std::vector<std::string> prompts_, texts_;  // as given, and as the model continues them
  std::vector<Prompt> given_prompts_;         // with what their rows have
  std::vector<std::size_t> numbers_;          // of prompts_ among those given
  std::size_t given_ = 0;
  bool prompts_read_ = false;
  std::optional<std::int32_t> end_of_turn_;  // --chat: another stop token
  infer::GenerateRequest request_;
};

}  // namespace

void generate_command(const Call& call, World& world) {
  if (is_conversation(call.options(), world)) return converse(call, world);
  GenerateRun(call, world).run();
}

}  // namespace tessera::jobs

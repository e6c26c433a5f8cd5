#include "jobs/cli/session/data_source.hpp"

#include "io/tokenizer/byte_hash.hpp"
#include "jobs/cli/session/setup.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/log.hpp"

namespace tessera::jobs {

std::vector<io::DataFile> files_of(const Options& options, const char* option) {
  return io::data_files(options.list(option));
}

io::Columns columns_of(const Options& options) { return io::parse_columns(options.text("columns"), "--columns"); }

io::RowSettings row_settings(const Options& options) {
  return {.strict = options.flag("strict"), .chat = nullptr, .seed = data_seed(options)};
}

std::uint64_t settings_hash(const Options& options, const io::ChatFormat* chat) {
  std::uint64_t hash = chat != nullptr ? chat->hash() : 0;
  for (const auto& [from, to] : columns_of(options)) hash = hash64(to, hash64(from, io::mix(hash, 1)));
  const std::vector<std::string>* const lists[] = {&options.list("dataset"), &options.list("val_dataset")};
  bool selects = false;
  for (const auto* names : lists)
    for (const io::DataFile& file : io::data_files(*names)) selects = selects || file.selects();
  return selects ? io::mix(hash, data_seed(options)) : hash;
}

std::string packing_word(const Options& options) {
  return options.flag("packing") ? options.text("packing_strategy") : "padded";
}

std::string truncation_word(const Options& options, bool conversations) {
  if (options.given("truncation_strategy")) return options.text("truncation_strategy");
  return conversations ? "delete" : "split";
}

void refuse_chat_options(const Options& options) {
  for (const char* name : {"template", "system", "loss_scale"})
    if (options.given(name))
      throw options.refuse(name, std::string("--") + name + " is for conversations, and the data has none",
                           "Leave it out, or give rows of conversations (docs/data.md)");
}

void report_skipped(const io::SkippedRows& skipped) {
  if (skipped.count == 0) return;
  for (const std::string& named : skipped.named) log::info("skipped   " + named);
  const auto rest = skipped.count - static_cast<std::int64_t>(skipped.named.size());
  log::warn(41, strfmt("%ld rows cannot be used and are skipped", skipped.count) +
                    (rest > 0 ? strfmt(" (%ld are not named)", rest) : "") + ": --strict true stops at the first");
}

}  // namespace tessera::jobs

// SPDX-License-Identifier: Apache-2.0
// Parses an index, and checks the files of a model against it.
#include "io/model/safetensors_index.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/file/text_file.hpp"
#include "io/model/foreign_checkpoint.hpp"
#include "io/model/model_files.hpp"
#include "runtime/base/log.hpp"

namespace tessera::io {

namespace fs = std::filesystem;

namespace {

Error refusal(const std::string& source, const char* code, const std::string& rule) {
  return Error(ExitCode::data, std::string(code) + " " + source + " is not a valid index: " + rule, {},
               "Fetch or write the model again");
}

/// A DOM would silently keep the last of two equal keys.
class IndexEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  IndexEvents(SafetensorsIndex& index, const std::string& source) : index_(index), source_(source) {}

  bool start_object(std::size_t) override {
    if (depth_ == 1 && at_map()) {
      if (std::exchange(seen_map_, true)) throw refuse("E104", "\"weight_map\" occurs twice");
    } else if (depth_ == 2 && at_map()) {
      throw refuse("E103", "tensor " + quote_name(key_) + " is an object, not a file's name");
    }
    return ++depth_ > 0;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override {
    if (depth_ == 0) throw refuse("E103", "it is not a JSON object");
    scalar("a list");
    return ++depth_ > 0;
  }
  bool end_array() override { return --depth_ >= 0; }
  bool key(std::string& name) override {
    if (depth_ == 1) top_ = name;
    if (depth_ <= 2) key_ = std::move(name);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2 || !at_map()) return scalar("a string");
    if (value.empty() || value == "." || value == ".." || value.size() > 255 ||
        value.find_first_of(std::string_view("/\\\0", 3)) != value.npos)
      throw refuse("E110", quote_name(value) + " leaves the model's directory");
    index_.entries.push_back({key_, std::move(value)});
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ == 2 && top_ == "metadata" && key_ == "total_size") {
      if (index_.total_size) throw refuse("E104", "\"total_size\" occurs twice");
      index_.total_size = value;
    }
    return scalar("a number");
  }
  bool number_float(number_float_t value, const string_t&) override {  // older writers: 2471645608.0
    if (value >= 0 && value < 0x1p63 && value == static_cast<double>(static_cast<std::uint64_t>(value)))
      return number_unsigned(static_cast<std::uint64_t>(value));
    return scalar("a number");
  }
  bool number_integer(number_integer_t) override { return scalar("a number"); }
  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("true or false"); }
  bool binary(binary_t&) override { return scalar("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw refuse("E103", strfmt("it is not JSON at byte %zu", position));
  }
  void finish() const {
    if (!seen_map_) throw refuse("E103", "it has no \"weight_map\"");
  }

 private:
  [[nodiscard]] Error refuse(const char* code, const std::string& rule) const { return refusal(source_, code, rule); }
  [[nodiscard]] bool at_map() const { return top_ == "weight_map"; }
  /// Skips a value, but not in place of a file name.
  bool scalar(const char* what) const {
    if (depth_ == 0) throw refuse("E103", "it is not a JSON object");
    if (depth_ == 1 && at_map()) throw refuse("E103", std::string("\"weight_map\" is ") + what);
    if (depth_ == 2 && at_map())
      throw refuse("E103", "tensor " + quote_name(key_) + " is " + what + ", not a file's name");
    return true;
  }

  SafetensorsIndex& index_;
  const std::string& source_;
  std::string top_, key_;
  int depth_ = 0;
  bool seen_map_ = false;
};

const std::string* file_of(const SafetensorsIndex& index, const std::string& tensor) {
  const auto at = std::ranges::lower_bound(index.entries, tensor, {}, &SafetensorsIndex::Entry::tensor);
  return at != index.entries.end() && at->tensor == tensor ? &at->file : nullptr;
}

/// Throws Error (data) if the file has not a tensor that the index maps to it.
void check_mapped(const SafetensorsFile& file, const std::string& name, const SafetensorsIndex& index,
                  const std::string& source) {
  for (const auto& entry : index.entries)
    if (entry.file == name && file.find(entry.tensor) == nullptr)
      throw refusal(source, "E111", quote_name(entry.tensor) + " is mapped to " + name + ", which has no such tensor");
}

/// What the files hold and the index does not say: a tensor without entry is one of the model; where the index names
/// another file, that one's is taken.
class UnmappedTensors {
 public:
  UnmappedTensors(const SafetensorsIndex& index, const std::string& source) : index_(index), source_(source) {}

  void look_at(SafetensorsFile& file, const std::string& name) {
    std::vector<std::string> elsewhere;
    for (const SafetensorsEntry& tensor : file.entries()) {
      const std::string* const mapped = file_of(index_, tensor.name);
      if (mapped == nullptr) {
        if (!first_file_.emplace(tensor.name, name).second)
          throw refusal(source_, "E111",
                        quote_name(tensor.name) + " is mapped to no file, and is in " + first_file_[tensor.name] +
                            " and in " + name);
        note(name + " holds " + quote_name(tensor.name) + ", which has no entry (it is read)");
      } else if (*mapped != name) {
        elsewhere.push_back(tensor.name);
        note(name + " holds " + quote_name(tensor.name) + ", which the index maps to " + *mapped + " (that is read)");
      }
    }
    for (const std::string& tensor : elsewhere) file.leave_out(tensor);
  }
  void warn() const {
    if (count_ == 0) return;
    log::warn(91, source_ + " does not name every tensor of its files: " + first_ +
                      (count_ > 1 ? strfmt(", and %zu more", count_ - 1) : std::string()));
  }

 private:
  void note(const std::string& text) {
    if (++count_ == 1) first_ = text;
  }
  const SafetensorsIndex& index_;
  const std::string& source_;
  std::map<std::string, std::string> first_file_;  // of tensors without entry
  std::string first_;
  std::size_t count_ = 0;
};

std::vector<SafetensorsFile> open_index(const std::string& path) {
  const SafetensorsIndex index = parse_safetensors_index(read_text(path, max_index_bytes), path);
  if (index.entries.empty()) throw refusal(path, "E111", "\"weight_map\" is empty: it names no file");
  const std::string directory = directory_of(path);
  std::vector<SafetensorsFile> files;
  UnmappedTensors unmapped(index, path);
  std::uint64_t bytes = 0;
  for (const std::string& name : shards_of(index, directory)) {
    files.emplace_back(shard_path(directory, name));
    check_mapped(files.back(), name, index, path);
    unmapped.look_at(files.back(), name);
    for (const auto& entry : files.back().entries()) bytes += entry.end - entry.begin;
  }
  unmapped.warn();
  if (index.total_size && *index.total_size != bytes)
    log::warn(92, strfmt("%s: its total_size is %lu, its tensors have %lu bytes: the number is not used", path.c_str(),
                         *index.total_size, bytes));
  return files;
}

}  // namespace

std::vector<std::string> shards_of(const SafetensorsIndex& index, const std::string& directory) {
  std::vector<std::string> names = index.files();
  const auto last_part = [](const std::string& name) {  // "-of-00003.safetensors"; "": not of a set
    const std::size_t at = name.rfind("-of-");
    return at == name.npos || !name.ends_with(".safetensors") ? "" : name.substr(at);
  };
  std::set<std::string> sets;
  for (const std::string& name : names)
    if (const std::size_t dash = name.find('-'); !last_part(name).empty())
      sets.insert(name.substr(0, dash) + last_part(name));
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!last_part(name).empty() && sets.contains(name.substr(0, name.find('-')) + last_part(name)) &&
        std::ranges::find(names, name) == names.end())
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> SafetensorsIndex::files() const {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.file);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& source) {
  if (text.find('\0') != text.npos)
    throw refusal(source, "E103", "it holds a zero byte");  // the parser would stop there
  SafetensorsIndex index;
  IndexEvents events(index, source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  events.finish();
  std::sort(index.entries.begin(), index.entries.end(),
            [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  const auto twice = std::adjacent_find(index.entries.begin(), index.entries.end(),
                                        [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice != index.entries.end())
    throw refusal(source, "E104", "tensor " + quote_name(twice->tensor) + " is mapped twice");
  return index;
}

std::string shard_path(const std::string& directory, const std::string& file) {
  const fs::path path = fs::path(directory) / file;
  std::error_code failed;
  if (!fs::exists(path, failed))
    throw refusal(directory + "/" + index_file_name, "E111", "its shard " + quote_name(file) + " is not there");
  if (!fs::is_symlink(path, failed)) return path.string();
  const fs::path home = fs::canonical(directory, failed), target = fs::canonical(path, failed);
  const fs::path blobs =
      (home / "../../blobs").lexically_normal();  // snapshots/<commit>/ of a Hugging Face cache link there
  if (target.parent_path() != home && target.parent_path() != blobs)
    log::warn(93, path.string() + " is a link out of the model's directory, to " + target.string() + ": it is read");
  return path.string();
}

std::vector<SafetensorsFile> open_safetensors_model(const std::string& path) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    if (path.ends_with(".index.json")) return open_index(path);
    std::vector<SafetensorsFile> one;
    one.emplace_back(path);
    return one;
  }
  if (exists(path + "/" + model_file_name)) return open_safetensors_model(path + "/" + model_file_name);
  if (exists(path + "/" + index_file_name)) return open_index(path + "/" + index_file_name);
  if (const auto foreign = find_foreign_checkpoint(path)) throw foreign->error(path);
  throw Error(ExitCode::data, "neither " + std::string(model_file_name) + " nor " + index_file_name + " in " + path, {},
              "Name a directory with a model in safetensors");
}

}  // namespace tessera::io

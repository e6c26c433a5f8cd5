// SPDX-License-Identifier: Apache-2.0
// Typed access to tokenizer.json.

#include "io/tokenizer/component.hpp"

#include <algorithm>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {
const nlohmann::ordered_json nothing;
}

Error Component::refuse(const std::string& what) const {
  return Error(ExitCode::data, (name_.empty() ? "the tokenizer " : "the tokenizer's " + name_ + " ") + what, where_,
               "What is read is in docs/formats.md, tokenizer.json; or tokenize elsewhere and give .bin files");
}

std::string Component::type() const { return node_.is_object() ? text("type", "") : ""; }

void Component::only(std::initializer_list<const char*> keys) const {
  if (!node_.is_object()) throw refuse("is no table");
  for (const auto& item : node_.items()) {
    const auto known = [&item](const char* key) { return item.key() == key; };
    if (item.key() != "type" && std::none_of(keys.begin(), keys.end(), known))
      throw refuse("has the key " + quote_name(item.key()) + ", which is not known");
  }
}

Component Component::child(const char* key) const {
  const auto found = node_.is_object() ? node_.find(key) : node_.end();
  return {found != node_.end() ? *found : nothing, name_.empty() ? key : name_ + "." + key, where_};
}

bool Component::flag(const char* key, bool fallback) const {
  const Component found = child(key);
  if (found.absent()) return fallback;
  if (!found.node_.is_boolean()) throw found.refuse("is neither true nor false");
  return found.node_.get<bool>();
}

std::string Component::text(const char* key, const std::string& fallback) const {
  const Component found = child(key);
  if (found.absent()) return fallback;
  if (!found.node_.is_string()) throw found.refuse("is no text");
  return found.node_.get<std::string>();
}

std::int64_t Component::integer(const char* key, std::int64_t fallback) const {
  const Component found = child(key);
  if (found.absent()) return fallback;
  const bool fits = found.node_.is_number_integer() &&
                    (!found.node_.is_number_unsigned() || found.node_.get<std::uint64_t>() <= 0x7FFFFFFFu);
  if (!fits) throw found.refuse("is not a 31-bit integer");
  return found.node_.get<std::int64_t>();
}

std::vector<Component> Component::elements() const {
  if (!node_.is_array()) throw refuse("is no list");
  std::vector<Component> all;
  for (std::size_t i = 0; i < node_.size(); ++i)
    all.emplace_back(node_[i], name_ + "[" + std::to_string(i) + "]", where_);
  return all;
}

std::vector<std::string> Component::keys() const {
  std::vector<std::string> all;
  if (!node_.is_object()) throw refuse("is no table");
  for (const auto& item : node_.items()) all.push_back(item.key());
  return all;
}

}  // namespace tessera::io

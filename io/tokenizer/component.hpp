// SPDX-License-Identifier: Apache-2.0
#pragma once
// A node of tokenizer.json while it is parsed: typed access, and errors that name the node.

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/error.hpp"

namespace tessera::io {

class Component {
 public:
  Component(const nlohmann::ordered_json& node, std::string name, const std::string& where)
      : node_(node), name_(std::move(name)), where_(where) {}

  [[nodiscard]] bool absent() const { return node_.is_null(); }
  /// The text under "type"; "" if there is none.
  [[nodiscard]] std::string type() const;
  /// Throws if the node is not an object, or has a key that is not in the list ("type" is allowed).
  void only(std::initializer_list<const char*> keys) const;
  // Values under a key; the fallback if it is absent or null. Throw if it has another type.
  [[nodiscard]] bool flag(const char* key, bool fallback) const;
  [[nodiscard]] std::string text(const char* key, const std::string& fallback) const;
  [[nodiscard]] std::int64_t integer(const char* key, std::int64_t fallback) const;
  /// The node under a key, null if it is absent.
  [[nodiscard]] Component child(const char* key) const;
  /// The elements of a list. Throws if the node is not a list.
  [[nodiscard]] std::vector<Component> elements() const;
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] const nlohmann::ordered_json& json() const { return node_; }
  [[nodiscard]] const std::string& where() const { return where_; }

  /// An error "the tokenizer's NAME WHAT", for unsupported features.
  [[nodiscard]] Error refuse(const std::string& what) const;

 private:
  const nlohmann::ordered_json& node_;
  std::string name_;
  const std::string& where_;
};

}  // namespace tessera::io

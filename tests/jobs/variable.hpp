// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

namespace tessera::jobs {

/// A variable of the environment that has this value, or is not set, while this object lives.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* set = std::getenv(name)) before_ = set;
    change(value);
  }
  ~Variable() { change(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void change(const std::optional<std::string>& value) const {
    if (value) setenv(name_, value->c_str(), 1);
    else unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace tessera::jobs

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reading the golden runs beside this file (golden/README.md has the fields).

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::test {

struct Golden {
  std::string config;                                 // config.json's text
  std::map<std::string, std::vector<float>> weights;  // by the name in the file
  std::vector<std::int32_t> tokens;
  nlohmann::json expected;  // golden.json
};

Golden read_golden(const std::string& name);

/// The tensors of a safetensors file, and the text of any file.
std::map<std::string, std::vector<float>> read_tensors(const std::string& path);
std::string read_file(const std::string& path);

}  // namespace tessera::test

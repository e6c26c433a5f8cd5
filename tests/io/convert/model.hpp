// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model in safetensors for the tests of conversions: tensors smaller and larger than a block.

#include <string>
#include <vector>

#include "io/convert/convert.hpp"
#include "tests/io/files.hpp"

namespace tessera::test {

struct NamedShape {
  std::string name;
  Shape shape;
};
/// Small ones, and one of more than two blocks in fp32; by name.
[[nodiscard]] std::vector<NamedShape> default_tensors();

/// DIRECTORY with config.json, a tokenizer.json, and these tensors as `dtype` in files of at most `max_bytes`; made by
/// nothing that is under test but the plan.
void write_model(const std::string& directory, const std::vector<NamedShape>& tensors, DType dtype,
                 std::uint64_t max_bytes = ~std::uint64_t{0} >> 1);

/// Each stored tensor under its own name, or what follows `prefix`, as `dtype`.
[[nodiscard]] std::vector<io::ConvertTensor> identity_tensors(const io::TensorCatalog& stored, DType dtype,
                                                              const std::string& prefix = "");

/// Every file of a directory, by name: size and checksum.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> contents(const std::string& directory);

}  // namespace tessera::test

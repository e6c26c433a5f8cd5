// SPDX-License-Identifier: Apache-2.0
// Files of model.hpp.
#include "tests/io/convert/model.hpp"

#include <algorithm>
#include <filesystem>

#include "io/file/crc32c.hpp"
#include "io/file/text_file.hpp"
#include "io/model/model_files.hpp"
#include "kernels/convert.hpp"

namespace tessera::test {

std::vector<NamedShape> default_tensors() {
  return {{"h.0.bias", {1}},      {"h.0.ln.weight", {11}},    {"h.0.tiny", {3, 5}},
          {"h.0.w", {640, 1000}}, {"h.1.bias", {1}},          {"h.1.w", {1000, 640}},
          {"h.10.w", {77}},       {"head.weight", {5, 5, 5}}, {"wte.weight", {2503, 1027}}};
}

namespace {
/// Values that bf16 and fp16 cannot hold exactly, of both signs.
float value(std::size_t tensor, std::int64_t element) {
  return (static_cast<float>(element * 2654435761 % 20011) / 10007.0F - 1.0F) * static_cast<float>(tensor + 1);
}
}  // namespace

void write_model(const std::string& directory, const std::vector<NamedShape>& tensors, DType dtype,
                 std::uint64_t max_bytes) {
  std::filesystem::create_directories(directory);
  std::vector<io::SafetensorsTensor> planned;
  for (const auto& t : tensors) planned.push_back({t.name, dtype, t.shape});
  const io::ModelFiles files = io::plan_model_files(planned, max_bytes);
  for (const auto& file : files.files) {
    std::string bytes = file.plan.header;
    bytes.resize(static_cast<std::size_t>(file.plan.file_bytes));
    for (const auto& e : file.plan.entries) {
      std::size_t index = 0;
      while (tensors[index].name != e.name) ++index;
      std::vector<float> values(static_cast<std::size_t>(e.numel()));
      for (std::int64_t i = 0; i < e.numel(); ++i) values[static_cast<std::size_t>(i)] = value(index, i);
      EXPECT_EQ(kernels::convert_bytes({reinterpret_cast<const std::byte*>(values.data()), DType::f32,
                                        reinterpret_cast<std::byte*>(bytes.data() + e.begin), dtype, e.numel()}),
                e.numel());
    }
    io::write_text(directory + "/" + file.name, bytes);
  }
  if (!files.index.empty()) io::write_text(directory + "/" + io::index_file_name, files.index);
  io::write_text(directory + "/config.json", "{\n  \"model_type\": \"gpt2\"\n}\n");
  io::write_text(directory + "/tokenizer.json", "{}\n");
}

std::vector<io::ConvertTensor> identity_tensors(const io::TensorCatalog& stored, DType dtype,
                                                const std::string& prefix) {
  std::vector<io::ConvertTensor> tensors;
  for (std::size_t i = 0; i < stored.tensors.size(); ++i) {
    const auto& t = stored.tensors[i];
    Shape shape;
    for (const std::int64_t dimension : t.shape) shape.push_back(dimension);
    tensors.push_back({t.name.substr(prefix.size()), dtype, shape, {{static_cast<int>(i), 0, t.numel()}}});
  }
  // As write_model's: whatever order the files have them in.
  std::ranges::sort(tensors, {}, &io::ConvertTensor::name);
  return tensors;
}

std::vector<std::pair<std::string, std::string>> contents(const std::string& directory) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_directory()) continue;
    const std::string bytes = bytes_of(entry.path().string());
    files.emplace_back(entry.path().filename().string(),
                       strfmt("%zu bytes, crc %08x", bytes.size(), io::crc32c(0, std::as_bytes(std::span(bytes)))));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace tessera::test

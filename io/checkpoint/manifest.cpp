// SPDX-License-Identifier: Apache-2.0
// The manifest as JSON. Its last line holds the CRC32C of everything before it.
#include "io/checkpoint/manifest.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "io/file/crc32c.hpp"
#include "io/file/file.hpp"
#include "io/model/safetensors.hpp"

namespace tessera::io {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* format_name = "tessera-checkpoint";
constexpr std::int64_t format_version = 1;
constexpr int max_depth = 64;  // nlohmann-json writes nested values by recursion
// Features of a checkpoint that older programs must refuse. One without frozen parameters has none.
constexpr const char* frozen_feature = "frozen_parameters";
constexpr const char* base_feature = "base_model";
constexpr std::size_t closing_bytes = sizeof("\"crc32c\": \"01234567\"\n}\n") - 1;

std::string closing(std::uint32_t crc) { return strfmt("\"crc32c\": \"%08x\"\n}\n", crc); }

std::uint32_t crc_of(std::string_view text) { return crc32c(0, std::as_bytes(std::span(text.data(), text.size()))); }

Json to_json(const StateFile& file) {
  Json tensors = Json::array();
  for (std::size_t i = 0; i < file.datasets.size(); ++i) {
    const Hdf5Dataset& d = file.datasets[i];
    tensors.push_back({{"path", d.path},
                       {"dtype", safetensors_type(d.dtype).name},
                       {"shape", d.shape},
                       {"offset", d.offset},
                       {"bytes", d.bytes},
                       {"crc32c", strfmt("%08x", file.dataset_crcs[i])}});
  }
  std::string crcs;
  for (const std::uint32_t crc : file.crcs) crcs += strfmt("%08x", crc);
  return {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", crcs}, {"datasets", tensors}};
}

/// Reads JSON members, with errors that name them.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}
  [[noreturn]] void refuse(const char* code, const std::string& what) const {
    throw Error(ExitCode::data, std::string(code) + " " + source_ + ": " + what);
  }
  const Json& at(const Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) refuse("E130", std::string("\"") + key + "\" is missing");
    return object.at(key);
  }
  std::string text(const Json& object, const char* key) const {
    const Json& value = at(object, key);
    if (!value.is_string()) refuse("E130", std::string("\"") + key + "\" is no text");
    return value.get<std::string>();
  }
  std::uint64_t number(const Json& value, const char* key) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT64_MAX)
      refuse("E130", std::string("\"") + key + "\" is no whole number");
    return value.get<std::uint64_t>();
  }
  std::uint64_t member(const Json& object, const char* key) const { return number(at(object, key), key); }
  const Json& list(const Json& object, const char* key) const {
    const Json& value = at(object, key);
    if (!value.is_array()) refuse("E130", std::string("\"") + key + "\" is no list");
    return value;
  }
  std::string object_text(const Json& object, const char* key) const {
    const Json& value = at(object, key);
    if (!value.is_object()) refuse("E130", std::string("\"") + key + "\" is no object");
    return value.dump();
  }
  /// Hexadecimal digits, at most eight.
  std::uint32_t hex(std::string_view digits) const {
    std::uint32_t value = 0;
    for (const char c : digits) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) refuse("E130", "a checksum is not written in hexadecimal");
      value = value << 4 | static_cast<std::uint32_t>(digit);
    }
    return value;
  }
  std::uint32_t checksum(const Json& object) const {
    const std::string digits = text(object, "crc32c");
    if (digits.size() != 8) refuse("E130", "a checksum is not written in eight digits");
    return hex(digits);
  }
  /// A plain name inside the directory.
  std::string file_name(const Json& object) const {
    std::string name = text(object, "name");
    if (name.empty() || name == "." || name == ".." || name == manifest_name || name.size() > 255 ||
        name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      refuse("E110", quote_name(name) + " leaves the checkpoint's directory");
    return name;
  }
  /// The same in directories inside it: "additional_chat_templates/rag.jinja".
  std::string auxiliary_name(const Json& object) const {
    const std::string name = text(object, "name");
    std::size_t begin = 0;
    for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', begin = slash + 1)) {
      const std::string part = name.substr(begin, slash - begin);
      if (part.empty() || part == "." || part == ".." || part.size() > 255 || part.find('\0') != part.npos)
        refuse("E110", quote_name(name) + " leaves the checkpoint's directory");
    }
    return name.substr(0, begin) + file_name({{"name", name.substr(begin)}});
  }

 private:
  const std::string& source_;
};

Hdf5Dataset parse_dataset(const Reader& read, const Json& json) {
  Hdf5Dataset d;
  d.path = read.text(json, "path");
  const SafetensorsType* type = find_safetensors_type(read.text(json, "dtype"));
  if (type == nullptr || !type->known) read.refuse("E122", quote_name(d.path) + " has a type that is not known");
  d.dtype = type->dtype;
  std::uint64_t bytes = size_of(d.dtype);
  for (const Json& n : read.list(json, "shape")) {
    const std::uint64_t dimension = read.number(n, "shape");
    d.shape.push_back(static_cast<std::int64_t>(dimension));
    if (__builtin_mul_overflow(bytes, dimension, &bytes))
      read.refuse("E122", "the shape of " + quote_name(d.path) + " overflows 2^63 bytes");
  }
  d.offset = read.member(json, "offset");
  d.bytes = read.member(json, "bytes");
  if (d.bytes != bytes) read.refuse("E122", "the shape of " + quote_name(d.path) + " does not make its bytes");
  return d;
}

StateFile parse_file(const Reader& read, const Json& json) {
  StateFile file;
  file.name = read.file_name(json);
  file.bytes = read.member(json, "bytes");
  const std::string crcs = read.text(json, "crc32c");
  const std::uint64_t blocks = file.bytes / block_bytes + (file.bytes % block_bytes != 0 ? 1 : 0);
  if (crcs.size() != 8 * blocks)
    read.refuse("E122", quote_name(file.name) + " has not a checksum for each of its blocks");
  for (std::size_t i = 0; i < crcs.size(); i += 8) file.crcs.push_back(read.hex(std::string_view(crcs).substr(i, 8)));
  std::uint64_t end = 0;
  for (const Json& dataset : read.list(json, "datasets")) {
    Hdf5Dataset d = parse_dataset(read, dataset);
    if (d.offset < end || d.offset > file.bytes || d.bytes > file.bytes - d.offset)
      read.refuse("E122", quote_name(d.path) + " overlaps another data set or the end of " + quote_name(file.name));
    end = d.offset + d.bytes;
    file.datasets.push_back(std::move(d));
    file.dataset_crcs.push_back(read.checksum(dataset));
  }
  return file;
}

BaseModel parse_base(const Reader& read, const Json& json) {
  const SafetensorsType* type = find_safetensors_type(read.text(json, "dtype"));
  if (type == nullptr || !type->known) read.refuse("E122", "the base model has a type that is not known");
  BaseModel base{type->dtype, read.checksum(json)};
  if (!json.contains("quantization")) return base;
  const std::string format = read.text(json, "quantization");
  for (const QuantFormat known : quant_formats)
    if (format == name_of(known)) base.quantization = known;
  if (base.quantization == QuantFormat::none)
    read.refuse("E122", "the base model has a quantization that is not known");
  return base;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  Json json;
  json["format"] = format_name;
  json["version"] = format_version;
  json["features_required"] = Json::array();
  if (!manifest.frozen.empty()) json["features_required"].push_back(frozen_feature);
  if (manifest.base) json["features_required"].push_back(base_feature);
  json["step"] = manifest.step;
  json["optimizer"] = manifest.optimizer;
  if (!manifest.frozen.empty()) json["frozen"] = manifest.frozen;
  if (manifest.base)
    json["base_model"] = {{"dtype", safetensors_type(manifest.base->dtype).name},
                          {"crc32c", strfmt("%08x", manifest.base->crc)}};
  if (manifest.base && manifest.base->quantization != QuantFormat::none)
    json["base_model"]["quantization"] = name_of(manifest.base->quantization);
  json["block_bytes"] = block_bytes;
  json["files"] = Json::array();
  for (const auto& file : manifest.files) json["files"].push_back(to_json(file));
  json["attachments"] = Json::array();
  for (const auto& a : manifest.auxiliary_files)
    json["attachments"].push_back({{"name", a.name}, {"bytes", a.bytes}, {"crc32c", strfmt("%08x", a.crc)}});
  json["training"] = Json::parse(manifest.training);
  json["may_differ"] = Json::parse(manifest.run_metadata);
  std::string text = json.dump(1);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n";
  return text + closing(crc_of(text));
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  const Reader read(source);
  if (text.size() < closing_bytes ||
      text.substr(text.size() - closing_bytes) != closing(crc_of(text.substr(0, text.size() - closing_bytes))))
    read.refuse("E131", "its checksum is wrong: the file is damaged or was cut short");
  const auto not_deep = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > max_depth) read.refuse("E130", strfmt("its JSON is nested more than %d deep", max_depth));
    return true;
  };
  const Json json = Json::parse(text, not_deep, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object() || !json.contains("format") || json.at("format") != format_name)
    read.refuse("E130", "it is not a manifest of a Tessera checkpoint");
  if (read.member(json, "version") != static_cast<std::uint64_t>(format_version))
    read.refuse("E132", strfmt("format version %lu; this program reads version %ld", read.member(json, "version"),
                               format_version));
  for (const Json& feature : read.list(json, "features_required"))
    if (feature != frozen_feature && feature != base_feature)
      read.refuse("E133", "it needs " + (feature.is_string() ? quote_name(feature.get<std::string>()) : "a feature") +
                              ", which this program does not have");
  Manifest manifest;
  manifest.step = static_cast<std::int64_t>(read.member(json, "step"));
  const Json& optimizer = read.at(json, "optimizer");
  if (!optimizer.is_boolean()) read.refuse("E130", "\"optimizer\" is neither true nor false");
  manifest.optimizer = optimizer.get<bool>();
  if (json.contains("frozen"))
    for (const Json& name : read.list(json, "frozen")) {
      if (!name.is_string()) read.refuse("E130", "a name of \"frozen\" is no text");
      manifest.frozen.push_back(name.get<std::string>());
    }
  if (json.contains("base_model")) manifest.base = parse_base(read, json.at("base_model"));
  if (read.member(json, "block_bytes") != block_bytes)
    read.refuse("E133", "its blocks have another size than this program reads");
  std::vector<std::string> names;
  for (const Json& file : read.list(json, "files")) {
    manifest.files.push_back(parse_file(read, file));
    names.push_back(manifest.files.back().name);
  }
  for (const Json& a : read.list(json, "attachments")) {
    manifest.auxiliary_files.push_back({read.auxiliary_name(a), read.member(a, "bytes"), read.checksum(a)});
    names.push_back(manifest.auxiliary_files.back().name);
  }
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    read.refuse("E122", quote_name(*twice) + " is named twice");
  manifest.training = read.object_text(json, "training");
  manifest.run_metadata = read.object_text(json, "may_differ");
  return manifest;
}

std::string describe_range(const StateFile& file, std::uint64_t first, std::uint64_t last) {
  const Hdf5Dataset *from = nullptr, *to = nullptr;
  std::size_t count = 0;
  for (const auto& d : file.datasets)
    if (d.offset < last && d.offset + d.bytes > first) {
      if (from == nullptr) from = &d;
      to = &d;
      ++count;
    }
  if (count == 0) return "the file's headers";
  if (count == 1) return from->path;
  return strfmt("%zu data sets from ", count) + from->path + " to " + to->path;
}

}  // namespace tessera::io

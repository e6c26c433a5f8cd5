// SPDX-License-Identifier: Apache-2.0
// Parses and checks the header of a safetensors file. No I/O.

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/model/safetensors.hpp"

namespace tessera::io {

namespace {

// In the official writer's order: ascending alignment.
constexpr SafetensorsType types[] = {
    {"BOOL", 8, false, DType::u8},        {"F4", 4, false, DType::u8},          {"F6_E2M3", 6, false, DType::u8},
    {"F6_E3M2", 6, false, DType::u8},     {"U8", 8, true, DType::u8},           {"I8", 8, false, DType::u8},
    {"F8_E5M2", 8, false, DType::u8},     {"F8_E4M3", 8, false, DType::u8},     {"F8_E8M0", 8, false, DType::u8},
    {"F8_E4M3FNUZ", 8, false, DType::u8}, {"F8_E5M2FNUZ", 8, false, DType::u8}, {"I16", 16, false, DType::u8},
    {"U16", 16, false, DType::u8},        {"F16", 16, true, DType::f16},        {"BF16", 16, true, DType::bf16},
    {"I32", 32, true, DType::i32},        {"U32", 32, false, DType::u8},        {"F32", 32, true, DType::f32},
    {"C64", 64, false, DType::u8},        {"F64", 64, true, DType::f64},        {"I64", 64, true, DType::i64},
    {"U64", 64, false, DType::u8},
};

constexpr std::size_t max_dims = 64;

class Refusal {
 public:
  explicit Refusal(const std::string& source) : source_(source) {}
  /// `code`: docs/formats.md, "E105".
  [[nodiscard]] Error operator()(const char* code, const std::string& rule) const {
    return safetensors_error(source_, code, rule);
  }

 private:
  const std::string& source_;
};

/// Handles the parser's events. A DOM would silently keep the last of two equal keys.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(SafetensorsHeader& header, const Refusal& refuse) : header_(header), refuse_(refuse) {}

  bool start_object(std::size_t) override {
    if (at_ == At::start) return go(At::top);
    if (at_ == At::top && key_ == "__metadata__") {
      if (seen_metadata_) throw refuse_("E104", "\"__metadata__\" occurs twice in the header");
      seen_metadata_ = true;
      return go(At::metadata);
    }
    if (at_ != At::top) throw misplaced("an object");
    entry_ = {};
    entry_.name = key_;
    has_type_ = has_shape_ = has_offsets_ = false;
    return go(At::tensor);
  }
  bool end_object() override {
    if (at_ == At::top) return go(At::end);
    if (at_ == At::tensor) {
      if (!has_type_ || !has_shape_ || !has_offsets_)
        throw refuse_("E103", "tensor " + quote_name(entry_.name) + " has no " +
                                  (!has_type_    ? "dtype"
                                   : !has_shape_ ? "shape"
                                                 : "data_offsets"));
      header_.entries.push_back(std::move(entry_));
    }
    return go(At::top);
  }
  bool key(std::string& name) override {
    key_ = std::move(name);
    if (at_ != At::tensor) return true;
    bool& seen = key_ == "dtype" ? has_type_ : key_ == "shape" ? has_shape_ : has_offsets_;
    if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      throw refuse_("E103", "tensor " + quote_name(entry_.name) + " has an unknown key " + quote_name(key_));
    if (seen) throw refuse_("E104", "tensor " + quote_name(entry_.name) + " has " + quote_name(key_) + " twice");
    return seen = true;
  }
  bool start_array(std::size_t) override {
    if (at_ != At::tensor || key_ == "dtype") throw misplaced("a list");
    num_offsets_ = 0;
    return go(key_ == "shape" ? At::shape : At::offsets);
  }
  bool end_array() override {
    if (at_ == At::offsets && num_offsets_ != 2)
      throw refuse_("E103", "tensor " + quote_name(entry_.name) + ": data_offsets are not two numbers");
    return go(At::tensor);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
          entry_.shape.size() == max_dims)
        throw refuse_("E106", "tensor " + quote_name(entry_.name) + " has an absurd shape");
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (at_ == At::offsets && num_offsets_ < 2) {
      (num_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      throw misplaced("a number");
    }
    return true;
  }
  bool string(string_t& value) override {
    if (at_ == At::metadata) {
      if (!header_.metadata.emplace(key_, std::move(value)).second)
        throw refuse_("E104", "metadata has " + quote_name(key_) + " twice");
      return true;
    }
    if (at_ != At::tensor || key_ != "dtype") throw misplaced("a string");
    const SafetensorsType* type = find_safetensors_type(value);
    if (type == nullptr)
      throw refuse_("E105", "tensor " + quote_name(entry_.name) + " has an unknown dtype " + quote_name(value));
    entry_.type = type->name;
    entry_.dtype = type->dtype;
    entry_.known_dtype = type->known;
    return true;
  }
  bool null() override { throw misplaced("null"); }
  bool boolean(bool) override { throw misplaced("true or false"); }
  bool number_integer(number_integer_t) override { throw misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    throw misplaced("a number that is not an integer of 64 bits");
  }
  bool binary(binary_t&) override { throw misplaced("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw refuse_("E103", strfmt("the header is not JSON at byte %zu", position + 7));
  }

 private:
  enum class At : unsigned char { start, top, metadata, tensor, shape, offsets, end };

  bool go(At next) {
    at_ = next;
    return true;
  }
  [[nodiscard]] Error misplaced(const std::string& what) const {
    if (at_ == At::start) return refuse_("E103", "the header is not a JSON object");
    if (at_ == At::metadata) return refuse_("E103", "metadata " + quote_name(key_) + " is " + what + ", not a string");
    if (at_ == At::top) return refuse_("E103", quote_name(key_) + " is " + what + ", not a tensor's description");
    return refuse_("E103", "tensor " + quote_name(entry_.name) + ": " + what + " in " + quote_name(key_));
  }

  SafetensorsHeader& header_;
  const Refusal& refuse_;
  At at_ = At::start;
  std::string key_;
  SafetensorsEntry entry_;
  bool seen_metadata_ = false, has_type_ = false, has_shape_ = false, has_offsets_ = false;
  int num_offsets_ = 0;
};

/// Bytes of a tensor by dtype and shape; throws on overflow and if they are not whole bytes.
std::uint64_t bytes_by_shape(const SafetensorsEntry& entry, const Refusal& refuse) {
  std::uint64_t bits = find_safetensors_type(entry.type)->bits;
  for (const auto dim : entry.shape)
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits))
      throw refuse("E106", "the size of tensor " + quote_name(entry.name) + " overflows 64 bits");
  if (bits % 8 != 0) throw refuse("E107", "tensor " + quote_name(entry.name) + " does not fill whole bytes");
  return bits / 8;
}

/// Checks all tensors together: sizes, no gap, no overlap, up to the last byte. Makes offsets count from the file's
/// start.
void check_offsets(std::vector<SafetensorsEntry>& entries, std::uint64_t data_start, std::uint64_t data_bytes,
                   const Refusal& refuse) {
  for (const auto& e : entries) {
    const auto* name = e.name.c_str();
    if (e.begin > e.end)
      throw refuse("E108", strfmt("tensor %s begins at byte %lu and ends before, at %lu", quote_name(name).c_str(),
                                  e.begin, e.end));
    if (e.end > data_bytes)
      throw refuse(
          "E109",
          strfmt("tensor %s has bytes [%lu, %lu) after the header, beyond the end of the file, which has %lu there",
                 quote_name(name).c_str(), e.begin, e.end, data_bytes));
    const auto bytes = bytes_by_shape(e, refuse);
    if (bytes != e.end - e.begin)
      throw refuse("E107", strfmt("tensor %s has %lu bytes, but dtype and shape make %lu", quote_name(name).c_str(),
                                  e.end - e.begin, bytes));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  std::uint64_t at = 0;
  for (auto& e : entries) {
    if (e.begin != at)
      throw refuse("E108",
                   strfmt("%s before tensor %s, at byte %lu of the data", e.begin > at ? "a hole" : "an overlap",
                          quote_name(e.name).c_str(), std::min(at, e.begin)));
    at = e.end;
    e.begin += data_start;
    e.end += data_start;
  }
  if (at != data_bytes)
    throw refuse("E109", strfmt("the last tensor ends at byte %lu of the data, which has %lu", at, data_bytes));
}

void check_names(const std::vector<SafetensorsEntry>& entries, const Refusal& refuse) {
  std::vector<const std::string*> names;
  names.reserve(entries.size());
  for (const auto& e : entries) names.push_back(&e.name);
  std::sort(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a == *b; });
  if (twice != names.end()) throw refuse("E104", "tensor " + quote_name(**twice) + " occurs twice in the header");
}

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
  for (const auto& type : types)
    if (name == type.name) return &type;
  return nullptr;
}

const SafetensorsType& safetensors_type(DType dtype) {
  for (const auto& type : types)
    if (type.known && type.dtype == dtype) return type;
  TESSERA_ASSERT(false, "dtype %d", static_cast<int>(dtype));
  return types[0];
}

Error safetensors_error(const std::string& source, const char* code, const std::string& rule) {
  return Error(ExitCode::data, std::string(code) + " " + source + " is not a valid safetensors file: " + rule, {},
               "Fetch or write the file again");
}

std::int64_t SafetensorsEntry::numel() const {
  std::int64_t n = 1;
  for (const auto dim : shape) n *= dim;
  return n;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_bytes, const std::string& source) {
  const Refusal refuse(source);
  TESSERA_ASSERT(json.size() + 8 <= file_bytes, "a header of %zu bytes", json.size());
  if (json.empty() || json.front() != '{') throw refuse("E103", "the header does not begin with \"{\"");
  if (json.find('\0') != json.npos)
    throw refuse("E103", "the header holds a zero byte");  // the parser would stop there
  SafetensorsHeader header;
  HeaderEvents events(header, refuse);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  const std::uint64_t data_start = 8 + json.size();
  check_names(header.entries, refuse);
  check_offsets(header.entries, data_start, file_bytes - data_start, refuse);
  return header;
}

}  // namespace tessera::io

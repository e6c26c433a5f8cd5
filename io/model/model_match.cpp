// The tensors of files against the parameters of a model.

#include "io/model/model_match.hpp"

#include <map>

namespace tessera::io {

namespace {

std::string shape_text(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

bool same_shape(const std::vector<std::int64_t>& dims, const Shape& shape) {
  if (dims.size() != static_cast<std::size_t>(shape.rank())) return false;
  for (int d = 0; d < shape.rank(); ++d)
    if (dims[static_cast<std::size_t>(d)] != shape[d]) return false;
  return true;
}

bool is_float(const SafetensorsEntry& e) {
  return e.known_dtype &&
         (e.dtype == DType::f32 || e.dtype == DType::f64 || e.dtype == DType::bf16 || e.dtype == DType::f16);
}

/// Mismatches of one kind, for a line that stays readable.
class Mismatches {
 public:
  void add(const std::string& text) {
    if (++count_ <= most) text_ += " " + text;
  }
  [[nodiscard]] bool any() const { return count_ > 0; }
  [[nodiscard]] std::string text(const char* head) const {
    if (count_ == 0) return {};
    const std::string more = count_ > most ? strfmt(" and %zu more", count_ - most) : "";
    return head + text_ + more + ";";
  }

 private:
  static constexpr std::size_t most = 100;
  std::string text_;
  std::size_t count_ = 0;
};

class Matcher {
 public:
  explicit Matcher(std::span<const ParamSpec> params) : params_(params) {
    result_.places.resize(params.size());
    for (std::size_t i = 0; i < params.size(); ++i) index_.emplace(params[i].name, i);
  }

  void tensor(const SafetensorsFile& file, const SafetensorsEntry& entry, const TensorUse& use) {
    if (use.ignored()) return;
    if (!use.same_as.empty()) return copy({&file, &entry, 0}, use.same_as);
    Shape expected = use.shape;
    std::int64_t first = 0;
    bool known = true;
    for (const std::string& part : use.parts) {
      const auto at = index_.find(part);
      if (at == index_.end()) {
        known = false;
        continue;
      }
      const ParamSpec& param = params_[at->second];
      if (use.parts.size() == 1) expected = param.shape;
      TensorRange& place = result_.places[at->second];
      if (place.entry != nullptr)
        wrong_.add(quote_name(entry.name) + " is " + quote_name(place.entry->name) + " again;");
      else place = {&file, &entry, first};
      first += param.numel();
    }
    if (!known) unexpected_.add(quote_name(entry.name));
    else check(entry, expected);
  }

  ModelMatch finish(const std::string& source) {
    Mismatches missing;
    for (std::size_t i = 0; i < params_.size(); ++i)
      if (result_.places[i].entry == nullptr) missing.add(quote_name(params_[i].name));
    if (!missing.any() && !unexpected_.any() && !wrong_.any()) return std::move(result_);
    std::string text = (missing.any() || unexpected_.any() ? "E112 " : "E113 ") + source + " does not fit config.json:";
    text += missing.text(" missing:") + unexpected_.text(" unexpected:") + wrong_.text("");
    while (text.back() == ';') text.pop_back();
    throw Error(ExitCode::data, text, {}, "Give the config.json that belongs to these weights");
  }

 private:
  void copy(const TensorRange& place, const std::string& name) {
    const auto at = index_.find(name);
    TESSERA_ASSERT(at != index_.end(), "a copy of %s", name.c_str());
    check(*place.entry, params_[at->second].shape);
    result_.copies.push_back({static_cast<int>(at->second), place});
  }
  void check(const SafetensorsEntry& entry, const Shape& shape) {
    if (!same_shape(entry.shape, shape))
      wrong_.add(quote_name(entry.name) + " is " + shape_text(entry.shape) + ", not " + shape.str() + ";");
    else if (!is_float(entry)) wrong_.add(quote_name(entry.name) + " is " + entry.type + ", no float;");
  }

  std::span<const ParamSpec> params_;
  std::map<std::string, std::size_t> index_;
  ModelMatch result_;
  Mismatches unexpected_, wrong_;
};

}  // namespace

ModelMatch match_model(std::span<const SafetensorsFile> files, const std::string& source,
                       std::span<const ParamSpec> params, const std::function<TensorUse(const std::string&)>& use) {
  Matcher matcher(params);
  for (const SafetensorsFile& file : files)
    for (const SafetensorsEntry& entry : file.entries()) matcher.tensor(file, entry, use(entry.name));
  return matcher.finish(source);
}

}  // namespace tessera::io

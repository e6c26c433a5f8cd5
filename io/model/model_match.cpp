// SPDX-License-Identifier: Apache-2.0
// Tensors of files to parameters, by name.

#include "io/model/model_match.hpp"

#include <map>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

bool same_shape(std::span<const std::int64_t> dims, const Shape& shape) {
  if (dims.size() != static_cast<std::size_t>(shape.rank())) return false;
  for (int d = 0; d < shape.rank(); ++d)
    if (dims[static_cast<std::size_t>(d)] != shape[d]) return false;
  return true;
}

/// What is wrong, of one kind.
class Mismatches {
 public:
  void add(const std::string& text) {
    if (++count_ <= max_listed) text_ += (count_ == 1 ? "" : ", ") + text;
  }
  [[nodiscard]] bool any() const { return count_ > 0; }
  /// " TITLE: …;", or "" if there is nothing.
  [[nodiscard]] std::string text(const char* title) const {
    if (count_ == 0) return {};
    const std::string more = count_ > max_listed ? strfmt(" and %zu more", count_ - max_listed) : "";
    return std::string(" ") + title + ": " + text_ + more + ";";
  }

 private:
  static constexpr std::size_t max_listed = 10;
  std::string text_;
  std::size_t count_ = 0;
};

class Matcher {
 public:
  Matcher(std::span<const TensorInfo> tensors, std::span<const ParamSpec> params, ModelPart part)
      : tensors_(tensors), params_(params), part_(part) {
    result_.params.resize(params.size());
    for (std::size_t i = 0; i < params.size(); ++i) index_.emplace(params[i].name, i);
  }

  void add(int tensor, const TensorUse& use) {
    if (use.ignored()) return;
    const TensorInfo& info = tensors_[static_cast<std::size_t>(tensor)];
    if (!use.same_as.empty()) {
      const auto at = index_.find(use.same_as);
      TESSERA_ASSERT(at != index_.end(), "a copy of %s", use.same_as.c_str());
      check(info, params_[at->second].file_shape());
      return result_.copies.push_back({tensor, static_cast<int>(at->second)});
    }
    Shape expected = use.shape;
    std::int64_t first = 0;
    bool known = true;
    for (const std::string& part : use.parts) {
      const auto at = index_.find(part);
      if (at == index_.end() || !is_in(part_, params_[at->second])) {
        known = false;
        continue;
      }
      const ParamSpec& param = params_[at->second];
      if (use.parts.size() == 1) expected = param.file_shape();
      auto& range = result_.params[at->second];
      if (range.tensor >= 0)
        wrong_.add(quote_name(info.name) + " is " + quote_name(tensors_[static_cast<std::size_t>(range.tensor)].name) +
                   " again");
      else range = {tensor, first};
      first += param.elements();
    }
    if (!known) unexpected_.add(quote_name(info.name));
    else check(info, expected);
  }

  ModelMatch finish(const std::string& source) {
    Mismatches missing;
    for (std::size_t i = 0; i < params_.size(); ++i)
      if (is_in(part_, params_[i]) && result_.params[i].tensor < 0) missing.add(quote_name(params_[i].name));
    if (!missing.any() && !unexpected_.any() && !wrong_.any()) return std::move(result_);
    const bool base = part_ == ModelPart::base;
    std::string text = (missing.any() || unexpected_.any() ? "E112 " : "E113 ") + source +
                       (base ? " does not match its config.json:" : " is an adapter of another model:");
    text += missing.text("missing") + unexpected_.text("unexpected") + wrong_.text("wrong");
    text.pop_back();
    throw Error(
        ExitCode::data, text, {},
        base ? "Give the config.json that belongs to these weights" : "Give the base model that it was trained from");
  }

 private:
  void check(const TensorInfo& info, const Shape& shape) {
    if (!same_shape(info.shape, shape))
      wrong_.add(quote_name(info.name) + " is " + shape_text(info.shape) + ", not " + shape.str());
    else if (!info.is_float) wrong_.add(quote_name(info.name) + " is " + info.type + ", not a float type");
  }

  std::span<const TensorInfo> tensors_;
  std::span<const ParamSpec> params_;
  ModelPart part_;
  std::map<std::string, std::size_t> index_;
  ModelMatch result_;
  Mismatches unexpected_, wrong_;
};

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

ModelMatch match_model(std::span<const TensorInfo> tensors, const std::string& source,
                       std::span<const ParamSpec> params, const std::function<TensorUse(const std::string&)>& use,
                       ModelPart part) {
  Matcher matcher(tensors, params, part);
  for (std::size_t i = 0; i < tensors.size(); ++i) matcher.add(static_cast<int>(i), use(std::string(tensors[i].name)));
  return matcher.finish(source);
}

}  // namespace tessera::io

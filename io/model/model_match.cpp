// SPDX-License-Identifier: Apache-2.0
// Tensors of files to parameters, by name.

#include "io/model/model_match.hpp"

#include <algorithm>
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
  using UseOf = std::function<TensorUse(const std::string&)>;

  Matcher(std::span<const TensorInfo> tensors, std::span<const ParamSpec> params, const UseOf& use, ModelPart part)
      : tensors_(tensors), params_(params), use_(use), part_(part) {
    result_.params.resize(params.size());
    for (std::size_t i = 0; i < params.size(); ++i) index_.emplace(params[i].name, i);
  }

  void add(int tensor) {
    const TensorInfo& info = tensors_[static_cast<std::size_t>(tensor)];
    const TensorUse use = use_(std::string(info.name));
    if (use.ignored()) return;
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
    if (!base)
      throw Error(ExitCode::data, text, {},
                  "Give the base model that it was trained from, or the adapter_config.json of this adapter");
    const std::string other = other_prefix();
    throw Error(ExitCode::data, text, {}, other.empty() ? "Give the config.json that belongs to these weights" : other);
  }

 private:
  /// What to do if all names would be known with another prefix; "" if they would not.
  [[nodiscard]] std::string other_prefix() const {
    const std::string tensor(tensors_.empty() ? "" : tensors_.front().name);
    for (std::size_t at = tensor.find('.'); at != std::string::npos; at = tensor.find('.', at + 1))
      if (const std::string prefix = tensor.substr(0, at + 1); all_known(prefix, ""))
        return "Every name begins with " + quote_name(prefix) +
               ", as a wrapper (DataParallel, torch.compile) writes it: save the model that is inside it";
    const std::string& param = params_.empty() ? "" : params_.front().name;
    if (const std::size_t at = param.find('.'); at != std::string::npos && all_known("", param.substr(0, at + 1)))
      return "The names are those of a model without a head, which lack " + quote_name(param.substr(0, at + 1)) +
             ": load it with transformers' AutoModelForCausalLM and save that";
    return {};
  }
  /// Whether each name is one of this model's, with `old_prefix` replaced.
  [[nodiscard]] bool all_known(const std::string& old_prefix, const std::string& new_prefix) const {
    return std::all_of(tensors_.begin(), tensors_.end(), [&](const TensorInfo& info) {
      if (!info.name.starts_with(old_prefix)) return false;
      const TensorUse use = use_(new_prefix + std::string(info.name.substr(old_prefix.size())));
      return use.ignored() || index_.contains(use.same_as) ||
             (!use.parts.empty() && std::all_of(use.parts.begin(), use.parts.end(),
                                                [&](const std::string& part) { return index_.contains(part); }));
    });
  }
  void check(const TensorInfo& info, const Shape& shape) {
    if (!same_shape(info.shape, shape))
      wrong_.add(quote_name(info.name) + " is " + shape_text(info.shape) + ", not " + shape.str());
    else if (!info.is_float) wrong_.add(quote_name(info.name) + " is " + info.type + ", not a float type");
  }

  std::span<const TensorInfo> tensors_;
  std::span<const ParamSpec> params_;
  const UseOf& use_;
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
  Matcher matcher(tensors, params, use, part);
  for (std::size_t i = 0; i < tensors.size(); ++i) matcher.add(static_cast<int>(i));
  return matcher.finish(source);
}

}  // namespace tessera::io

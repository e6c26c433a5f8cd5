#include "jobs/cli/session/model_tensors.hpp"

#include <map>

namespace tessera::jobs {

namespace {

/// The first ten names, and how many more there are.
class List {
 public:
  void add(const std::string& text) {
    if (++count_ <= max_shown) text_ += (count_ == 1 ? "" : ", ") + text;
  }
  [[nodiscard]] std::string text(const char* title) const {
    if (count_ == 0) return {};
    return std::string(" ") + title + ": " + text_ +
           (count_ > max_shown ? strfmt(" and %d more;", count_ - max_shown) : ";");
  }

 private:
  static constexpr int max_shown = 10;
  int count_ = 0;
  std::string text_;
};

std::vector<std::int64_t> dims_of(const Shape& shape) {
  std::vector<std::int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

/// Assigns each stored tensor to the parameters that it holds.
class Matcher {
 public:
  Matcher(const models::Model& model, const io::TensorCatalog& stored) : model_(model), stored_(stored) {
    for (std::size_t i = 0; i < model.params.size(); ++i) {
      index_.emplace(model.params[i].name, i);
      result_.tensors.push_back({model.params[i].name, DType::f32, model.params[i].shape, {}});
    }
  }

  ModelTensors run(const std::string& source) {
    for (std::size_t t = 0; t < stored_.tensors.size(); ++t) assign(static_cast<int>(t));
    for (const io::ConvertTensor& t : result_.tensors)
      if (t.slices.empty()) missing_.add(io::quote_name(t.name));
    const std::string list = missing_.text("missing") + unexpected_.text("unexpected"),
                      misshapen = wrong_.text("wrong");
    if (!list.empty() || !misshapen.empty()) {
      std::string text = std::string(list.empty() ? "E113 " : "E112 ") + source +
                         " does not match its config.json:" + list + misshapen;
      text.pop_back();
      throw Error(ExitCode::data, text, {}, "Give the config.json that belongs to these weights");
    }
    for (const auto& [tensor, parameter] : same_) {
      const std::size_t at = index_.at(parameter);
      result_.copies.push_back({tensor, result_.tensors[at].slices.front().tensor});
    }
    return std::move(result_);
  }

 private:
  void assign(int tensor) {
    const io::TensorEntry& t = stored_.tensors[static_cast<std::size_t>(tensor)];
    const TensorUse use = models::tensor_use(model_, t.name);
    if (use.ignored()) return;
    const std::string& first = use.parts.empty() ? use.same_as : use.parts.front();
    for (const std::string& part : use.parts.empty() ? std::vector<std::string>{first} : use.parts)
      if (!index_.contains(part)) return unexpected_.add(io::quote_name(t.name));
    const Shape& shape = use.parts.size() > 1 ? use.shape : model_.params[index_.at(first)].shape;
    if (t.shape != dims_of(shape)) return refuse(use, t, io::shape_text(t.shape) + ", not " + shape.str());
    if (!t.known || !is_float(t.dtype)) return refuse(use, t, std::string(t.type) + ", which is not a float type");
    if (use.parts.empty()) return same_.push_back({tensor, use.same_as});
    std::int64_t at = 0;
    for (const std::string& part : use.parts) {
      io::ConvertTensor& parameter = result_.tensors[index_.at(part)];
      const std::int64_t numel = parameter.shape.numel();
      if (!parameter.slices.empty())
        wrong_.add(io::quote_name(t.name) + " holds " + io::quote_name(part) + ", which another tensor holds too");
      parameter.slices = {{tensor, at, numel}};
      at += numel;
    }
  }
  /// Reports the tensor once: its parameters do not count as missing.
  void refuse(const TensorUse& use, const io::TensorEntry& t, const std::string& what) {
    wrong_.add(io::quote_name(t.name) + " is " + what);
    for (const std::string& part : use.parts) result_.tensors[index_.at(part)].slices = {{0, 0, 0}};
  }

  const models::Model& model_;
  const io::TensorCatalog& stored_;
  std::map<std::string, std::size_t> index_;
  ModelTensors result_;
  std::vector<std::pair<int, std::string>> same_;
  List missing_, unexpected_, wrong_;
};

}  // namespace

ModelTensors match_model_tensors(const models::Model& model, const io::TensorCatalog& stored,
                                 const std::string& source) {
  return Matcher(model, stored).run(source);
}

std::optional<DType> parse_dtype(const std::string& name) {
  if (name == "fp32" || name == "float32") return DType::f32;
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  if (name == "fp16" || name == "float16") return DType::f16;
  return std::nullopt;
}

}  // namespace tessera::jobs

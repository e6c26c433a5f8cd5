// Parses line by line with a SAX parser, which keeps only the wanted string, however deep or long a line is.

#include "io/data/jsonl.hpp"

#include <nlohmann/json.hpp>

#include "io/file/file.hpp"

namespace tessera::io {

namespace {

class TextEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TextEvents(const std::string& where) : where_(where) {}

  [[nodiscard]] const std::string& text() const {
    if (!found_) throw refuse("the object has no \"text\"");
    return text_;
  }

  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override {
    if (depth_ == 0) throw refuse("the line is not a JSON object");
    return enter();
  }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (depth_ == 1) at_text_ = name == "text";
    if (depth_ == 1 && at_text_ && found_) throw refuse("\"text\" occurs twice in the object");
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 1 && at_text_) {
      text_ = std::move(value);
      return found_ = true;
    }
    return scalar();
  }
  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw refuse(strfmt("the line is not JSON at column %zu", position));
  }

 private:
  [[nodiscard]] Error refuse(const std::string& what) const {
    return Error(ExitCode::data, what, where_, "Each line is an object with a string under \"text\"");
  }
  bool enter() {
    if (depth_ == 1 && at_text_) throw refuse("\"text\" is not a string");
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool scalar() {
    if (depth_ == 0) throw refuse("the line is not a JSON object");
    if (depth_ == 1 && at_text_) throw refuse("\"text\" is not a string");
    return true;
  }

  const std::string& where_;
  std::string text_;
  std::size_t depth_ = 0;
  bool at_text_ = false, found_ = false;
};

}  // namespace

void for_each_jsonl_text(std::string_view bytes, const std::string& path,
                         const std::function<void(std::string_view)>& document, std::size_t first_line) {
  std::size_t line_number = first_line - 1;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end == bytes.npos ? bytes.size() : end + 1);
    ++line_number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = path + ":" + std::to_string(line_number);
    if (line.find('\0') != line.npos)  // the parser would stop there
      throw Error(ExitCode::data, "a zero byte in the line: this is not text", where);
    TextEvents events(where);
    nlohmann::json::sax_parse(line.begin(), line.end(), &events);
    document(events.text());
  }
}

}  // namespace tessera::io

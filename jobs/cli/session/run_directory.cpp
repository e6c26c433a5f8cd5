// The output directory on disk.
#include "jobs/cli/session/run_directory.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>

#include <unistd.h>

#include "io/checkpoint/directory.hpp"
#include "io/file/file.hpp"
#include "io/file/text_file.hpp"
#include "jobs/cli/session/signals.hpp"

namespace tessera::jobs {

namespace fs = std::filesystem;

std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return strfmt("%.17g", value);
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20) out += strfmt("\\u%04x", c);
    else out += c;
  }
  return out + "\"";
}

JsonLine& JsonLine::number(const char* key, double value) {
  body_ += (body_.empty() ? "" : ", ") + json_string(key) + ": " + json_number(value);
  return *this;
}

JsonLine& JsonLine::numbers(const char* key, std::span<const double> values) {
  std::string list;
  for (const double value : values) list += (list.empty() ? "" : ", ") + json_number(value);
  body_ += (body_.empty() ? "" : ", ") + json_string(key) + ": [" + list + "]";
  return *this;
}

JsonLine& JsonLine::integer(const char* key, std::int64_t value) {
  body_ += (body_.empty() ? "" : ", ") + json_string(key) + ": " + std::to_string(value);
  return *this;
}

JsonLine& JsonLine::text(const char* key, const std::string& value) {
  body_ += (body_.empty() ? "" : ", ") + json_string(key) + ": " + json_string(value);
  return *this;
}

namespace {

[[noreturn]] void cannot_write(const std::string& path, const std::string& why, const Options& options) {
  throw Error(ExitCode::data, "the output directory cannot be written: " + why,
              path + "; --output_dir: " + options.value("output_dir").source.text, "Choose another --output_dir");
}

/// Number of the next version: one more than the largest v<N>-… there.
int next_version(const fs::path& base) {
  int next = 0;
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end; entry.increment(error)) {
    int number = 0;
    if (std::sscanf(entry->path().filename().c_str(), "v%d-", &number) == 1 && number >= next && number < 1000000000)
      next = number + 1;
  }
  return next;
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

}  // namespace

void RunDirectory::create(const Options& options, const std::string& existing) {
  const fs::path base = options.text("output_dir");
  std::error_code error;
  fs::create_directories(base, error);
  if (error) cannot_write(base.string(), error.message(), options);
  path_ = existing.empty() ? base.string() : existing;
  if (existing.empty() && options.flag("add_version")) {
    // Two runs may start at once: the one that makes the directory has it.
    for (int attempt = 0;; ++attempt) {
      const fs::path mine = base / strfmt("v%d-%s", next_version(base), timestamp().c_str());
      if (fs::create_directory(mine, error)) {
        path_ = mine.string();
        break;
      }
      if (error || attempt == 100) cannot_write(mine.string(), error ? error.message() : "it exists", options);
    }
  }
  if (existing.empty() && !io::list_checkpoints(path_).empty())
    throw Error(ExitCode::usage,
                "the output directory holds checkpoints of an earlier run, and this one would mix its own with them",
                path_ + "; --output_dir: " + options.value("output_dir").source.text,
                "Go on with --resume_from_checkpoint auto, remove them, or choose another --output_dir");
  try {
    io::write_text(file("STATUS"), "running\n");
  } catch (const Error& failed) { cannot_write(path_, failed.line(), options); }
  log_ = std::fopen(file("logging.jsonl").c_str(), existing.empty() ? "w" : "a+");
  if (log_ == nullptr) cannot_write(file("logging.jsonl"), std::strerror(errno), options);
  // A run that was killed may have left half a line.
  if (!existing.empty() && std::fseek(log_, -1, SEEK_END) == 0 && std::fgetc(log_) != '\n') std::fputc('\n', log_);
}

RunDirectory::RunDirectory(World& world, const Options& options, const std::string& existing) : world_(world) {
  world.run_and_agree([&] {
    if (world.rank() == 0) create(options, existing);
  });
  path_ = world.broadcast(path_);
  mark_failed_on_signal(file("STATUS").c_str());
}

RunDirectory::~RunDirectory() {
  mark_failed_on_signal(nullptr);
  if (log_ != nullptr) std::fclose(log_);
}

void RunDirectory::status(const std::string& word) {
  const std::string line = word + "\n";
  const io::File out = io::File::open_to_write(file("STATUS"));
  out.write_at(0, std::as_bytes(std::span(line)));
  if (::ftruncate(out.descriptor(), static_cast<off_t>(line.size())) != 0)
    throw io::system_error("write", file("STATUS"), errno);
  out.sync();
}

void RunDirectory::fail() noexcept {
  try {
    status("failed");
  } catch (...) {  // the error that led here is the one to report
  }
}

void RunDirectory::write(const std::string& name, const std::string& text) {
  if (world_.rank() == 0) io::write_text(file(name), text);
}

void RunDirectory::log(const JsonLine& line) {
  if (log_ == nullptr) return;
  const std::string text = line.str() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), log_) != text.size() || std::fflush(log_) != 0) {
    throw Error(ExitCode::data, std::string("cannot write: ") + std::strerror(errno), file("logging.jsonl"),
                "Free some space");
  }
}

}  // namespace tessera::jobs

// SPDX-License-Identifier: Apache-2.0
#include "io/tensorboard/event_file.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <span>

#include <unistd.h>

namespace tessera::io {

namespace {

constexpr std::string_view file_prefix = "events.out.tfevents.";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Now, or one second more than the newest event file: a run may be resumed within a second.
std::int64_t time_of_new_file(const std::string& directory) {
  auto time = static_cast<std::int64_t>(seconds_since_1970());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(file_prefix)) continue;
    const std::int64_t other = std::strtoll(name.c_str() + file_prefix.size(), nullptr, 10);
    if (other < 9'999'999'999) time = std::max(time, other + 1);
  }
  return time;
}

std::string new_file_in(const std::string& directory, const std::string& host) {
  make_directories(directory);
  return directory + "/" + std::string(file_prefix) +
         strfmt("%010ld.%s.%d.0", static_cast<long>(time_of_new_file(directory)), host.c_str(),
                static_cast<int>(::getpid()));
}

}  // namespace

EventFile::EventFile(const std::string& directory, const std::string& host, std::optional<std::int64_t> purge_step)
    : file_(File::create(new_file_in(directory, host))) {
  append({.wall_time = seconds_since_1970(), .file_version = "brain.Event:2"});
  if (purge_step) append({.wall_time = seconds_since_1970(), .step = *purge_step, .starts_session = true});
}

void EventFile::write(std::int64_t step, std::vector<SummaryValue> values) {
  append({.wall_time = seconds_since_1970(), .step = step, .values = std::move(values)});
}

void EventFile::append(const Event& event) {
  const std::string record = tf_record(encode(event));
  try {
    file_.write_at(size_, std::as_bytes(std::span(record)));
  } catch (...) {
    if (::ftruncate(file_.descriptor(), static_cast<off_t>(size_)) != 0) {}  // the next event is written over it
    throw;
  }
  size_ += record.size();
}

}  // namespace tessera::io

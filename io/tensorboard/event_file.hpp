// SPDX-License-Identifier: Apache-2.0
#pragma once
// An event file that grows while a run trains. TensorBoard may read it at any time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/file/file.hpp"
#include "io/tensorboard/event.hpp"

namespace tessera::io {

class EventFile {
 public:
  /// Creates DIRECTORY/events.out.tfevents.<time>.<host>.<process>.0, and the directory. Its name sorts after those of
  /// the event files that are there: TensorBoard reads them in that order, as one run. `purge_step`: values of this
  /// step and later ones in earlier files are void. Throws Error (data).
  EventFile(const std::string& directory, const std::string& host, std::optional<std::int64_t> purge_step = {});

  /// Appends one event with the time of now. Throws Error (data); then the file ends with the last whole event, and a
  /// later call may succeed.
  void write(std::int64_t step, std::vector<SummaryValue> values);
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  void append(const Event& event);
  File file_;
  std::uint64_t size_ = 0;
};

}  // namespace tessera::io

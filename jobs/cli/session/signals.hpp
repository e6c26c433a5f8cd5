#pragma once
// STATUS of a run that a signal ends.

namespace tessera::jobs {

/// At program start: ignores SIGXFSZ, so that a file at its size limit is a write error that names the file.
void ignore_file_size_signal() noexcept;

/// From now on SIGTERM, SIGINT, SIGHUP and SIGPIPE change "running" in this file to "failed" and then end the process
/// as usual. nullptr: no longer. Signals that the process was started to ignore stay ignored; a file that cannot be
/// opened stays as it is.
void mark_failed_on_signal(const char* status_file) noexcept;

}  // namespace tessera::jobs

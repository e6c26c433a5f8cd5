#pragma once
// Signals: what a run leaves behind when one ends it.

namespace tessera::jobs {

/// At the start of the program: a file that may grow no further is an error of its write, with a name, not the end by
/// SIGXFSZ.
void ignore_file_size_signal() noexcept;

/// From now on SIGTERM, SIGINT, SIGHUP and SIGPIPE turn the word "running" in this file into "failed", then end the
/// process as ever. nullptr: no more. Signals that the process was started to ignore stay ignored; a file that cannot
/// be opened is left alone.
void mark_failed_on_signal(const char* status_file) noexcept;

}  // namespace tessera::jobs

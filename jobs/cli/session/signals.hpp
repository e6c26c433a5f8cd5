// SPDX-License-Identifier: Apache-2.0
#pragma once
// What signals do to a training run. SIGUSR1, and the first SIGTERM, SIGINT or SIGHUP, ask for a checkpoint and the end
// of the run; SIGUSR2 asks for a checkpoint alone. Each rank only records them; all ranks act on them together, after a
// step.

#include <string>

namespace tessera::jobs {

/// At program start: ignores SIGXFSZ, so that a file at its size limit is a write error that names the file.
void ignore_file_size_signal() noexcept;

/// From now on SIGUSR1 and SIGUSR2 are recorded.
void install_preemption_handlers() noexcept;
/// The signal that asked this rank to stop; 0: none.
[[nodiscard]] int stop_signal() noexcept;
/// True once after one or more SIGUSR2.
[[nodiscard]] bool take_save_request() noexcept;
/// "SIGTERM"
[[nodiscard]] const char* signal_name(int number) noexcept;

/// From now on, until nullptr is passed: the first SIGTERM, SIGINT or SIGHUP is recorded as stop_signal(). A second
/// one, SIGPIPE, and SIGTERM from Open MPI's mpirun (which kills its ranks a second later) end the process as usual.
/// Before that, "running" in the file `status_file` becomes "failed" with the reason and the last checkpoint, and with
/// `prints` one line on stderr says the same. Signals that the process was started to ignore stay ignored; a file that
/// cannot be opened stays as it is. The error that ends this rank (log::error_here) is written there in the same way.
void handle_end_signals(const char* status_file, bool prints) noexcept;
/// While it lives, the first SIGTERM, SIGINT or SIGHUP is recorded, for what ends by an error and cleans up. One at a
/// time, and not beside handle_end_signals.
class EndSignals {
 public:
  EndSignals() { handle_end_signals("", /*prints=*/false); }
  ~EndSignals() { handle_end_signals(nullptr, /*prints=*/false); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;
};

/// Names the last checkpoint on disk for these messages; until then: none. Not from several threads at once.
void set_last_checkpoint(const std::string& path);

}  // namespace tessera::jobs

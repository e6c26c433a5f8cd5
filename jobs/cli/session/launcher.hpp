#pragma once
// What a launcher tells a process before MPI starts, by environment variables. Hints only: MPI has the last word.

namespace tessera::jobs {

/// Rank; 0 if nobody tells.
[[nodiscard]] int launcher_rank();
/// Ranks of the run; 1 if nobody tells.
[[nodiscard]] int launcher_size();
/// Ranks on this node; 0 if nobody tells.
[[nodiscard]] int launcher_local_size();

}  // namespace tessera::jobs

#pragma once
// Lines for people: rank 0 speaks on stdout; warnings and errors carry their rank on stderr.

#include <string>

namespace tessera::log {

/// Tells this process who it is; before that it speaks as the only rank. `host` is printed beside the rank when world
/// > 1.
void set_rank(int rank, int world, std::string host);
/// Nothing but warnings and errors.
void set_quiet(bool quiet);
/// Plain line on rank 0's stdout, flushed.
void info(const std::string& line);
/// "warning W012: …" once per text, from rank 0 (or any rank with `every_rank`). Numbers are listed in
/// docs/warnings.md.
void warn(int number, const std::string& text);
void warn_here(int number, const std::string& text);
/// How many warnings were printed here (for --werror).
[[nodiscard]] int warnings();
/// "error: …" on stderr, one line whatever `text` holds. `error_here` is what this rank alone found out, and names it:
/// "error: [rank 3@node1] …".
void error(const std::string& text);
void error_here(const std::string& text);

}  // namespace tessera::log

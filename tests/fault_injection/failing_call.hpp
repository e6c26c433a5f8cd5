// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choice of the failing call, which the replaced symbols of shim.cpp ask before they go on.

#include <cstddef>

#include <sys/types.h>

namespace fault {

/// Whether a call fails on a full disk.
enum class Needs { space, nothing };
enum class Call { change, write, read };

/// What the file system cannot do.
extern bool no_exchange, no_links, no_locks;

/// True if calls are counted.
bool is_armed();
/// Counts a call that writes no bytes: 0 to go on, -1 with errno. `name` is relative to `descriptor`; null: the file of
/// the descriptor.
int permit(const char* call, int descriptor, const char* name, Needs needs = Needs::nothing);
/// How much of `bytes` a read or write may do now; -1 with errno; `last`: end after it; `flip`: change a bit.
ssize_t permit_bytes(Call what, const char* call, int descriptor, std::size_t bytes, bool& last, bool& flip);
/// SIGKILL for this process.
void end_here();
/// Counts a file that is opened to read (fault_opened_to_read), and its descriptor (below 0: it was not opened).
void count_open(int base, const char* name, int opened);
/// Counts a descriptor of such a file that is about to be closed.
void count_close(int descriptor);

}  // namespace fault

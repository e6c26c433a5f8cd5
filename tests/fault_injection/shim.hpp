// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fault shim's controls, for a program that links it. Under LD_PRELOAD the environment controls it
// (shim.cpp).

extern "C" {

/// Counts from now on the calls under `directory` (a path as realpath gives it) whose path contains `with` ("": all),
/// over all threads; the `at`-th (from 1; 0: none) fails as `kind` says. Both texts are copied.
void fault_arm(const char* directory, const char* with, long at, const char* kind);
/// Stops; returns the number of calls.
long fault_disarm();
/// Files under `directory` that the calling thread has opened to read since it asked last. They never fail.
long fault_opened_to_read();
/// The most descriptors of such files that the calling thread has had open at once since it asked last; it closes what
/// it opens.
long fault_most_open();
/// Whether the file system can exchange two names; without, renameat2 with flags fails with EINVAL.
void fault_exchange(int possible);
/// Whether the file system has locks; without, flock fails with ENOLCK.
void fault_locks(int possible);
/// Whether the file system has hard links; without, link fails with EPERM.
void fault_links(int possible);
/// Whether reads (read, pread) are counted and fail in place of the calls that change files.
void fault_reads(int instead);
/// The failed call, "fsync PATH"; "" if none failed.
const char* fault_happened();
}

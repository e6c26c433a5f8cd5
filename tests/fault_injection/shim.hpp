#pragma once
// The fault shim's controls, for a program that has it linked in. Under LD_PRELOAD the environment controls it
// (shim.cpp).

extern "C" {

/// Counts from now on the calls under `directory` (a path as realpath gives it) whose path contains `with` ("": all),
/// over all threads; the `at`-th (from 1; 0: none) goes wrong as `kind` says. Both texts are copied.
void fault_arm(const char* directory, const char* with, long at, const char* kind);
/// Ends that; returns how many calls there were.
long fault_disarm();
/// What the call that went wrong was, "fsync PATH"; "" if none did.
const char* fault_happened();
}

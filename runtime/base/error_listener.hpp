// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who is told the error that ends this process, before the process ends.

namespace tessera::log {

/// Called with the text of log::error_here, by the thread that prints it. It must not throw.
using ErrorListener = void (*)(const char* text);
/// nullptr: nobody. Any thread.
void set_error_listener(ErrorListener listener) noexcept;

}  // namespace tessera::log

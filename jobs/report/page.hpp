// SPDX-License-Identifier: Apache-2.0
#pragma once
// page.html, as the build has put it into the program.

namespace tessera::jobs {

/// The page with {{DATA}} where the JSON goes.
extern const char* const report_template;

}  // namespace tessera::jobs

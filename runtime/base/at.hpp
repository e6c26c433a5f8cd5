// SPDX-License-Identifier: Apache-2.0
#pragma once
// at(i): an int index or count as the std::size_t that containers take.

#include <cstddef>

namespace tessera {

[[nodiscard]] constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace tessera

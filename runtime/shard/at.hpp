#pragma once
// An index of the plan, which is an int, as the standard containers want it.

#include <cstddef>

namespace tessera::shard {

inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace tessera::shard

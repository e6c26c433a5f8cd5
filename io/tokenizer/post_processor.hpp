// SPDX-License-Identifier: Apache-2.0
#pragma once
// tokenizer.json's "post_processor": ids added before and after a text.

#include <cstdint>
#include <vector>

namespace tessera::io {

class Component;

struct PostProcessor {
  std::vector<std::int32_t> before, behind;

  PostProcessor() = default;
  /// null, ByteLevel (which moves offsets only), TemplateProcessing's single form, and Sequences.
  /// Throws Error (data) for others.
  explicit PostProcessor(const Component& node);

 private:
  void add(const Component& node);
  void add_template(const Component& node);
};

}  // namespace tessera::io

// SPDX-License-Identifier: Apache-2.0
// Templates of special tokens around a text.

#include "io/tokenizer/post_processor.hpp"

#include "io/tokenizer/component.hpp"

namespace tessera::io {

PostProcessor::PostProcessor(const Component& node) { add(node); }

void PostProcessor::add(const Component& node) {
  if (node.absent()) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    node.only({"processors"});
    for (const Component& part : node.child("processors").elements()) add(part);
  } else if (type == "ByteLevel") {
    node.only({"add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    add_template(node);
  } else {
    throw node.refuse("is \"" + type + "\", which is not supported");
  }
}

void PostProcessor::add_template(const Component& node) {
  node.only({"single", "pair", "special_tokens"});
  const Component specials = node.child("special_tokens");
  bool behind_text = false;
  std::vector<std::int32_t> front, back;
  for (const Component& part : node.child("single").elements()) {
    part.only({"Sequence", "SpecialToken"});
    const Component sequence = part.child("Sequence"), special = part.child("SpecialToken");
    if (sequence.absent() == special.absent()) throw part.refuse("is neither the text nor a special token");
    if (!sequence.absent()) {
      if (behind_text || sequence.text("id", "") != "A") throw part.refuse("is not the one text of a single template");
      behind_text = true;
      continue;
    }
    const std::string name = special.text("id", "");
    const Component token = specials.child(name.c_str());
    if (token.absent()) throw part.refuse("names the special token " + name + ", which the template does not list");
    for (const Component& id : token.child("ids").elements()) {
      const bool fits = id.json().is_number_unsigned() && id.json().get<std::uint64_t>() <= 0x7FFFFFFFu;
      if (!fits) throw id.refuse("is no id");
      (behind_text ? back : front).push_back(id.json().get<std::int32_t>());
    }
  }
  if (!behind_text) throw node.refuse("has no place for the text");
  before.insert(before.begin(), front.begin(), front.end());
  behind.insert(behind.end(), back.begin(), back.end());
}

}  // namespace tessera::io

// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4 (model_type "phi3"): Llama's decoder with q, k and v as one tensor, and gate and up; LongRoPE, of a
// part of each head in Phi-4-mini; a window in every layer of the models that have one.
#include "models/decoder.hpp"
#include "models/family.hpp"

namespace tessera::models {

Model make_phi3(const ConfigReader& config, DType dtype) {
  DecoderConfig c = parse_decoder(config, {.kv_heads_required = false,
                                           .norm_eps = 1e-5,
                                           .rope_types = {"default", "longrope", "su"},
                                           .partial_rope = true,
                                           .windows = WindowRule{}});
  c.fused_names = true;
  return make_decoder(c, dtype);
}

}  // namespace tessera::models

// The shared decoder put together.
#include "models/decoder.hpp"

#include "models/attention.hpp"
#include "models/block.hpp"
#include "models/embedding.hpp"
#include "models/family.hpp"
#include "models/head.hpp"
#include "models/swiglu.hpp"

namespace tessera::models {
namespace {

using Rotations = std::shared_ptr<const Rope>;

Norm make_norm(const DecoderConfig& c, const std::string& prefix, ParamList& params) {
  return Norm({.prefix = prefix, .channels = c.hidden, .eps = c.norm_eps, .kind = NormSpec::Kind::rms}, params);
}

std::unique_ptr<Sublayer> make_attention(const DecoderConfig& c, const std::string& prefix, const Rotations& rope, ParamList& params) {
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out, bool bias) {
    return LinearSpec{prefix + name, in, out, WeightOrder::out_in, bias, c.initializer_range};
  };
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  AttentionSpec spec{.heads = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .rope = rope},
                     .qkv = {linear("q_proj", c.hidden, q, c.qkv_bias), linear("k_proj", c.hidden, kv, c.qkv_bias),
                             linear("v_proj", c.hidden, kv, c.qkv_bias)},
                     .out = linear("o_proj", q, c.hidden, c.out_bias)};
  if (c.head_norms) spec.heads.norms = HeadNormSpec{prefix + "q_norm.weight", prefix + "k_norm.weight", c.norm_eps};
  return std::make_unique<Attention>(spec, params);
}

std::unique_ptr<Sublayer> make_mlp(const DecoderConfig& c, const std::string& prefix, ParamList& params) {
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
    return LinearSpec{prefix + name, in, out, WeightOrder::out_in, c.mlp_bias, c.initializer_range};
  };
  return std::make_unique<SwigluMlp>(SwigluMlpSpec{.gate = linear("gate_proj", c.hidden, c.inner),
                                                   .up = linear("up_proj", c.hidden, c.inner),
                                                   .down = linear("down_proj", c.inner, c.hidden)}, params);
}

void add_layer(const DecoderConfig& c, std::int64_t layer, const Rotations& rope, Model& m) {
  const std::string name = "layers." + std::to_string(layer), prefix = "model." + name + ".";
  ParamList params(m.params);
  const Norm norm_1 = make_norm(c, prefix + "input_layernorm", params);
  auto attention = make_attention(c, prefix + "self_attn.", rope, params);
  const Norm norm_2 = make_norm(c, prefix + "post_attention_layernorm", params);
  auto mlp = make_mlp(c, prefix + "mlp.", params);
  m.modules.push_back(std::make_unique<Block>(BlockParts{.name = name,
                                                         .channels = c.hidden,
                                                         .params = params.indices(),
                                                         .attention = Residual(norm_1, std::move(attention)),
                                                         .mlp = Residual(norm_2, std::move(mlp))}));
}

std::int64_t matmul_params(const DecoderConfig& c) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  return c.layers * (2 * c.hidden * (q + kv) + 3 * c.hidden * c.inner) + c.vocab * c.hidden;
}

}  // namespace

Model make_decoder(const DecoderConfig& c, DType dtype) {
  Model m;
  m.family = c.family;
  m.hidden = c.hidden;
  m.vocab = c.vocab;
  m.max_tokens = c.max_tokens;
  m.dtype = dtype;
  const std::string table = "model.embed_tokens.weight", head = "lm_head.weight";
  m.modules.push_back(std::make_unique<Embedding>(
      EmbeddingSpec{.tokens = table, .positions = "", .vocab = c.vocab, .channels = c.hidden, .std = c.initializer_range}, m.params));
  const auto rope = std::make_shared<const Rope>(c.rope);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) add_layer(c, layer, rope, m);
  m.modules.push_back(std::make_unique<Head>(
      HeadSpec{.norm = {.prefix = "model.norm", .channels = c.hidden, .eps = c.norm_eps, .kind = NormSpec::Kind::rms},
               .vocab = c.vocab,
               .channels = c.hidden,
               .tied_to = c.tied ? 0 : -1,
               .weight = head,
               .std = c.initializer_range},
      m.params));
  if (c.tied) m.aliases[head] = {.parts = {}, .shape = {}, .same_as = table};
  m.matmul_params = matmul_params(c);
  m.attention_width = c.layers * c.heads * c.head_dim;
  return m;
}

std::string decoder_canonical_name(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") ? "" : name;  // buffers of old files
}

}  // namespace tessera::models

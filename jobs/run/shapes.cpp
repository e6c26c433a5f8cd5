// Configs of the built-in shapes.
#include "jobs/run/shapes.hpp"

#include "runtime/base/error.hpp"

namespace tessera::jobs {

std::string shape_config(const std::string& word) {
  struct Shape {
    const char* name;
    int layers, hidden, heads, vocab, positions;
  };
  static constexpr Shape shapes[] = {{"gpt2", 12, 768, 12, 50257, 1024}, {"small", 6, 384, 6, 256, 1024}};
  for (const Shape& shape : shapes) {
    if (word != shape.name) continue;
    return strfmt(
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": %d, \"n_embd\": %d, \"n_head\": %d, "
        "\"vocab_size\": %d, \"n_positions\": %d, \"n_inner\": null, \"activation_function\": \"gelu_new\", "
        "\"layer_norm_epsilon\": 1e-05, \"initializer_range\": 0.02, \"tie_word_embeddings\": true, "
        "\"embd_pdrop\": 0.0, \"attn_pdrop\": 0.0, \"resid_pdrop\": 0.0}\n",
        shape.layers, shape.hidden, shape.heads, shape.vocab, shape.positions);
  }
  throw Error(ExitCode::usage, "no built-in shape \"" + word + "\"", "--shape", "Shapes: gpt2, small");
}

}  // namespace tessera::jobs

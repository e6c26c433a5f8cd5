// SPDX-License-Identifier: Apache-2.0
#include "jobs/cli/session/quantization.hpp"

#include "jobs/cli/session/lora.hpp"
#include "jobs/cli/session/precision.hpp"
#include "models/quantize.hpp"

namespace tessera::jobs {

namespace {

constexpr const char* of_4_bits[] = {"bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype",
                                     "bnb_4bit_quant_storage"};

/// What `bits` ("none", "4", "8") and the options of 4 bits ask for.
QuantFormat format_of(const Options& options, const std::string& bits) {
  if (bits == "none") return QuantFormat::none;
  if (bits == "8") return QuantFormat::int8;
  return four_bit_format(options.text("bnb_4bit_quant_type") == "fp4", options.flag("bnb_4bit_use_double_quant"));
}

/// As users of bitsandbytes would say it.
std::string described(QuantFormat format) {
  if (!is_4bit(format)) return name_of(format);
  return strfmt("%s %s double quantization", is_fp4(format) ? "fp4" : "nf4", is_nested(format) ? "with" : "without");
}

const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

enum class Quantized { own, reference };

/// What --NAME asks for, or what a model that came quantized has, which decides what the options leave open. Throws
/// Error (usage): the two differ.
QuantFormat agreed_format(const Options& options, const char* name, Quantized model, const std::string& config_json,
                          const std::string& source) {
  const QuantFormat asked = format_of(options, options.text(name)),
                    stored = models::quantization_of(config_json, source);
  const bool floats = asked == QuantFormat::none;
  if (stored == QuantFormat::none) return asked;
  if (floats && name == std::string_view("quant_bits")) return stored;  // its default asks for nothing
  const bool of_reference = model == Quantized::reference;
  const bool differ = floats || is_4bit(asked) != is_4bit(stored) ||
                      (options.given("bnb_4bit_quant_type") && is_fp4(asked) != is_fp4(stored)) ||
                      (options.given("bnb_4bit_use_double_quant") && is_nested(asked) != is_nested(stored));
  if (differ)
    throw options.refuse(
        name,
        strfmt("--%s and --bnb_4bit_* ask for %s, and %s is quantized to %s already", name,
               floats ? "floats" : described(asked).c_str(), source.c_str(), described(stored).c_str()),
        of_reference && (floats || is_4bit(asked) != is_4bit(stored))
            ? strfmt("Use --ref_quant_bits %s for the reference", is_4bit(stored) ? "4" : "8")
            : strfmt("Drop --%s and --bnb_4bit_*: the model's own format is used", name));
  return stored;
}

}  // namespace

void check_quantization_options(const Options& options) {
  const std::string method = options.text("quant_method"), bits = options.text("quant_bits");
  if (method == "bnb" && bits == "none")
    throw options.refuse("quant_method", "--quant_method bnb does not say how many bits", "Add --quant_bits 4, or 8");
  if (method == "none" && bits != "none")
    throw options.refuse("quant_bits", "--quant_bits has no effect without --quant_method", "Add --quant_method bnb");
  for (const char* name : of_4_bits) {
    if (options.has("ref_quant_bits") && options.text("ref_quant_bits") == "4") continue;
    if (options.given(name) && bits == "8")
      throw options.refuse(name, std::string("--") + name + " is for --quant_bits 4", "Drop it");
    if (bits == "none" && options.value(name).source.precedence == precedence::command_line)
      throw options.refuse(name, std::string("--") + name + " has no effect without --quant_bits 4",
                           "Add --quant_method bnb --quant_bits 4, or drop it");
  }
  if (const std::string type = options.text("bnb_4bit_compute_dtype"); type != "none")
    if (const std::optional<DType> compute = asked_compute(options); compute && type != torch_name(*compute))
      throw options.refuse(
          "bnb_4bit_compute_dtype",
          strfmt("--bnb_4bit_compute_dtype %s, and the run computes in %s", type.c_str(), torch_name(*compute)),
          type == "bfloat16"  ? "Add --bf16"
          : type == "float16" ? "Add --fp16"
                              : "Drop --bf16, or --bnb_4bit_compute_dtype");
}

QuantFormat quantization_of_run(const Options& options, const std::string& config_json, const std::string& source) {
  check_quantization_options(options);
  return agreed_format(options, "quant_bits", Quantized::own, config_json, source);
}

QuantFormat quantization_of_reference(const Options& options, const std::string& config_json,
                                      const std::string& source) {
  check_quantization_options(options);
  return agreed_format(options, options.has("ref_quant_bits") ? "ref_quant_bits" : "quant_bits", Quantized::reference,
                       config_json, source);
}

void quantize_base(models::Model& model, const Options& options, const std::string& config_json,
                   const std::string& source, bool trains) {
  const QuantFormat format = quantization_of_run(options, config_json, source);
  if (format == QuantFormat::none) return;
  if (trains && !trains_lora(options))
    throw Error(ExitCode::usage,
                strfmt("quantized weights (%s) are not trained, and --tuner_type is full", name_of(format)),
                "--quant_bits, --tuner_type", "Add --tuner_type lora, or train the model in bf16");
  models::quantize(model, format, config_json);
}

}  // namespace tessera::jobs

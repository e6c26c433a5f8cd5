// SPDX-License-Identifier: Apache-2.0
#pragma once
// --quant_method and its options: whether a run keeps the weights of the base model in 4 or 8 bits.

#include <string>

#include "jobs/cli/options/options.hpp"
#include "models/module.hpp"

namespace tessera::jobs {

/// Throws Error (usage) for options of quantization that contradict one another or --mixed_precision, and for those
/// that are not supported.
void check_quantization_options(const Options& options);

/// The format of a run's base weights: what the options say, or the quantization_config of a model that came quantized.
/// Throws Error (usage) as check_quantization_options, and if both do and they differ.
[[nodiscard]] QuantFormat quantization_of_run(const Options& options, const std::string& config_json,
                                              const std::string& source);

/// The same of a second reference model: --ref_quant_bits, without it --quant_bits, or what its directory has.
[[nodiscard]] QuantFormat quantization_of_reference(const Options& options, const std::string& config_json,
                                                    const std::string& source);

/// Quantizes the model (models::quantize), if the run does. `trains`: the run trains it; in full, it is refused.
void quantize_base(models::Model& model, const Options& options, const std::string& config_json,
                   const std::string& source, bool trains);

}  // namespace tessera::jobs

// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers that the codes of quantized matrices stand for, as bitsandbytes publishes them. Without other headers:
// kernels/host/isa and device code include it. The tables are each source's own: host/isa may not define symbols that
// others would share.

namespace tessera::kernels {

/// nf4 (Dettmers, Pagnoni, Holtzman, Zettlemoyer 2023, QLoRA).
constexpr float nf4_values[16] = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

/// The values of fp4's 16 codes: a sign, two bits of exponent and one of mantissa, over their largest value.
constexpr float fp4_values[16] = {
    0.0F, 0x1.555556p-8F,  0x1.555556p-1F,  1.0F,  0x1.555556p-2F,  0.5F,  0x1.555556p-3F,  0.25F,
    0.0F, -0x1.555556p-8F, -0x1.555556p-1F, -1.0F, -0x1.555556p-2F, -0.5F, -0x1.555556p-3F, -0.25F,
};
/// Its codes in the order of their values; of the two zeros first 0, as bitsandbytes sorts them.
constexpr unsigned char fp4_order[16] = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3};

/// A row's int8 code c is c · absmax · int8_step: 1/127, as bitsandbytes writes it.
inline constexpr float int8_step = 7.874015718698502e-3F;

}  // namespace tessera::kernels

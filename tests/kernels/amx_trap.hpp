#pragma once
// AMX's instructions where the CPU has none: each is an illegal instruction there, and the signal's handler carries it
// out on the model. So the object file that AMX CPUs run is run here, operand by operand. Where the CPU has them,
// nothing is trapped.

#include "amx_model.hpp"
#include "kernels/host/cpu.hpp"

#ifdef __x86_64__
#include <signal.h>
#include <ucontext.h>
#endif

namespace tessera::kernels {

#ifdef __x86_64__

/// One AMX instruction, decoded (VEX, map 0F38, 128 bits) from registers at the moment of the signal.
class AmxInstruction {
 public:
  explicit AmxInstruction(greg_t* registers)
      : registers_(registers), at_(reinterpret_cast<const std::uint8_t*>(registers[REG_RIP])) {}

  /// Carries it out and steps over it; false: it is another instruction.
  [[nodiscard]] bool run() {
    if (at_[0] != 0xc4 || (at_[1] & 0x1f) != 2 || (at_[2] & 0x84) != 0) return false;
    const int prefix = at_[2] & 3, modrm = at_[4], reg = modrm >> 3 & 7, rm = modrm & 7;
    const bool in_memory = modrm >> 6 != 3;
    enum { none = 0, f3 = 2, f2 = 3 };
    AmxModel& model = AmxModel::own();
    const Memory memory = in_memory ? operand() : Memory{};
    if (at_[3] == 0x49 && prefix == none && in_memory) model.configure(memory.address);
    else if (at_[3] == 0x49 && prefix == none && modrm == 0xc0) model.release();
    else if (at_[3] == 0x49 && prefix == f2 && !in_memory) model.zero(reg);
    else if (at_[3] == 0x4b && prefix == f2 && in_memory && rm == 4) model.load(reg, memory.address, memory.stride);
    else if (at_[3] == 0x4b && prefix == f3 && in_memory && rm == 4) model.store(reg, memory.address, memory.stride);
    else if (at_[3] == 0x5c && prefix == f3 && !in_memory) model.multiply(reg, rm, ~(at_[2] >> 3) & 15);
    else return false;
    registers_[REG_RIP] += length_;
    return true;
  }

 private:
  [[nodiscard]] std::int64_t general(int number) const {
    static constexpr int names[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return registers_[names[number]];
  }
  struct Memory {
    void* address;
    std::int64_t stride;
  };
  /// The operand in memory, its index a stride; its bytes are added to the instruction's length.
  [[nodiscard]] Memory operand() {
    const int mod = at_[4] >> 6, rm = at_[4] & 7, high_base = at_[1] & 0x20 ? 0 : 8, high_index = at_[1] & 0x40 ? 0 : 8;
    int base = rm;
    std::int64_t stride = 0;
    if (rm == 4) {
      const int sib = at_[length_++], index = (sib >> 3 & 7) | high_index;
      base = sib & 7;
      stride = index == 4 ? 0 : general(index) << (sib >> 6);
    }
    const bool no_base = mod == 0 && base == 5;
    std::int64_t displacement = 0;
    if (mod == 1) displacement = static_cast<std::int8_t>(at_[length_++]);
    if (mod == 2 || no_base) {
      std::int32_t word;
      std::memcpy(&word, at_ + length_, sizeof word);
      displacement = word, length_ += 4;
    }
    std::int64_t start = no_base ? 0 : general(base | high_base);
    if (no_base && rm == 5) start = registers_[REG_RIP] + length_;
    return {reinterpret_cast<void*>(start + displacement), stride};
  }

  greg_t* registers_;
  const std::uint8_t* at_;
  std::int64_t length_ = 5;  // prefix of three, opcode, ModRM
};

/// Traps for a scope.
class AmxTrap {
 public:
  /// The rest of the object is AVX2.
  [[nodiscard]] static bool can_run() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

  AmxTrap() : is_native_(host::amx_bf16_missing().empty()) {
    if (is_native_) return;
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
      if (!AmxInstruction(static_cast<ucontext_t*>(context)->uc_mcontext.gregs).run()) std::abort();
      ++trapped;
    };
    ::sigaction(SIGILL, &action, &before_);
  }
  ~AmxTrap() {
    if (!is_native_) ::sigaction(SIGILL, &before_, nullptr);
  }
  AmxTrap(const AmxTrap&) = delete;
  AmxTrap& operator=(const AmxTrap&) = delete;

  [[nodiscard]] bool is_native() const { return is_native_; }
  static inline thread_local std::int64_t trapped = 0;  // instructions of this thread

 private:
  bool is_native_;
  struct sigaction before_ {};
};

#ifdef TESSERA_AMX_BUILT
inline const host::PairKernel trapped_amx{.name = "amx trapped",
                                          .shape = host::tile_shape,
                                          .tile = host::amx_bf16::pair_tile,
                                          .enter = host::amx_bf16::enter,
                                          .leave = host::amx_bf16::leave};
#endif

#else
class AmxTrap {};
#endif

}  // namespace tessera::kernels

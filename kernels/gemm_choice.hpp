#pragma once
// Which of the library's algorithms products on a device take. The library's first candidate is the rule: the same
// everywhere, every run. Timing finds faster ones, but differs from run to run, and an algorithm adds in an order of
// its own: what was timed is kept as text, and bits repeat with the text. All of it is about the calling thread's
// device, and for before a run's first step.

#include <cstddef>
#include <string>

namespace tessera::kernels {

/// From now on the first call of every product is noted, with its memory. Forgets what was noted before.
void record_gemms();
/// Ends the noting. Waits; nothing else may be under way. With Timing::on, candidates are timed for each noted product
/// that no choice is known for, on the memory of its call, whose result is overwritten with whatever comes out; the
/// fastest is taken. Returns how many products were timed.
enum class Timing : unsigned char { off, on };
std::size_t finish_recording_gemms(Timing timing);

/// The choices known, timed or taken, with the library's version and the device they are for. Ends in a sum of itself.
[[nodiscard]] std::string gemm_choices();
/// Takes the algorithms of gemm_choices()'s text, also for products that have been made already. Returns how many
/// the text holds. `from` is where it is from. Throws Error (usage) if it is for another library or device, Error
/// (data) if it is no such text, was damaged, or holds an algorithm that the library refuses for a product that has
/// been made; for others the product's first call says so.
std::size_t apply_gemm_choices(const std::string& text, const std::string& from);

}  // namespace tessera::kernels

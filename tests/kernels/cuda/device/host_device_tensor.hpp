// SPDX-License-Identifier: Apache-2.0
#pragma once
// The same tensor on the host, whose kernel is the reference, and on the device. Elements are made from fp32 and read
// back as fp32.

#include <cstdlib>
#include <cstring>

#include "../../../base/cuda/needs_device.hpp"
#include "../../reference.hpp"
#include "runtime/base/cuda/memory.hpp"
#include "runtime/base/stream.hpp"

namespace tessera::kernels {

/// Whether the largest problems are left out (TESSERA_SMALL_PROBLEMS): kernels that are translated to C++ take minutes
/// for them. The sweeps labeled long, and a device, have all.
inline bool small_problems() {
  static const bool small = std::getenv("TESSERA_SMALL_PROBLEMS") != nullptr;
  return small;
}

/// A stream on the test's device for a scope; synchronizes at its end.
class DeviceStream {
 public:
  DeviceStream() : stream_("test", Stream::Mode::immediate, test_device(), Priority::normal) {}
  ~DeviceStream() { stream_.synchronize(); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  [[nodiscard]] StreamView view() const { return stream_.view(); }
  void synchronize() { stream_.synchronize(); }

 private:
  Stream stream_;
};

/// Elements of T on host and device. `shift` elements lie before the first on the device, so that it is not aligned.
template <class T>
class HostDeviceTensor {
 public:
  explicit HostDeviceTensor(std::vector<T> values, Shape shape, std::size_t shift = 0)
      : host_(std::move(values)), shape_(shape), shift_(shift) {
    EXPECT_EQ(static_cast<std::int64_t>(host_.size()), shape.numel());
    device_ = ::tessera::cuda::allocate(test_device(), (host_.size() + shift_) * sizeof(T) + 16);
    upload();
  }
  HostDeviceTensor(Shape shape, T value, std::size_t shift = 0)
      : HostDeviceTensor(std::vector<T>(static_cast<std::size_t>(shape.numel()), value), shape, shift) {}
  ~HostDeviceTensor() { ::tessera::cuda::release(test_device(), device_); }
  HostDeviceTensor(const HostDeviceTensor&) = delete;
  HostDeviceTensor& operator=(const HostDeviceTensor&) = delete;

  [[nodiscard]] TensorView on_host() { return {host_.data(), shape_}; }
  [[nodiscard]] TensorView on_device() { return {data(), dtype_of<T>::value, shape_, test_device()}; }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(device_) + shift_; }
  [[nodiscard]] std::vector<T>& host() { return host_; }
  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> values(host_.size());
    copy_now(test_device(), values.data(), data(), values.size() * sizeof(T));
    return values;
  }
  void upload() { copy_now(test_device(), data(), host_.data(), host_.size() * sizeof(T)); }

 private:
  std::vector<T> host_;
  Shape shape_;
  std::size_t shift_;
  std::byte* device_ = nullptr;
};

/// n normal numbers of T, of 65,536 different ones: large tensors are made in little time.
template <class T>
std::vector<T> normals_of(std::int64_t n, std::uint64_t seed, double spread = 1) {
  static const std::vector<double> numbers = [] {
    std::vector<double> made(std::size_t{1} << 16);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = normal(0, i);
    return made;
  }();
  std::vector<T> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) {
    // A multiplicative hash of (seed, i), Knuth, The Art of Computer Programming 6.4.
    const std::uint64_t hash = ((seed << 40) + i + 1) * 0x9e3779b97f4a7c15ULL;
    v[i] = static_cast<T>(static_cast<float>(spread * numbers[hash >> 48]));
  }
  return v;
}

/// The largest difference between device and host, over the largest magnitude.
template <class T>
double device_error(HostDeviceTensor<T>& host_device_tensor) {
  std::vector<float> host, device;
  for (const T x : host_device_tensor.host()) host.push_back(static_cast<float>(x));
  for (const T x : host_device_tensor.download()) device.push_back(static_cast<float>(x));
  return relative_error(device, host);
}

/// Bytes, for bitwise comparison.
template <class T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& v) {
  std::vector<std::uint8_t> bytes(v.size() * sizeof(T));
  if (!v.empty()) std::memcpy(bytes.data(), v.data(), bytes.size());
  return bytes;
}

/// Tolerance between host and device after several operations in fp32 and one rounding to T.
template <class T>
inline constexpr double tolerance = std::is_same_v<T, float>  ? 4e-6
                                    : std::is_same_v<T, bf16> ? 1.0 / 128
                                                              : 1.0 / 1024;

/// Scratch on the device.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes)
      : bytes_(bytes), data_(::tessera::cuda::allocate(test_device(), bytes + 256)) {
    fill_now(test_device(), data_, 0xff, bytes);
  }
  ~DeviceMemory() { ::tessera::cuda::release(test_device(), data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] TensorView view() const {
    return {data_, DType::u8, Shape{static_cast<std::int64_t>(bytes_)}, test_device()};
  }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

using ElementTypes = testing::Types<float, bf16, f16>;

}  // namespace tessera::kernels

// The bfloat16 of CUDA, for the emulator: rounds to nearest even.
#pragma once
#include <cstdint>
#include <cstring>
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) {
    uint32_t all;
    std::memcpy(&all, &x, 4);
    bits = x != x ? 0x7fc0 : static_cast<uint16_t>((all + 0x7fff + ((all >> 16) & 1)) >> 16);
  }
  explicit operator float() const {
    const uint32_t all = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &all, 4);
    return x;
  }
};

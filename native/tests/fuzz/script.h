// An input of a fuzzer, read as a script: small numbers that choose what happens next.
//
// A byte decides one thing, and most of its values decide it as an honest peer would: a random input then
// gets deep, and a mutated one stays close to the one it came from. Behind the end everything is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/event_queue.h"

namespace byteps::fuzz {

class Script {
 public:
  Script(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool more() const { return at_ < end_; }
  uint8_t byte() { return more() ? *at_++ : 0; }
  uint32_t below(uint32_t bound) { return byte() % bound; }
  bool rarely() { return byte() >= 224; }  // one time in eight
  bool seldom() { return byte() >= 250; }  // one time in forty
  uint32_t word() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return value;
  }
  // Numbers that code forgets.
  uint32_t odd_number() {
    static constexpr uint32_t kOdd[] = {0,    1,          2,          23,         24,        25,
                                        4095, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF};
    const uint8_t which = byte();
    return which < 200 ? kOdd[which % std::size(kOdd)] : word();
  }
  // Where no process has memory: at the very bottom, or no address at all.
  uint64_t bad_address() {
    const uint64_t number = odd_number();
    return number % 2 == 0 ? number % 4096 : number | uint64_t{1} << 63;
  }
  std::vector<std::byte> bytes(size_t count) {
    std::vector<std::byte> out(count);
    for (auto& each : out) each = std::byte{byte()};
    return out;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

// FUZZ_TELL=1: what the core says of an input, to understand one.
inline void tell(const Event& event) {
  static const bool wanted = std::getenv("FUZZ_TELL") != nullptr;
  if (wanted) std::cerr << name_of(event.kind) << " " << event.number << ": " << event.text << "\n";
}

// The input has shown a mistake of ours.
[[noreturn]] inline void found(const std::string& what) {
  std::cerr << "fuzz: " << what << "\n";
  std::abort();
}

inline void require(bool holds, const char* what) {
  if (!holds) found(what);
}

}  // namespace byteps::fuzz

// One key of an authenticated cipher: what is sealed with it can be opened with it, and with nothing else.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/sealed/libcrypto.h"

namespace byteps::sealed {

enum class Cipher : uint8_t { aes_256_gcm = 1, chacha20_poly1305 = 2 };

constexpr size_t kKeyBytes = 32;
constexpr size_t kTagBytes = 16;
using Key = std::array<std::byte, kKeyBytes>;

const char* name_of(Cipher cipher);
// Those that libcrypto has here, the one that this processor does best first.
std::vector<Cipher> ciphers_here();

// Not for two threads at once. Its user sees to it that a number is used once with a key.
class Aead {
 public:
  Aead(Cipher cipher, const Key& key);

  // Writes as many bytes as `plain` has, and the tag behind them. `clear` is protected, but not hidden.
  void seal(uint64_t number, std::span<const std::byte> clear, const iovec* plain, size_t count,
            std::byte* out);
  // `sealed` has the tag at its end; `plain` has room for exactly what it holds. False: this was not sealed
  // with this key, number and `clear`, and what was written to `plain` is worth nothing.
  bool open(uint64_t number, std::span<const std::byte> clear, std::span<const std::byte> sealed,
            const iovec* plain, size_t count);

  // Another key takes its place, in the same way at both ends; from that one nobody gets back to this one.
  void next_key();

 private:
  struct Free {
    void operator()(Libcrypto::CipherContext* context) const { libcrypto().context_free(context); }
  };
  using Context = std::unique_ptr<Libcrypto::CipherContext, Free>;

  void use(const Key& key);

  const Libcrypto& crypto_;
  const Cipher cipher_;
  Context sealing_, opening_;
};

}  // namespace byteps::sealed

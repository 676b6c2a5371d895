#include "transport/sealed/aead.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace byteps::sealed {
namespace {

// EVP_CTRL_AEAD_GET_TAG and its companion; part of the stable interface.
constexpr int kGetTag = 0x10, kSetTag = 0x11;
// No record has this number: the next key is made with it.
constexpr uint64_t kNextKey = UINT64_MAX;

using Nonce = std::array<unsigned char, 12>;

Nonce nonce_of(uint64_t number) {
  Nonce nonce{};
  for (size_t i = 0; i < 8; ++i) nonce[4 + i] = static_cast<unsigned char>(number >> (8 * i));
  return nonce;
}

const unsigned char* in(const void* bytes) { return static_cast<const unsigned char*>(bytes); }
unsigned char* out_of(void* bytes) { return static_cast<unsigned char*>(bytes); }

[[noreturn]] void fail(const Libcrypto& crypto, const char* what) {
  crypto.clear_errors();
  throw std::runtime_error(std::string("libcrypto failed at ") + what);
}

const Libcrypto::CipherKind* kind_of(Cipher cipher) {
  return cipher == Cipher::aes_256_gcm ? libcrypto().aes_256_gcm() : libcrypto().chacha20_poly1305();
}

bool processor_has_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
  constexpr unsigned long kAes = 1 << 3;  // HWCAP_AES
  return getauxval(AT_HWCAP) & kAes;
#else
  return false;
#endif
}

}  // namespace

const char* name_of(Cipher cipher) {
  return cipher == Cipher::aes_256_gcm ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

std::vector<Cipher> ciphers_here() {
  std::vector<Cipher> order{Cipher::aes_256_gcm, Cipher::chacha20_poly1305};
  if (!processor_has_aes()) std::swap(order[0], order[1]);
  std::vector<Cipher> found;
  for (const Cipher cipher : order) {
    try {
      Aead(cipher, Key{});
      found.push_back(cipher);
    } catch (const std::runtime_error&) {  // a libcrypto that may not do it, as some are built
    }
  }
  return found;
}

Aead::Aead(Cipher cipher, const Key& key) : crypto_(libcrypto()), cipher_(cipher) {
  sealing_.reset(crypto_.context_new());
  opening_.reset(crypto_.context_new());
  if (!sealing_ || !opening_) throw std::bad_alloc();
  if (crypto_.encrypt_init(sealing_.get(), kind_of(cipher), nullptr, nullptr, nullptr) != 1 ||
      crypto_.decrypt_init(opening_.get(), kind_of(cipher), nullptr, nullptr, nullptr) != 1) {
    fail(crypto_, name_of(cipher));
  }
  use(key);
}

void Aead::use(const Key& key) {
  if (crypto_.encrypt_init(sealing_.get(), nullptr, nullptr, in(key.data()), nullptr) != 1 ||
      crypto_.decrypt_init(opening_.get(), nullptr, nullptr, in(key.data()), nullptr) != 1) {
    fail(crypto_, "setting a key");
  }
}

void Aead::seal(uint64_t number, std::span<const std::byte> clear, const iovec* plain, size_t count,
                std::byte* out) {
  const Nonce nonce = nonce_of(number);
  int n = 0;
  auto* context = sealing_.get();
  bool good = crypto_.encrypt_init(context, nullptr, nullptr, nullptr, nonce.data()) == 1;
  if (!clear.empty()) {
    good &=
        crypto_.encrypt_update(context, nullptr, &n, in(clear.data()), static_cast<int>(clear.size())) == 1;
  }
  for (size_t i = 0; i < count && good; ++i) {
    if (plain[i].iov_len == 0) continue;
    good = crypto_.encrypt_update(context, out_of(out), &n, in(plain[i].iov_base),
                                  static_cast<int>(plain[i].iov_len)) == 1;
    out += plain[i].iov_len;
  }
  unsigned char none[16];
  good = good && crypto_.encrypt_final(context, none, &n) == 1 &&
         crypto_.context_control(context, kGetTag, kTagBytes, out) == 1;
  if (!good) fail(crypto_, "sealing");
}

bool Aead::open(uint64_t number, std::span<const std::byte> clear, std::span<const std::byte> sealed,
                const iovec* plain, size_t count) {
  if (sealed.size() < kTagBytes) return false;
  const Nonce nonce = nonce_of(number);
  int n = 0;
  auto* context = opening_.get();
  bool good = crypto_.decrypt_init(context, nullptr, nullptr, nullptr, nonce.data()) == 1;
  if (!clear.empty()) {
    good &=
        crypto_.decrypt_update(context, nullptr, &n, in(clear.data()), static_cast<int>(clear.size())) == 1;
  }
  const std::byte* from = sealed.data();
  for (size_t i = 0; i < count && good; ++i) {
    if (plain[i].iov_len == 0) continue;
    good = crypto_.decrypt_update(context, out_of(plain[i].iov_base), &n, in(from),
                                  static_cast<int>(plain[i].iov_len)) == 1;
    from += plain[i].iov_len;
  }
  auto* tag = const_cast<std::byte*>(sealed.data() + sealed.size() - kTagBytes);
  unsigned char none[16];
  good = good && from == tag && crypto_.context_control(context, kSetTag, kTagBytes, tag) == 1 &&
         crypto_.decrypt_final(context, none, &n) == 1;
  if (!good) crypto_.clear_errors();
  return good;
}

// What the cipher makes of zeros with a number that is used for nothing else: the way of the Noise protocols.
void Aead::next_key() {
  Key zeros{};
  std::array<std::byte, kKeyBytes + kTagBytes> made;
  const iovec plain{zeros.data(), zeros.size()};
  seal(kNextKey, {}, &plain, 1, made.data());
  Key key;
  std::memcpy(key.data(), made.data(), key.size());
  use(key);
  crypto_.cleanse(key.data(), key.size());
  crypto_.cleanse(made.data(), made.size());
}

}  // namespace byteps::sealed

#include "transport/sealed/x25519.h"

#include <memory>

namespace byteps::sealed {
namespace {

constexpr int kX25519 = 1034;  // EVP_PKEY_X25519, a number of OpenSSL's registry of objects

struct Free {
  void operator()(Libcrypto::Key* key) const { libcrypto().key_free(key); }
  void operator()(Libcrypto::KeyContext* context) const { libcrypto().derive_free(context); }
};
using KeyRef = std::unique_ptr<Libcrypto::Key, Free>;

const unsigned char* bytes(const Key& key) { return reinterpret_cast<const unsigned char*>(key.data()); }

std::optional<Key> checked(bool good, size_t size, const Key& made) {
  if (good && size == kKeyBytes) return made;
  libcrypto().clear_errors();
  return {};
}

}  // namespace

std::optional<Key> x25519_public(const Key& own_private) {
  const KeyRef own(libcrypto().private_key(kX25519, nullptr, bytes(own_private), kKeyBytes));
  Key made;
  size_t size = made.size();
  const bool good =
      own && libcrypto().public_bytes(own.get(), reinterpret_cast<unsigned char*>(made.data()), &size) == 1;
  return checked(good, size, made);
}

std::optional<Key> x25519_shared(const Key& own_private, const Key& their_public) {
  const Libcrypto& crypto = libcrypto();
  const KeyRef own(crypto.private_key(kX25519, nullptr, bytes(own_private), kKeyBytes));
  const KeyRef peer(crypto.public_key(kX25519, nullptr, bytes(their_public), kKeyBytes));
  Key made;
  size_t size = made.size();
  bool good = false;
  if (own && peer) {
    const std::unique_ptr<Libcrypto::KeyContext, Free> context(crypto.derive_new(own.get(), nullptr));
    good = context && crypto.derive_init(context.get()) == 1 &&
           crypto.derive_peer(context.get(), peer.get()) == 1 &&
           crypto.derive(context.get(), reinterpret_cast<unsigned char*>(made.data()), &size) == 1;
  }
  return checked(good, size, made);
}

}  // namespace byteps::sealed

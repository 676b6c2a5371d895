#include "transport/sealed/libcrypto.h"

#include <dlfcn.h>

#include <stdexcept>

namespace byteps::sealed {
namespace {

constexpr const char* kNames[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
constexpr unsigned long kOldest = 0x10101000UL;  // 1.1.1: the first with X25519 as raw bytes
constexpr const char* kRemedy =
    "install OpenSSL 3 (Debian, Ubuntu: apt install libssl3; Fedora: dnf install openssl-libs), or do "
    "without "
    "encryption: BYTEPS_ENCRYPT=0";

void* open_library() {
  std::string why;
  for (const char* name : kNames) {
    if (void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    const char* reason = ::dlerror();
    why += (why.empty() ? "" : "; ") + std::string(reason ? reason : name);
  }
  throw std::runtime_error("OpenSSL's libcrypto cannot be loaded (" + why + "); " + kRemedy);
}

template <class Function>
void find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (!function) throw std::runtime_error(std::string("libcrypto has no ") + name + "; " + kRemedy);
}

Libcrypto load() {
  void* library = open_library();  // for as long as the process lives
  Libcrypto found{};
  find(library, found.version_number, "OpenSSL_version_num");
  find(library, found.version_text, "OpenSSL_version");
  if (found.version_number() < kOldest) {
    throw std::runtime_error(std::string(found.version_text(0)) + " is too old; " + kRemedy);
  }
  find(library, found.aes_256_gcm, "EVP_aes_256_gcm");
  find(library, found.chacha20_poly1305, "EVP_chacha20_poly1305");
  find(library, found.context_new, "EVP_CIPHER_CTX_new");
  find(library, found.context_free, "EVP_CIPHER_CTX_free");
  find(library, found.context_control, "EVP_CIPHER_CTX_ctrl");
  find(library, found.encrypt_init, "EVP_EncryptInit_ex");
  find(library, found.encrypt_update, "EVP_EncryptUpdate");
  find(library, found.encrypt_final, "EVP_EncryptFinal_ex");
  find(library, found.decrypt_init, "EVP_DecryptInit_ex");
  find(library, found.decrypt_update, "EVP_DecryptUpdate");
  find(library, found.decrypt_final, "EVP_DecryptFinal_ex");
  find(library, found.private_key, "EVP_PKEY_new_raw_private_key");
  find(library, found.public_key, "EVP_PKEY_new_raw_public_key");
  find(library, found.public_bytes, "EVP_PKEY_get_raw_public_key");
  find(library, found.key_free, "EVP_PKEY_free");
  find(library, found.derive_new, "EVP_PKEY_CTX_new");
  find(library, found.derive_free, "EVP_PKEY_CTX_free");
  find(library, found.derive_init, "EVP_PKEY_derive_init");
  find(library, found.derive_peer, "EVP_PKEY_derive_set_peer");
  find(library, found.derive, "EVP_PKEY_derive");
  find(library, found.clear_errors, "ERR_clear_error");
  find(library, found.cleanse, "OPENSSL_cleanse");
  return found;
}

}  // namespace

const Libcrypto& libcrypto() {
  static const Libcrypto loaded = load();
  return loaded;
}

std::string libcrypto_version() { return libcrypto().version_text(0); }

}  // namespace byteps::sealed

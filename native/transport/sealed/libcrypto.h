// OpenSSL's libcrypto, found at run time: whoever does not encrypt needs none of it, and no header of it is
// needed to build.
//
// Only names of its EVP interface that are the same in versions 1.1.1 and 3 are used. The types are opaque
// here.
#pragma once

#include <cstddef>
#include <string>

namespace byteps::sealed {

struct Libcrypto {
  struct CipherContext;
  struct CipherKind;
  struct KeyContext;
  struct Key;

  unsigned long (*version_number)();
  const char* (*version_text)(int);
  const CipherKind* (*aes_256_gcm)();
  const CipherKind* (*chacha20_poly1305)();
  CipherContext* (*context_new)();
  void (*context_free)(CipherContext*);
  int (*context_control)(CipherContext*, int, int, void*);
  int (*encrypt_init)(CipherContext*, const CipherKind*, void*, const unsigned char*, const unsigned char*);
  int (*encrypt_update)(CipherContext*, unsigned char*, int*, const unsigned char*, int);
  int (*encrypt_final)(CipherContext*, unsigned char*, int*);
  int (*decrypt_init)(CipherContext*, const CipherKind*, void*, const unsigned char*, const unsigned char*);
  int (*decrypt_update)(CipherContext*, unsigned char*, int*, const unsigned char*, int);
  int (*decrypt_final)(CipherContext*, unsigned char*, int*);
  Key* (*private_key)(int, void*, const unsigned char*, size_t);
  Key* (*public_key)(int, void*, const unsigned char*, size_t);
  int (*public_bytes)(const Key*, unsigned char*, size_t*);
  void (*key_free)(Key*);
  KeyContext* (*derive_new)(Key*, void*);
  void (*derive_free)(KeyContext*);
  int (*derive_init)(KeyContext*);
  int (*derive_peer)(KeyContext*, Key*);
  int (*derive)(KeyContext*, unsigned char*, size_t*);
  void (*clear_errors)();
  void (*cleanse)(void*, size_t);
};

// Loaded once. Throws std::runtime_error that says what is missing and how to mend it.
const Libcrypto& libcrypto();
// Its version in its own words.
std::string libcrypto_version();

}  // namespace byteps::sealed

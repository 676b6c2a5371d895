// How long the cipher itself takes: the same libcrypto, cipher and length of records as a sealed connection.
#pragma once

#include <cstddef>

#include "transport/sealed/aead.h"

namespace byteps::bench {

struct CipherSeconds {  // of this thread's processor
  double sealing, opening;
};

// Memory to memory, for this many bytes in whole records. It stays in the caches, as that of `openssl speed`.
CipherSeconds cipher_seconds(sealed::Cipher cipher, size_t bytes);

}  // namespace byteps::bench

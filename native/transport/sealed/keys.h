// What two ends have agreed on in their handshake, as one of them sees it.
#pragma once

#include "transport/sealed/aead.h"

namespace byteps::sealed {

struct SessionKeys {
  Cipher cipher;
  Key sending, receiving;
};

}  // namespace byteps::sealed

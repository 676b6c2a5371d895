#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "python/bind.h"
#include "transport/sealed/keys.h"
#include "transport/sealed/record_reader.h"
#include "transport/sealed/sealer.h"
#include "transport/sealed/x25519.h"

namespace nb = nanobind;

namespace byteps {
namespace {

using namespace sealed;

Key key_of(const nb::bytes& bytes) {
  if (bytes.size() != kKeyBytes) throw nb::value_error("a key has 32 bytes");
  Key key;
  std::memcpy(key.data(), bytes.c_str(), key.size());
  return key;
}

nb::bytes bytes_of(const std::optional<Key>& key) {
  return key ? nb::bytes(reinterpret_cast<const char*>(key->data()), key->size()) : nb::bytes("", 0);
}

Cipher cipher_of(const std::string& name) {
  for (const Cipher cipher : {Cipher::aes_256_gcm, Cipher::chacha20_poly1305}) {
    if (name == name_of(cipher)) return cipher;
  }
  throw nb::value_error(("unknown cipher: " + name).c_str());
}

// As many records as it takes.
nb::bytes seal(Sealer& sealer, const nb::bytes& data) {
  const size_t records = std::max<size_t>(1, (data.size() + kRecordBytes - 1) / kRecordBytes);
  std::string out(data.size() + records * kRecordExtraBytes, '\0');
  auto* to = reinterpret_cast<std::byte*>(out.data());
  for (size_t at = 0; at < data.size() || at == 0;) {
    const size_t length = std::min(kRecordBytes, data.size() - at);
    const iovec window{const_cast<char*>(data.c_str()) + at, length};
    sealer.seal(&window, 1, length, to);
    to += length + kRecordExtraBytes;
    at += std::max<size_t>(length, 1);
  }
  return nb::bytes(out.data(), out.size());
}

// What can be opened of all that has come.
nb::bytes feed(RecordReader& reader, const nb::bytes& data) {
  std::string out;
  for (size_t at = 0; at < data.size();) {
    const auto room = reader.room();
    if (room.empty()) break;
    const size_t n = std::min(room.size(), data.size() - at);
    std::memcpy(room.data(), data.c_str() + at, n);
    reader.received(n);
    at += n;
    while (reader.state() == RecordReader::State::record) {
      const size_t before = out.size();
      out.resize(before + reader.length());
      const iovec window{out.data() + before, reader.length()};
      if (!reader.open(&window, 1)) out.resize(before);
    }
  }
  if (reader.state() == RecordReader::State::broken) throw WireError(reader.reason());
  return nb::bytes(out.data(), out.size());
}

}  // namespace

void bind_sealed(nb::module_& m) {
  m.def("libcrypto_version", &libcrypto_version);
  m.def("ciphers", [] {
    std::vector<std::string> names;
    for (const Cipher cipher : ciphers_here()) names.emplace_back(name_of(cipher));
    return names;
  });
  m.def(
      "x25519_public", [](const nb::bytes& own) { return bytes_of(x25519_public(key_of(own))); },
      nb::arg("own_private"));
  m.def(
      "x25519_shared",
      [](const nb::bytes& own, const nb::bytes& theirs) {
        return bytes_of(x25519_shared(key_of(own), key_of(theirs)));
      },
      nb::arg("own_private"), nb::arg("their_public"));
  nb::class_<SessionKeys>(m, "SessionKeys")
      .def(
          "__init__",
          [](SessionKeys* self, const std::string& cipher, const nb::bytes& sending,
             const nb::bytes& receiving) {
            new (self) SessionKeys{cipher_of(cipher), key_of(sending), key_of(receiving)};
          },
          nb::arg("cipher"), nb::arg("sending"), nb::arg("receiving"))
      .def_prop_ro("cipher", [](const SessionKeys& keys) { return std::string(name_of(keys.cipher)); });
  nb::class_<Sealer>(m, "Sealer")
      .def(
          "__init__",
          [](Sealer* self, const SessionKeys& keys) { new (self) Sealer(keys.cipher, keys.sending); },
          nb::arg("keys"))
      .def("seal", &seal, nb::arg("data"));
  nb::class_<RecordReader>(m, "Opener")
      .def(
          "__init__",
          [](RecordReader* self, const SessionKeys& keys) {
            new (self) RecordReader(keys.cipher, keys.receiving, keys.sending);
          },
          nb::arg("keys"))
      .def("feed", &feed, nb::arg("data"))
      .def_prop_ro("at_boundary", &RecordReader::at_boundary);
}

}  // namespace byteps

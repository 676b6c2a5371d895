// The example records of protocol/vectors/sealed/ are what this code writes and reads.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/check.h"
#include "transport/sealed/record_reader.h"
#include "transport/sealed/sealer.h"
#include "transport/sealed/x25519.h"

using namespace byteps::sealed;

namespace {

using Bytes = std::vector<std::byte>;
using Fields = std::map<std::string, std::string>;

Fields fields_of(const std::string& name) {
  Fields fields;
  std::ifstream in(std::filesystem::path(BYTEPS_VECTORS) / "sealed" / name);
  for (std::string line; std::getline(in, line);) {
    const auto equals = line.find(" = ");
    if (line[0] != '#' && equals != std::string::npos)
      fields[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return fields;
}

Bytes from_hex(const std::string& hex) {
  Bytes out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(std::byte(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return out;
}

Key key_from(const std::string& hex) {
  const Bytes bytes = from_hex(hex);
  Key key{};
  CHECK_EQ(bytes.size(), key.size());
  std::memcpy(key.data(), bytes.data(), std::min(bytes.size(), key.size()));
  return key;
}

}  // namespace

TEST(golden_records) {
  for (const char* name : {"record_aes.txt", "record_chacha.txt"}) {
    const Fields fields = fields_of(name);
    const Cipher cipher =
        fields.at("cipher") == "AES-256-GCM" ? Cipher::aes_256_gcm : Cipher::chacha20_poly1305;
    const Key key = key_from(fields.at("key"));
    Sealer sealer(cipher, key);
    RecordReader reader(cipher, key, Key{});
    for (const char* which : {"first", "second"}) {
      const Bytes plain = from_hex(fields.at(std::string("plain_") + which)),
                  record = from_hex(fields.at(which));
      Bytes made(plain.size() + kRecordExtraBytes);
      const iovec window{const_cast<std::byte*>(plain.data()), plain.size()};
      sealer.seal(&window, 1, plain.size(), made.data());
      CHECK(made == record);
      std::memcpy(reader.room().data(), record.data(), record.size());
      reader.received(record.size());
      CHECK(reader.state() == RecordReader::State::record);
      Bytes opened(plain.size());
      const iovec into{opened.data(), opened.size()};
      CHECK(reader.open(&into, 1));
      CHECK(opened == plain);
    }
  }
}

TEST(golden_secret_of_two) {
  const Fields fields = fields_of("keys.txt");
  const Key caller = key_from(fields.at("caller_private")),
            acceptor = key_from(fields.at("acceptor_private"));
  CHECK(x25519_public(caller) == key_from(fields.at("caller_public")));
  CHECK(x25519_public(acceptor) == key_from(fields.at("acceptor_public")));
  CHECK(x25519_shared(caller, key_from(fields.at("acceptor_public"))) == key_from(fields.at("shared")));
  CHECK(x25519_shared(acceptor, key_from(fields.at("caller_public"))) == key_from(fields.at("shared")));
}

// The example frames of protocol/vectors/ are what this code writes and reads.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/crc32c.h"
#include "tests/check.h"
#include "wire/header.h"

using namespace byteps;

namespace {

std::map<std::string, std::string> fields_of(const std::filesystem::path& path) {
  std::map<std::string, std::string> fields;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const auto equals = line.find(" = ");
    if (line[0] != '#' && equals != std::string::npos)
      fields[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return fields;
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(std::byte(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return out;
}

}  // namespace

TEST(golden_frames) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BYTEPS_VECTORS)) {
    if (entry.is_directory()) continue;  // sealed/: test_sealed_vectors.cc
    auto f = fields_of(entry.path());
    auto number = [&](const char* name) { return std::stoll(f.at(name)); };
    Header header;
    header.type = static_cast<FrameType>(number("type"));
    header.flags = static_cast<uint16_t>(number("flags"));
    header.job = std::stoull(f.at("job"));
    header.epoch = static_cast<uint32_t>(number("epoch"));
    header.sender = static_cast<uint16_t>(number("sender"));
    header.dtype = static_cast<uint8_t>(number("dtype"));
    header.codec = static_cast<uint8_t>(number("codec"));
    header.key = std::stoull(f.at("key"));
    header.round = static_cast<uint32_t>(number("round"));
    header.length = static_cast<uint32_t>(number("length"));
    header.priority = static_cast<int32_t>(number("priority"));
    header.received = std::stoull(f.at("received"));
    header.detail = static_cast<uint32_t>(number("detail"));
    const auto payload = from_hex(f["payload"]);
    if (header.flags & kFlagChecksum) header.payload_crc = crc32c(payload.data(), payload.size());
    seal(header);
    const auto frame = from_hex(f.at("frame"));
    CHECK_EQ(frame.size(), kHeaderBytes + payload.size());
    CHECK(std::memcmp(frame.data(), &header, kHeaderBytes) == 0);
    CHECK_EQ(invalid(decode_header(HeaderBytes(frame.data(), kHeaderBytes), header.job), header.job),
             std::string());
    ++seen;
  }
  CHECK(seen >= 10);
}

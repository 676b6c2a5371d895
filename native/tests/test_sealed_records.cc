// Records of a sealed connection: what is done to them on the way is found out, and told by its name.
#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "tests/check.h"
#include "transport/sealed/record_reader.h"
#include "transport/sealed/sealer.h"
#include "transport/sealed/x25519.h"

using namespace byteps::sealed;

namespace {

using Bytes = std::vector<std::byte>;

Key key_of(int number) {
  Key key{};
  key[0] = static_cast<std::byte>(number);
  return key;
}

Bytes text(size_t bytes, int seed) {
  Bytes made(bytes);
  std::minstd_rand random(static_cast<unsigned>(seed) + 1);
  for (auto& byte : made) byte = static_cast<std::byte>(random() >> 7);
  return made;
}

Bytes sealed(Sealer& sealer, const Bytes& plain) {
  Bytes out(plain.size() + kRecordExtraBytes);
  const iovec window{const_cast<std::byte*>(plain.data()), plain.size()};
  sealer.seal(&window, 1, plain.size(), out.data());
  return out;
}

void feed(RecordReader& reader, const Bytes& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const auto room = reader.room();
    if (room.empty()) return;
    const size_t n = std::min(room.size(), bytes.size() - at);
    std::memcpy(room.data(), bytes.data() + at, n);
    reader.received(n);
    at += n;
  }
}

// Everything that comes out, until there is no whole record.
Bytes opened(RecordReader& reader) {
  Bytes all;
  while (reader.state() == RecordReader::State::record) {
    Bytes plain(reader.length());
    const iovec window{plain.data(), plain.size()};
    if (!reader.open(&window, 1)) break;
    all.insert(all.end(), plain.begin(), plain.end());
  }
  return all;
}

struct Two {  // a sends to b, and b to a
  explicit Two(Cipher cipher, uint64_t per_key = kRecordsPerKey)
      : a_sends(cipher, key_of(1), per_key),
        b_sends(cipher, key_of(2), per_key),
        a_reads(cipher, key_of(2), key_of(1), per_key),
        b_reads(cipher, key_of(1), key_of(2), per_key) {}
  Sealer a_sends, b_sends;
  RecordReader a_reads, b_reads;
};

void check_broken(const RecordReader& reader, const std::string& word) {
  CHECK(reader.state() == RecordReader::State::broken);
  CHECK(reader.reason().starts_with(word));
  if (!reader.reason().starts_with(word)) std::cerr << reader.reason() << "\n";
}

constexpr Cipher kBoth[] = {Cipher::aes_256_gcm, Cipher::chacha20_poly1305};

}  // namespace

TEST(what_is_sealed_is_opened_however_it_is_cut) {
  for (const Cipher cipher : kBoth) {
    Two two(cipher);
    Bytes all, stream;
    std::minstd_rand random(5);
    for (int i = 0; i < 200; ++i) {
      const Bytes plain = text(1 + random() % (i % 10 == 0 ? kRecordBytes : 300), i);
      all.insert(all.end(), plain.begin(), plain.end());
      const Bytes record = sealed(two.a_sends, plain);
      stream.insert(stream.end(), record.begin(), record.end());
    }
    Bytes got;
    for (size_t at = 0; at < stream.size();) {
      const size_t n = std::min<size_t>(1 + random() % 5000, stream.size() - at);
      feed(two.b_reads,
           Bytes(stream.begin() + static_cast<long>(at), stream.begin() + static_cast<long>(at + n)));
      const Bytes some = opened(two.b_reads);
      got.insert(got.end(), some.begin(), some.end());
      at += n;
    }
    CHECK(got == all);
    CHECK(two.b_reads.at_boundary());
  }
}

TEST(nothing_of_the_text_is_in_a_record) {
  for (const Cipher cipher : kBoth) {
    Sealer sealer(cipher, key_of(1));
    const Bytes plain(4096, std::byte{0x41});
    const Bytes one = sealed(sealer, plain), two = sealed(sealer, plain);
    CHECK(!std::equal(one.begin() + kRecordHeaderBytes, one.end(), two.begin() + kRecordHeaderBytes));
    const Bytes eight(8, std::byte{0x41});
    CHECK(std::search(one.begin(), one.end(), eight.begin(), eight.end()) == one.end());
  }
}

TEST(every_bit_that_changes_is_found_out) {
  for (const Cipher cipher : kBoth) {
    Sealer sealer(cipher, key_of(1));
    const Bytes record = sealed(sealer, text(40, 1));
    for (size_t bit = 0; bit < 8 * record.size(); ++bit) {
      Bytes changed = record;
      changed[bit / 8] ^= std::byte(1 << (bit % 8));
      RecordReader reader(cipher, key_of(1), key_of(2));
      feed(reader, changed);
      CHECK(opened(reader).empty());
      check_broken(reader, "changed on the way");
    }
  }
}

TEST(a_record_that_comes_twice_is_replayed) {
  for (const Cipher cipher : kBoth) {
    Two two(cipher);
    const Bytes first = sealed(two.a_sends, text(100, 1)), second = sealed(two.a_sends, text(100, 2));
    for (const Bytes& record : {first, second, first}) feed(two.b_reads, record);
    CHECK_EQ(opened(two.b_reads).size(), 200u);
    check_broken(two.b_reads, "replayed: record 0");
    feed(two.b_reads, sealed(two.a_sends, text(10, 3)));  // nothing makes it whole again
    check_broken(two.b_reads, "replayed: record 0");
  }
}

TEST(records_that_change_places_or_are_missing) {
  for (const Cipher cipher : kBoth) {
    Two two(cipher);
    const Bytes first = sealed(two.a_sends, text(100, 1)), second = sealed(two.a_sends, text(50, 2));
    feed(two.b_reads, second);
    feed(two.b_reads, first);
    CHECK(opened(two.b_reads).empty());
    check_broken(two.b_reads, "reordered or dropped");
  }
}

TEST(own_records_that_come_back_are_reflected) {
  for (const Cipher cipher : kBoth) {
    for (const bool later : {false, true}) {
      Two two(cipher);
      if (later) feed(two.a_reads, sealed(two.b_sends, text(10, 1)));
      opened(two.a_reads);
      feed(two.a_reads, sealed(two.a_sends, text(100, 1)));
      CHECK(opened(two.a_reads).empty());
      check_broken(two.a_reads, "reflected: record 0");
    }
  }
}

TEST(a_number_that_was_written_over_does_not_help) {
  Two two(Cipher::aes_256_gcm);
  Bytes first = sealed(two.a_sends, text(100, 1));
  Bytes second = sealed(two.a_sends, text(100, 2));
  feed(two.b_reads, first);
  std::memcpy(second.data() + kRecordHeaderBytes, first.data() + kRecordHeaderBytes, 116);
  CHECK_EQ(opened(two.b_reads).size(), 100u);
  feed(two.b_reads, second);  // the old bytes under the new header
  CHECK(opened(two.b_reads).empty());
  check_broken(two.b_reads, "changed on the way");
}

TEST(a_goodbye_is_the_last_record) {
  for (const bool more : {false, true}) {
    Two two(Cipher::aes_256_gcm);
    feed(two.b_reads, sealed(two.a_sends, text(100, 1)));
    Bytes end = sealed(two.a_sends, {});
    if (more) end.push_back(std::byte{7});
    CHECK_EQ(opened(two.b_reads).size(), 100u);
    feed(two.b_reads, end);
    if (more) {
      check_broken(two.b_reads, "changed on the way");
    } else {
      CHECK(two.b_reads.state() == RecordReader::State::goodbye);
      CHECK(two.b_reads.room().empty());
    }
  }
}

TEST(a_wrong_length_is_not_waited_for) {
  Sealer sealer(Cipher::aes_256_gcm, key_of(1));
  Bytes record = sealed(sealer, text(100, 1));
  record[9] = std::byte{0x70};  // 28 KiB more, which will never come
  RecordReader reader(Cipher::aes_256_gcm, key_of(1), key_of(2));
  feed(reader, record);
  check_broken(reader, "changed on the way");
}

// A number is used once with a key, whatever the keys do; and both ends change them at the same record.
TEST(keys_follow_each_other_and_numbers_never_come_back) {
  for (const Cipher cipher : kBoth) {
    Two two(cipher, 7);
    std::set<Bytes> seen;  // with one key and one number, the same text would make the same bytes
    std::set<uint64_t> numbers;
    const Bytes plain = text(64, 1);
    for (int i = 0; i < 1000; ++i) {
      const Bytes record = sealed(two.a_sends, plain);
      RecordHeader header;
      std::memcpy(&header, record.data(), sizeof header);
      CHECK(numbers.insert(header.number).second);
      CHECK(seen.insert(Bytes(record.begin() + kRecordHeaderBytes, record.end())).second);
      feed(two.b_reads, record);
      CHECK(opened(two.b_reads) == plain);
    }
    CHECK_EQ(two.b_reads.opened(), 1000u);
  }
  // Another key after the seventh record, indeed.
  Sealer often(Cipher::aes_256_gcm, key_of(1), 7), seldom(Cipher::aes_256_gcm, key_of(1), 1000);
  for (int i = 0; i < 14; ++i) CHECK_EQ(sealed(often, text(10, 1)) == sealed(seldom, text(10, 1)), i < 7);
}

// Random mischief: what comes out is always the beginning of what was sent.
TEST(mischief_never_changes_what_comes_out) {
  const unsigned first_seed = 1;
  for (unsigned seed = first_seed; seed < first_seed + 2000; ++seed) {
    std::mt19937 random(seed);
    Two two(random() % 2 ? Cipher::aes_256_gcm : Cipher::chacha20_poly1305, 1 + random() % 5);
    Bytes all, stream;
    for (unsigned i = 0, count = 1 + random() % 8; i < count; ++i) {
      const Bytes plain = text(1 + random() % 200, static_cast<int>(i));
      all.insert(all.end(), plain.begin(), plain.end());
      const Bytes record = sealed(two.a_sends, plain);
      stream.insert(stream.end(), record.begin(), record.end());
    }
    const Bytes sent = stream;
    const size_t at = random() % stream.size(), to = random() % stream.size();
    const size_t n = 1 + random() % (stream.size() - at);
    const auto begin = stream.begin() + static_cast<long>(at), end = begin + static_cast<long>(n);
    switch (random() % 4) {
      case 0:
        *begin ^= std::byte(1 + random() % 255);
        break;
      case 1:
        stream.erase(begin, end);
        break;
      case 2:
        stream.insert(stream.begin() + static_cast<long>(to), sent.begin() + static_cast<long>(at),
                      sent.begin() + static_cast<long>(at + n));
        break;
      default:
        std::swap(stream[at], stream[to]);
    }
    feed(two.b_reads, stream);
    const Bytes got = opened(two.b_reads);
    const bool prefix = got.size() <= all.size() && std::equal(got.begin(), got.end(), all.begin());
    CHECK(prefix);
    if (!prefix) std::cerr << "seed " << seed << "\n";
    // Changed bytes are found out, unless they are the end, which is then missing.
    if (stream != sent) {
      CHECK(got.size() < all.size() || two.b_reads.state() == RecordReader::State::broken ||
            !two.b_reads.at_boundary());
    }
  }
}

TEST(both_ends_make_the_same_secret) {
  const Key a = key_of(8), b = key_of(16);
  const auto a_public = x25519_public(a), b_public = x25519_public(b);
  CHECK(a_public && b_public);
  if (!a_public || !b_public) return;
  CHECK(*a_public != *b_public);
  const auto one = x25519_shared(a, *b_public), other = x25519_shared(b, *a_public);
  CHECK(one && other && *one == *other);
  CHECK(!x25519_shared(a, Key{}));  // a point that makes the same of every secret
}

// Takes the records of one direction apart, without touching a socket.
//
// The owner puts bytes into room(), says received(n), and asks state() what is there. Everything that does
// not fit ends the direction for good, with a reason that says what was done to it on its way.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/sealed/aead.h"
#include "transport/sealed/record.h"

namespace byteps::sealed {

class RecordReader {
 public:
  enum class State {
    partial,  // more bytes are needed
    record,   // open() is next
    goodbye,  // the other end has closed, and nothing follows
    broken,   // reason() says why
  };

  // `own_key` is that of the other direction: it tells when our own records come back.
  RecordReader(Cipher cipher, const Key& key, const Key& own_key, uint64_t records_per_key = kRecordsPerKey)
      : aead_(cipher, key), own_(cipher, own_key), records_per_key_(records_per_key) {}

  // Where the next bytes go; never empty unless the direction has ended. Throws std::bad_alloc.
  std::span<std::byte> room();
  void received(size_t bytes);

  State state() const { return state_; }
  // Of the record that is there.
  size_t length() const { return header_.length; }
  // Opens it into `plain`, which has room for exactly its bytes. False: it is broken.
  bool open(const iovec* plain, size_t count);
  const std::string& reason() const { return reason_; }

  // How many more bytes complete the record, and how many bytes of what it seals are here already.
  size_t missing() const;
  size_t partial_bytes() const;
  // Nothing of a record is here.
  bool at_boundary() const { return begin_ == end_; }
  uint64_t opened() const { return next_; }

 private:
  size_t record_bytes() const { return kRecordExtraBytes + header_.length; }
  void look();
  bool authentic(Aead& aead, uint64_t number);
  void judge();
  void give_up(std::string reason);

  Aead aead_, own_;
  const uint64_t records_per_key_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is not opened yet
  bool crowded_ = false;        // the last bytes filled all the room there was
  bool has_header_ = false;
  RecordHeader header_{};
  uint64_t next_ = 0;
  State state_ = State::partial;
  std::string reason_;
};

}  // namespace byteps::sealed

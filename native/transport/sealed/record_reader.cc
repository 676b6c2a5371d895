#include "transport/sealed/record_reader.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

namespace byteps::sealed {
namespace {

// A heartbeat needs little; a connection with much to read gets room for several records at once.
constexpr size_t kFirstBytes = 1024;
constexpr size_t kMostBytes = 4 * (kRecordBytes + kRecordExtraBytes);

}  // namespace

std::span<std::byte> RecordReader::room() {
  if (state_ == State::broken || state_ == State::goodbye) return {};
  if (begin_ == end_) begin_ = end_ = 0;
  const size_t least = has_header_ ? record_bytes() : kRecordHeaderBytes;
  if (begin_ > 0 && (begin_ + least > buffer_.size() || end_ == buffer_.size())) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Who filled the whole room had more to say than fits.
  const size_t wanted = std::min(crowded_ ? 2 * buffer_.size() : buffer_.size(), kMostBytes);
  const size_t bytes = std::max({least, kFirstBytes, wanted, end_ + 1});
  if (bytes > buffer_.size()) buffer_.resize(bytes);
  crowded_ = false;
  return {buffer_.data() + end_, buffer_.size() - end_};
}

void RecordReader::received(size_t bytes) {
  end_ += bytes;
  crowded_ = end_ == buffer_.size();
  look();
}

void RecordReader::look() {
  if (state_ == State::broken || state_ == State::goodbye) return;
  state_ = State::partial;
  if (!has_header_) {
    if (end_ - begin_ < kRecordHeaderBytes) return;
    std::memcpy(&header_, buffer_.data() + begin_, kRecordHeaderBytes);
    if (header_.check != crc32c(&header_, offsetof(RecordHeader, check)) || header_.length > kRecordBytes) {
      return give_up("changed on the way: record " + std::to_string(next_) +
                     " has a header that nobody wrote");
    }
    has_header_ = true;
  }
  if (end_ - begin_ < record_bytes()) return;
  state_ = State::record;
  if (header_.length == 0 && open(nullptr, 0)) {
    state_ = State::goodbye;
    if (!at_boundary()) give_up("changed on the way: something follows the last record");
  }
}

bool RecordReader::open(const iovec* plain, size_t count) {
  if (state_ != State::record) return false;
  const std::byte* record = buffer_.data() + begin_;
  if (next_ > 0 && next_ % records_per_key_ == 0 && header_.number == next_) aead_.next_key();
  const bool fits = header_.number == next_ &&
                    aead_.open(next_, {record, kRecordHeaderBytes},
                               {record + kRecordHeaderBytes, header_.length + kTagBytes}, plain, count);
  if (!fits) {
    judge();
    return false;
  }
  ++next_;
  begin_ += record_bytes();
  has_header_ = false;
  look();
  return true;
}

bool RecordReader::authentic(Aead& aead, uint64_t number) {
  std::vector<std::byte> nowhere(header_.length);
  const std::byte* record = buffer_.data() + begin_;
  const iovec plain{nowhere.data(), nowhere.size()};
  return aead.open(number, {record, kRecordHeaderBytes},
                   {record + kRecordHeaderBytes, header_.length + kTagBytes}, &plain, 1);
}

// What was done to a record that is not the one that was expected.
void RecordReader::judge() {
  const std::string number = "record " + std::to_string(header_.number);
  const std::string wanted = "record " + std::to_string(next_);
  if (authentic(own_, header_.number))
    return give_up("reflected: " + number + " that this end has sent came back");
  if (header_.number == next_ || !authentic(aead_, header_.number)) {
    return give_up("changed on the way: " + number + " is not what the other end has sealed");
  }
  if (header_.number < next_) {
    return give_up("replayed: " + number + " came a second time, " + wanted + " was expected");
  }
  give_up("reordered or dropped on the way: " + number + " came, " + wanted + " was expected");
}

void RecordReader::give_up(std::string reason) {
  state_ = State::broken;
  reason_ = std::move(reason);
}

size_t RecordReader::missing() const {
  const size_t whole = has_header_ ? record_bytes() : kRecordHeaderBytes;
  return whole - std::min(whole, end_ - begin_);
}

size_t RecordReader::partial_bytes() const {
  const size_t here = end_ - begin_;
  return here > kRecordHeaderBytes ? here - kRecordHeaderBytes : 0;
}

}  // namespace byteps::sealed

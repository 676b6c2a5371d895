// What a transport offers that moves bytes and knows nothing of frames: TCP, a simulated wire, a stream that
// encrypts what it gives to another one. A StreamLink makes frames of it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "base/event_loop.h"

namespace byteps {

class ByteStream {
 public:
  // Called in the loop's thread. It may let the stream go.
  class User {
   public:
    virtual ~User() = default;
    virtual void on_ready(bool readable, bool writable) = 0;
  };

  // What a call has moved. No bytes and no end: nothing goes now, and the user hears when something does.
  struct Moved {
    size_t bytes = 0;
    bool ended = false;
    const char* why = nullptr;  // of an end; none: the peer has closed
  };

  virtual ~ByteStream() = default;

  // Once: tells `user` from now on when there is something to read.
  virtual void open(EventLoop& loop, User& user) = 0;
  virtual void close() = 0;

  // Into or out of these, in their order, as far as it goes at once. Never waits.
  virtual Moved read(const iovec* windows, size_t count) = 0;
  virtual Moved write(const iovec* windows, size_t count) = 0;
  // Fewer bytes than this are of no use: the user need not be told of them. An end is told all the same.
  virtual void wake_at(size_t bytes) = 0;
  // Whether the user wants to hear when the stream can take more.
  virtual void want_write(bool yes) = 0;

  // See Link. `delivered` is about what write() has taken.
  virtual bool delivered() const = 0;
  virtual bool has_unread() const = 0;
  virtual int64_t round_trip_ns() const = 0;
  virtual bool same_machine() const = 0;
  // See Link::watch(). For how long nothing has come through if that is longer than is tolerated, else 0.
  virtual int64_t cut_for_ns(bool wanted, int64_t tolerated_ns, int64_t now) = 0;
};

}  // namespace byteps

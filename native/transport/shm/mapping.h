// Memory that several processes map: without a name, so that nothing is left when they are gone.
#pragma once

#include <cstddef>
#include <memory>

#include "base/fd.h"

namespace byteps {

class Mapping {
 public:
  // New memory of zeros. It is reserved, not used: a page takes memory when it is first touched.
  static std::shared_ptr<Mapping> create(const char* label, size_t bytes);
  // The memory behind a descriptor that another process created.
  static std::shared_ptr<Mapping> open(Fd fd);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fileno() const { return fd_.get(); }
  bool contains(const std::byte* p) const { return p >= data_ && p < data_ + bytes_; }
  // Gives the pages of a range back to the system; they read as zeros afterwards.
  void release(size_t offset, size_t bytes);

 private:
  Mapping(Fd fd, size_t bytes);
  Fd fd_;
  size_t bytes_;
  std::byte* data_;
};

}  // namespace byteps

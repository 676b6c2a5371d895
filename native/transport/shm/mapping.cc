#include "transport/shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <system_error>

namespace byteps {
namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

Mapping::Mapping(Fd fd, size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
  void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (at == MAP_FAILED) fail("mmap of shared memory");
  data_ = static_cast<std::byte*>(at);
  ::madvise(at, bytes_, MADV_DONTDUMP);  // a core file need not hold every rank's gradients
}

Mapping::~Mapping() { ::munmap(data_, bytes_); }

std::shared_ptr<Mapping> Mapping::create(const char* label, size_t bytes) {
  Fd fd(::memfd_create(label, MFD_CLOEXEC));
  if (fd.get() < 0) fail("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fail("ftruncate of shared memory");
  return std::shared_ptr<Mapping>(new Mapping(std::move(fd), bytes));
}

std::shared_ptr<Mapping> Mapping::open(Fd fd) {
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) fail("fstat of shared memory");
  return std::shared_ptr<Mapping>(new Mapping(std::move(fd), static_cast<size_t>(status.st_size)));
}

void Mapping::release(size_t offset, size_t bytes) {
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));  // where the kernel cannot, the memory is merely kept
}

}  // namespace byteps

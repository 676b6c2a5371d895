#include <fcntl.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <system_error>

#include "local/group.h"
#include "python/bind.h"

namespace nb = nanobind;

namespace byteps {
namespace {

std::shared_ptr<LocalGroup> make_group(uint32_t own, std::vector<uint16_t> ranks, uint32_t job_ranks,
                                       int board_fd, const std::shared_ptr<Arena>& arena,
                                       const std::vector<int>& arena_fds, const std::vector<int>& pids,
                                       bool peers_readable, bool has_parent, int64_t spin_ns) {
  auto board = Mapping::open(Fd(board_fd));
  std::vector<GroupMemory::Rank> memory;
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto peer = i == own ? arena->memory() : Mapping::open(Fd(arena_fds.at(i)));
    memory.push_back({std::move(peer), pids.at(i)});
  }
  GroupSettings settings{std::move(ranks), job_ranks, peers_readable, has_parent, spin_ns};
  return std::make_shared<LocalGroup>(std::move(settings), std::move(board), arena,
                                      GroupMemory(own, std::move(memory)));
}

}  // namespace

void bind_local(nb::module_& m) {
  nb::class_<Arena>(m, "Arena")
      .def(nb::new_([](size_t bytes) { return std::make_shared<Arena>(bytes); }), nb::arg("nbytes"))
      .def("fileno", [](const Arena& a) { return a.memory()->fileno(); })
      .def_prop_ro("nbytes", [](const Arena& a) { return a.memory()->bytes(); })
      .def_prop_ro("used_bytes", &Arena::used_bytes)
      .def(
          "allocate", [](Arena& a, size_t bytes) { return reinterpret_cast<uintptr_t>(a.allocate(bytes)); },
          nb::arg("nbytes"))
      .def(
          "free", [](Arena& a, uintptr_t address) { a.free(reinterpret_cast<std::byte*>(address)); },
          nb::arg("address"));

  nb::class_<LocalGroup>(m, "LocalGroup")
      .def(nb::new_(&make_group), nb::arg("local_rank"), nb::arg("ranks"), nb::arg("job_ranks"),
           nb::arg("board_fd"), nb::arg("arena"), nb::arg("arena_fds"), nb::arg("pids"),
           nb::arg("peers_readable"), nb::arg("has_parent"), nb::arg("spin_ns") = 0);

  m.def(
      "create_board",
      [](uint32_t ranks) {
        const auto board = Mapping::create("byteps-board", board::bytes_for(ranks));
        const int fd = ::fcntl(board->fileno(), F_DUPFD_CLOEXEC, 0);
        if (fd < 0) throw std::system_error(errno, std::generic_category(), "fcntl(F_DUPFD)");
        return fd;
      },
      nb::arg("ranks"));
}

}  // namespace byteps

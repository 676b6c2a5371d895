#include <nanobind/operators.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/tuning.h"
#include "python/bind.h"
#include "wire/epoch.h"
#include "wire/header.h"
#include "wire/limits.h"

namespace nb = nanobind;

namespace byteps {
namespace {

HeaderBytes header_bytes(const nb::bytes& bytes) {
  if (bytes.size() != kHeaderBytes)
    throw WireError("a header has 64 bytes, not " + std::to_string(bytes.size()));
  return HeaderBytes(reinterpret_cast<const std::byte*>(bytes.c_str()), kHeaderBytes);
}

nb::bytes encode_frame(int type, uint64_t job, uint32_t epoch, uint16_t sender, const nb::bytes& payload) {
  if (payload.size() > limits::kMaxControlBytes) {
    throw WireError("a control message of " + std::to_string(payload.size()) + " bytes, at most " +
                    std::to_string(limits::kMaxControlBytes));
  }
  Header header;
  header.type = static_cast<FrameType>(type);
  header.job = job;
  header.epoch = epoch;
  header.sender = sender;
  header.length = static_cast<uint32_t>(payload.size());
  header.flags = kFlagChecksum;
  header.payload_crc = crc32c(payload.c_str(), payload.size());
  seal(header);
  std::string out(kHeaderBytes + payload.size(), '\0');
  std::memcpy(out.data(), &header, kHeaderBytes);
  std::memcpy(out.data() + kHeaderBytes, payload.c_str(), payload.size());
  return nb::bytes(out.data(), out.size());
}

using Servers = std::vector<std::pair<std::string, uint16_t>>;  // names and shards

Epoch epoch_of(uint32_t number, std::vector<std::string> ranks, std::vector<std::string> hosts,
               std::vector<std::string> children, std::vector<uint16_t> child_of, const Servers& servers) {
  Epoch epoch{number, std::move(ranks), std::move(hosts), std::move(children), std::move(child_of)};
  for (const auto& [name, shards] : servers) epoch.servers.push_back({name, shards});
  if (const char* reason = invalid(epoch)) throw std::invalid_argument(reason);
  return epoch;
}

Servers servers_of(const Epoch& epoch) {
  Servers servers;
  for (const auto& server : epoch.servers) servers.emplace_back(server.name, server.shards);
  return servers;
}

void bind_epoch(nb::module_& m) {
  nb::class_<Epoch>(m, "Epoch")
      .def(
          "__init__",
          [](Epoch* self, uint32_t number, std::vector<std::string> ranks, std::vector<std::string> hosts,
             std::vector<std::string> children, std::vector<uint16_t> child_of, const Servers& servers) {
            new (self) Epoch(epoch_of(number, std::move(ranks), std::move(hosts), std::move(children),
                                      std::move(child_of), servers));
          },
          nb::arg("number"), nb::kw_only(), nb::arg("ranks"), nb::arg("hosts"), nb::arg("children"),
          nb::arg("child_of"), nb::arg("servers"))
      .def_ro("number", &Epoch::number)
      .def_ro("ranks", &Epoch::ranks)
      .def_ro("hosts", &Epoch::hosts)
      .def_ro("children", &Epoch::children)
      .def_ro("child_of", &Epoch::child_of)
      .def_prop_ro("servers", &servers_of)
      .def(nb::self == nb::self);
}

}  // namespace

void bind_wire(nb::module_& m) {
  bind_epoch(m);
  nb::exception<WireError>(m, "WireError");
  m.attr("HEADER_BYTES") = kHeaderBytes;
  m.attr("PROTOCOL_VERSION") = int{kProtocolVersion};
  m.attr("MAX_CONTROL_BYTES") = limits::kMaxControlBytes;
  m.attr("MAX_TENSOR_BYTES") = limits::kMaxTensorBytes;
  m.attr("PIECE_BYTES") = tuning::kPieceBytes;
  m.attr("FAR_PIECE_BYTES") = tuning::kFarPieceBytes;
  for (const auto type :
       {FrameType::hello, FrameType::challenge, FrameType::proof, FrameType::welcome, FrameType::reject,
        FrameType::control, FrameType::beat, FrameType::push, FrameType::result, FrameType::credit,
        FrameType::resend, FrameType::error, FrameType::stall, FrameType::refuse, FrameType::want}) {
    nb::setattr(m, (std::string("FRAME_") + name_of(type)).c_str(), nb::int_(static_cast<int>(type)));
  }
  m.def("encode_frame", &encode_frame, nb::arg("type"), nb::arg("job"), nb::arg("epoch"), nb::arg("sender"),
        nb::arg("payload"));
  m.def(
      "decode_header",
      [](const nb::bytes& bytes, uint64_t job) {
        const Header h = decode_header(header_bytes(bytes), job);
        return nb::make_tuple(static_cast<int>(h.type), h.epoch, h.sender, h.length);
      },
      nb::arg("header"), nb::arg("job"));
  m.def(
      "check_payload",
      [](const nb::bytes& header, const nb::bytes& payload) {
        const Header h = decode_header(header_bytes(header), 0);
        if (payload.size() != h.length) throw WireError("payload has not the length its header says");
        if (h.length == 0 && !(h.flags & kFlagChecksum)) return;
        if (!(h.flags & kFlagChecksum))
          throw WireError(std::string(name_of(h.type)) + ": payload without checksum");
        if (crc32c(payload.c_str(), payload.size()) != h.payload_crc) {
          throw WireError(std::string(name_of(h.type)) + ": payload checksum differs");
        }
      },
      nb::arg("header"), nb::arg("payload"));
}

}  // namespace byteps

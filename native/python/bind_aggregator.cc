#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "aggregator/aggregator.h"
#include "python/bind.h"
#include "python/endpoints.h"
#include "python/events.h"

namespace nb = nanobind;

namespace byteps {

void bind_aggregator(nb::module_& m) {
  nb::class_<Aggregator>(m, "Aggregator")
      .def(
          "__init__",
          [](Aggregator* self, uint64_t job, const Epoch& epoch, unsigned shards, bool deterministic,
             bool scheduled, bool asynchronous, double stall_warn_s, int verbose, bool key_log, bool debug,
             std::string debug_key, std::string sample) {
            AggregatorSettings s;
            s.job = job;
            s.epoch = epoch;
            s.shards = shards;
            s.deterministic = deterministic;
            s.scheduled = scheduled;
            s.asynchronous = asynchronous;
            s.stall_warn_s = stall_warn_s;
            s.verbose = verbose;
            s.key_log = key_log;
            s.debug = debug;
            s.debug_key = std::move(debug_key);
            s.sample = std::move(sample);
            new (self) Aggregator(std::move(s));
          },
          nb::arg("job"), nb::arg("epoch"), nb::arg("shards"), nb::kw_only(), nb::arg("deterministic") = true,
          nb::arg("scheduled") = false, nb::arg("asynchronous") = false, nb::arg("stall_warn_s") = 10.0,
          nb::arg("verbose") = 0, nb::arg("key_log") = false, nb::arg("debug") = false,
          nb::arg("debug_key") = "", nb::arg("sample") = "")
      .def(
          "attach",
          [](Aggregator& a, unsigned shard, uint16_t rank, int fd, bool checksum, int peer_pid,
             const sealed::SessionKeys* keys,
             uint32_t tag) { a.attach(shard, rank, endpoint_of(fd, keys), checksum, peer_pid, tag); },
          nb::arg("shard"), nb::arg("rank"), nb::arg("fd"), nb::arg("checksum"), nb::arg("peer_pid") = 0,
          nb::arg("keys") = nb::none(), nb::arg("tag") = 0)
      .def("enter", &Aggregator::enter, nb::arg("epoch"))
      .def("clear", &Aggregator::clear)
      .def(
          "declare",
          [](Aggregator& a, uint32_t id, std::string name, uint8_t dtype, uint64_t nbytes,
             uint64_t partition_bytes, uint32_t piece_bytes,
             const std::vector<std::pair<uint32_t, std::vector<int32_t>>>& shards,
             const compress::DeclaredCodec* codec) {
            if (!valid(dtype)) throw nb::value_error("unknown dtype");
            TensorInfo tensor{id,
                              std::move(name),
                              static_cast<DType>(dtype),
                              {nbytes, partition_bytes, codec != nullptr, piece_bytes}};
            for (const auto& [times, each] : shards) tensor.runs.push_back({times, each});
            if (codec) tensor.codec = *codec;
            a.declare(std::move(tensor));
          },
          nb::arg("tensor_id"), nb::arg("name"), nb::arg("dtype"), nb::arg("nbytes"),
          nb::arg("partition_bytes"), nb::arg("piece_bytes"), nb::arg("shards"),
          nb::arg("codec") = nb::none())
      .def("depart", &Aggregator::depart, nb::arg("rank"))
      .def("retire", &Aggregator::retire, nb::arg("tensor_ids"))
      .def("fileno", [](Aggregator& a) { return a.events().fileno(); })
      .def("events", [](Aggregator& a) { return events_to_python(a.events()); })
      .def("counters", &Aggregator::counters)
      .def("close", &Aggregator::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace byteps

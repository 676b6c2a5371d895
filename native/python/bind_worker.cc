#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/clock.h"
#include "base/tuning.h"
#include "observe/ring.h"
#include "python/bind.h"
#include "python/endpoints.h"
#include "python/events.h"
#include "worker/client.h"

namespace nb = nanobind;

namespace byteps {
namespace {

// How often a waiting thread looks whether Ctrl-C was pressed. The end of an operation wakes it at once.
constexpr int64_t kSignalCheckNs = kNanosecondsPerSecond / 10;

PyObject* op_error_type = nullptr;

void wait(Operation& op) {
  if (!op.done()) {
    const int64_t begin = op.tensor->client.clock().now_ns();
    record({.stage = Stage::needed, .key = whole_key(op.tensor->id), .at_ns = begin});  // maybe no round yet
    while (!op.done() && !op.given_up) {
      {
        nb::gil_scoped_release release;
        op.wait_for(kSignalCheckNs);
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    const int64_t now = op.tensor->client.clock().now_ns();
    record({.stage = Stage::had,
            .round = op.round,
            .key = whole_key(op.tensor->id),
            .at_ns = now,
            .took_ns = saturated(static_cast<uint64_t>(now - begin))});
  }
  const Failure failure = op.failure();
  if (!failure) return;
  const nb::tuple arguments =
      nb::make_tuple(failure.kind, text_to_python(failure.message), name_of(failure.role), failure.rank,
                     text_to_python(failure.host));
  PyErr_SetObject(op_error_type, arguments.ptr());
  throw nb::python_error();
}

Role role_of(const std::string& name) {
  for (const Role role : {Role::worker, Role::server, Role::scheduler}) {
    if (name == name_of(role)) return role;
  }
  return Role::nobody;
}

std::byte* pointer(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

using Memory = std::pair<uintptr_t, size_t>;  // an address, and how many bytes there are
Memory memory(const void* data, size_t bytes) { return {reinterpret_cast<uintptr_t>(data), bytes}; }

}  // namespace

void bind_worker(nb::module_& m) {
  op_error_type = PyErr_NewExceptionWithDoc("byteps._core.OpError", "args: (kind, message, role, rank, host)",
                                            PyExc_Exception, nullptr);
  m.attr("OpError") = nb::borrow(op_error_type);

  nb::class_<Tensor>(m, "Tensor")
      .def_ro("id", &Tensor::id)
      .def_ro("name", &Tensor::name)
      .def_prop_ro("nbytes", [](const Tensor& t) { return t.cut.tensor_bytes; })
      .def_prop_ro("pieces", [](const Tensor& t) { return t.cut.pieces(); })
      .def_prop_ro("is_compressed", [](const Tensor& t) { return t.codec != nullptr; })
      .def_prop_ro("momentum",
                   [](const Tensor& t) {
                     return t.momentum ? memory(t.momentum->state(), t.momentum->state_bytes()) : Memory{};
                   })
      .def_prop_ro("errors",
                   [](const Tensor& t) {
                     std::map<uint32_t, Memory> found;
                     for (uint32_t i = 0; t.codec && i < t.cut.partitions(); ++i) {
                       PartitionCodec* p = t.codec->of(i);
                       if (p && !p->error.empty())
                         found[i] = memory(p->error.data(), p->error.size() * sizeof(float));
                     }
                     return found;
                   })
      .def_prop_rw("steps", &Tensor::steps, &Tensor::set_steps)
      .def_prop_rw(
          "previous_lr", [](const Tensor& t) { return t.codec ? t.codec->previous_lr() : 0.0f; },
          [](Tensor& t, float lr) {
            if (t.codec) t.codec->set_previous_lr(lr);
          });

  nb::class_<Operation>(m, "Handle")
      .def("done", &Operation::done)
      .def("wait", &wait)
      .def_prop_ro("round", [](const Operation& op) { return op.round; })
      .def_prop_ro("waited_bytes", [](const Operation& op) { return op.waited_bytes.load(); });

  nb::class_<Client>(m, "Client")
      .def(
          "__init__",
          [](Client* self, uint64_t job, const Epoch& epoch, uint16_t rank, uint64_t credit_bytes,
             double op_timeout_s, double stall_warn_s, int verbose, std::string sample, bool telemetry,
             unsigned codec_threads, uint32_t piece_bytes, double tolerated_silence_s) {
            ClientSettings s;
            s.job = job;
            s.epoch = epoch;
            s.rank = rank;
            s.credit_bytes = credit_bytes;
            s.op_timeout_s = op_timeout_s;
            s.stall_warn_s = stall_warn_s;
            s.verbose = verbose;
            s.sample = std::move(sample);
            s.telemetry = telemetry;
            s.codec_threads = codec_threads;
            s.piece_bytes = piece_bytes;
            s.tolerated_silence_s = tolerated_silence_s;
            new (self) Client(std::move(s));
          },
          nb::arg("job"), nb::arg("epoch"), nb::arg("rank"), nb::kw_only(), nb::arg("credit_bytes"),
          nb::arg("op_timeout_s"), nb::arg("stall_warn_s"), nb::arg("verbose") = 0, nb::arg("sample") = "",
          nb::arg("telemetry") = true, nb::arg("codec_threads") = 0,
          nb::arg("piece_bytes") = tuning::kPieceBytes, nb::arg("tolerated_silence_s") = 0.0)
      .def(
          "connect",
          [](Client& c, uint16_t server, uint16_t shard, int fd, bool checksum, bool same_machine,
             int peer_pid, const sealed::SessionKeys* keys, uint32_t tag) {
            c.connect(server, shard, endpoint_of(fd, keys), checksum, same_machine, peer_pid, tag);
          },
          nb::arg("server"), nb::arg("shard"), nb::arg("fd"), nb::arg("checksum"), nb::arg("same_machine"),
          nb::arg("peer_pid") = 0, nb::arg("keys") = nb::none(), nb::arg("tag") = 0)
      .def("enter", &Client::enter, nb::arg("epoch"))
      .def("join", &Client::join, nb::arg("group"))
      .def("start", &Client::start)
      .def(
          "declare",
          [](Client& c, uint32_t id, const std::string& name, uint8_t dtype, uint64_t nbytes,
             uint64_t partition_bytes, const std::vector<std::pair<uint16_t, uint16_t>>& placement,
             bool direct, const compress::DeclaredCodec* codec, bool momentum) {
            if (!valid(dtype)) throw nb::value_error("unknown dtype");
            std::optional<compress::DeclaredCodec> chosen;
            if (codec) chosen = *codec;
            return c.declare(id, name, static_cast<DType>(dtype), Cut{nbytes, partition_bytes}, placement,
                             direct, chosen, momentum);
          },
          nb::arg("tensor_id"), nb::arg("name"), nb::arg("dtype"), nb::arg("nbytes"),
          nb::arg("partition_bytes"), nb::arg("placement"), nb::arg("direct") = false,
          nb::arg("codec") = nb::none(), nb::arg("momentum") = false)
      // The GIL stays held while an operation is submitted: it takes a microsecond, and it keeps a close() in
      // another Python thread apart from it.
      .def(
          "push_pull",
          [](Client& c, std::shared_ptr<Tensor> tensor, uintptr_t src, uintptr_t dst, int32_t priority,
             bool average, float lr, double mu) {
            if (tensor->momentum) {  // a walk through memory, and nothing of the client's
              nb::gil_scoped_release release;
              tensor->momentum->apply(pointer(src), pointer(dst), mu);
            }
            return c.push_pull(tensor, pointer(tensor->momentum ? dst : src), pointer(dst), priority, average,
                               lr);
          },
          nb::arg("tensor"), nb::arg("src"), nb::arg("dst"), nb::arg("priority"), nb::arg("average"),
          nb::arg("lr") = 0.0f, nb::arg("mu") = 0.0)
      .def(
          "broadcast",
          [](Client& c, std::shared_ptr<Tensor> tensor, uintptr_t address, uint32_t root, int32_t priority) {
            return c.broadcast(std::move(tensor), pointer(address), root, priority);
          },
          nb::arg("tensor"), nb::arg("address"), nb::arg("root"), nb::arg("priority"))
      .def(
          "fail",
          [](Client& c, FailureKind kind, std::string message, const std::string& role, int rank,
             std::string host) { c.fail({kind, std::move(message), role_of(role), rank, std::move(host)}); },
          nb::arg("kind"), nb::arg("message"), nb::arg("role"), nb::arg("rank"), nb::arg("host"))
      .def("fail_tensor", &Client::fail_tensor, nb::arg("tensor_id"), nb::arg("message"),
           nb::arg("lack") = false)
      .def("forget", &Client::forget, nb::arg("tensor_id"))
      .def("depart", &Client::depart, nb::arg("rank"))
      .def("fileno", [](Client& c) { return c.events().fileno(); })
      .def("events", [](Client& c) { return events_to_python(c.events()); })
      .def("counters", &Client::counters)
      .def("speed_bytes_per_s", &Client::speed_bytes_per_s)
      .def("close", [](Client& c) {
        c.fail({FailureKind::closed, "the job has been shut down"});  // from here on nothing new is taken
        nb::gil_scoped_release release;
        c.close();
      });
}

}  // namespace byteps

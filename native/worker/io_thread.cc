#include "worker/io_thread.h"

#include "base/clock.h"
#include "worker/client.h"

namespace byteps {

IoThread::IoThread(Client& client, unsigned index)
    : client_(client), loop_(*this, "bps-io-" + std::to_string(index)) {}

ServerLink& IoThread::add_link(uint16_t server, Endpoint& endpoint, bool checksum, uint64_t most_bytes,
                               Budget* budget, uint32_t turn, pid_t peer_pid) {
  const ClientSettings& settings = client_.settings();
  const LinkOptions options{settings.job, settings.epoch, checksum,
                            seconds_to_ns(settings.tolerated_silence_s)};
  links_.push_back(
      std::make_unique<ServerLink>(*this, server, endpoint, options, most_bytes, budget, turn, peer_pid));
  return *links_.back();
}

void IoThread::post(Work work) {
  bool first;
  {
    std::lock_guard lock(inbox_mutex_);
    first = inbox_.empty();
    inbox_.push_back(std::move(work));
  }
  if (first) loop_.wake();  // many submissions, one wake-up
}

void IoThread::submit(Route& route, std::shared_ptr<Operation> op) {
  post({Work::Kind::submit, &route, std::move(op)});
}
void IoThread::abandon(std::shared_ptr<Operation> op) { post({Work::Kind::abandon, nullptr, std::move(op)}); }
void IoThread::abandon_all() {
  all_abandoned_.store(true, std::memory_order_release);
  loop_.wake();
}
void IoThread::forget(std::shared_ptr<Tensor> tensor) {
  post({Work::Kind::forget, nullptr, nullptr, std::move(tensor)});
}

void IoThread::nudge(ServerLink& link) {
  Work work{Work::Kind::nudge};
  work.link = &link;
  post(std::move(work));
}

void IoThread::post_job(int32_t priority, const CodecJob& job) {
  {
    std::lock_guard lock(inbox_mutex_);
    coded_inbox_.reserve(jobs_ + 1);
    taken_coded_.reserve(jobs_ + 1);
  }
  client_.codecs().post(priority, job);
  ++jobs_;
  ++job.route->jobs;
}

void IoThread::coded(CodecOutcome coded) noexcept {
  {
    std::lock_guard lock(inbox_mutex_);
    coded_inbox_.push_back(std::move(coded));
  }
  loop_.wake();
}

void IoThread::on_wake() {
  {
    std::lock_guard lock(inbox_mutex_);
    taken_.swap(inbox_);
    taken_coded_.swap(coded_inbox_);
  }
  for (Work& work : taken_) {
    const auto op = work.op;
    try {
      handle(work);
    } catch (const std::bad_alloc& lack) {
      fail(op, lack.what());
      if (work.op) route_done(op);  // it had not become ours yet
    }
  }
  taken_.clear();
  if (all_abandoned_.load(std::memory_order_acquire) && !std::exchange(ended_, true)) {
    for (auto& link : links_) link->link()->close();
  }
  for (size_t i = active_.size(); ended_ && i-- > 0;) drop(*active_[i]);
  for (const CodecOutcome& coded : taken_coded_) handle(coded);
  taken_coded_.clear();
}

void IoThread::handle(Work& work) {
  switch (work.kind) {
    case Work::Kind::submit: {
      Route& route = *work.route;
      active_.push_back(&route);  // the first step that may fail, and the last one before it is ours
      route.active_index = active_.size() - 1;
      route.op = std::move(work.op);
      if (ended_ || route.op->failing()) return release(route);
      return route.link->submit(route);
    }
    case Work::Kind::abandon:
      for (size_t i = active_.size(); i-- > 0;) {
        if (active_[i]->op == work.op) drop(*active_[i]);
      }
      return;
    case Work::Kind::nudge:
      return work.link->retry();
    case Work::Kind::forget:
      for (auto& link : links_) link->forget(work.tensor->id);
      return;
  }
}

void IoThread::handle(const CodecOutcome& coded) {
  Route& route = *coded.job.route;
  --jobs_;
  --route.jobs;
  if (route.dropped) {
    if (route.jobs == 0) release(route);
    return;
  }
  const auto op = route.op;
  try {
    route.link->coded(coded);
  } catch (const std::bad_alloc& lack) {
    fail(op, lack.what());
  }
}

// Never fails: what the next operation on the tensor could not begin with is told, and it has failed by then.
void IoThread::drop(Route& route) noexcept {
  if (!route.dropped) route.link->abandon(route);
  const uint32_t cancelled = client_.codecs().cancel(route);
  route.jobs -= cancelled;
  jobs_ -= cancelled;
  try {
    release(route);
  } catch (const std::exception& error) {
    on_exception(error.what());
  }
}

// There is no memory to go on with it. Here it is let go of at once, by the other threads when they hear of
// it.
void IoThread::fail(const std::shared_ptr<Operation>& op, const char* why) noexcept {
  try {
    client_.give_up(*op, client_.lack(op->tensor->name, why));
  } catch (const std::bad_alloc&) {
    on_exception("no memory to end an operation on all threads");
  }
  for (size_t i = active_.size(); i-- > 0;) {
    if (active_[i]->op == op) drop(*active_[i]);
  }
}

void IoThread::on_exception(const char* what) noexcept {
  client_.events().failed(FailureKind::memory, Role::nobody, -1, what);
}

// A thread of the pool may be reading or writing the operation's memory: then it is let go of later.
void IoThread::release(Route& route) {
  route.dropped = route.jobs > 0;
  if (route.dropped) return;
  active_[route.active_index] = active_.back();
  active_[route.active_index]->active_index = route.active_index;
  active_.pop_back();
  const auto op = std::move(route.op);
  route.op.reset();
  route_done(op);
}

void IoThread::route_done(const std::shared_ptr<Operation>& op) {
  if (!op->release_route()) return;
  if (op->group) {  // it ends when all ranks of this machine are done
    if (op->failing()) op->group->give_up(*op);
    return;
  }
  client_.count_operation(*op);
  op->finish();
  op->tensor->finished(*op);
}

void IoThread::on_batch_end() {
  uint64_t sent = 0, received = 0;
  for (auto& link : links_) {
    link->settle();
    sent += link->link()->traffic().sent_bytes;
    received += link->link()->traffic().received_bytes;
  }
  sent_bytes_.store(sent, std::memory_order_relaxed);
  received_bytes_.store(received, std::memory_order_relaxed);
}

void IoThread::on_deadline(int64_t now) {
  next_look_ns_ = now + kNanosecondsPerSecond;
  watch_links(now);
  for (size_t i = active_.size(); i-- > 0;) {
    Route& route = *active_[i];
    client_.check_age(*route.op, now, client_.settings().servers[route.link->server()],
                      ": " + std::to_string(route.left) + " of " + std::to_string(route.pieces.size()) +
                          " pieces not answered");
  }
}

// A link that carries operations must be able to reach its server. One more look at each when they are done.
void IoThread::watch_links(int64_t now) {
  watching_ = !active_.empty();
  for (Route* route : active_) route->link->want();
  for (auto& link : links_) link->watch(now);
}

void IoThread::link_ended(ServerLink& link, Link::End end, const std::string& reason) {
  client_.events().failed(Link::failure_of(end), Role::server, link.server(), reason);
}

void IoThread::trace_frame(const char* direction, const ServerLink& link, const Header& header) {
  if (client_.settings().verbose < 2) return;
  client_.events().log(kInfo, std::string(direction) + " " + client_.settings().servers[link.server()] + " " +
                                  name_of(header.type) + " key " + std::to_string(tensor_of(header.key)) +
                                  "." + std::to_string(piece_of(header.key)) + " round " +
                                  std::to_string(header.round) + " " + std::to_string(header.length) +
                                  " bytes");
}

}  // namespace byteps

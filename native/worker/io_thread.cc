#include "worker/io_thread.h"

#include "base/clock.h"
#include "worker/client.h"

namespace byteps {

IoThread::IoThread(Client& client, std::shared_ptr<const Epoch> epoch, unsigned index)
    : client_(client),
      epoch_(std::move(epoch)),
      clock_(client.clock()),
      loop_(client.settings().runtime->make_loop(*this, "bps-io-" + std::to_string(index))) {}

LinkOptions IoThread::options(bool checksum) const {
  return {client_.settings().job, epoch_->number, checksum,
          seconds_to_ns(client_.settings().tolerated_silence_s)};
}

ServerLink& IoThread::add_link(uint16_t server, Endpoint& endpoint, bool checksum, uint64_t most_bytes,
                               Budget* budget, uint32_t turn, pid_t peer_pid, uint32_t tag) {
  links_.push_back(std::make_unique<ServerLink>(*this, server, most_bytes, budget, turn, peer_pid));
  links_.back()->connect(endpoint, options(checksum), tag);
  return *links_.back();
}

void IoThread::connect_again(ServerLink& link, std::unique_ptr<Endpoint> endpoint, bool checksum,
                             uint32_t tag) {
  std::shared_ptr<Endpoint> shared = std::move(endpoint);  // std::function wants a copyable closure
  loop_->post([this, &link, shared, checksum, tag] {
    if (ended_) return;
    try {
      link.connect(*shared, options(checksum), tag);
      client_.count_reconnection();
    } catch (const std::exception& error) {  // no memory, or no room in the epoll
      client_.events().failed(FailureKind::memory, Role::server, link.server(), error.what(), tag);
    }
  });
}

void IoThread::enter(std::shared_ptr<const Epoch> epoch) {
  loop_->post([this, epoch = std::move(epoch)]() mutable {
    epoch_ = std::move(epoch);
    for (auto& link : links_) link->disconnect();
  });
}

void IoThread::post(Work work) {
  bool first;
  {
    std::lock_guard lock(inbox_mutex_);
    first = inbox_.empty();
    inbox_.push_back(std::move(work));
  }
  if (first) loop_->wake();  // many submissions, one wake-up
}

void IoThread::submit(Route& route, std::shared_ptr<Operation> op) {
  post({Work::Kind::submit, &route, std::move(op)});
}
void IoThread::abandon(std::shared_ptr<Operation> op) { post({Work::Kind::abandon, nullptr, std::move(op)}); }
void IoThread::abandon_all() {
  all_abandoned_.store(true, std::memory_order_release);
  loop_->wake();
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
    codec_inbox_.reserve(jobs_ + 1);
    taken_outcomes_.reserve(jobs_ + 1);
  }
  client_.codecs().post(priority, job);
  ++jobs_;
  ++job.route->jobs;
}

void IoThread::codec_done(CodecOutcome outcome) noexcept {
  {
    std::lock_guard lock(inbox_mutex_);
    codec_inbox_.push_back(std::move(outcome));
  }
  loop_->wake();
}

void IoThread::on_wake() {
  {
    std::lock_guard lock(inbox_mutex_);
    taken_.swap(inbox_);
    taken_outcomes_.swap(codec_inbox_);
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
  for (const CodecOutcome& outcome : taken_outcomes_) handle(outcome);
  taken_outcomes_.clear();
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

void IoThread::handle(const CodecOutcome& outcome) {
  Route& route = *outcome.job.route;
  --jobs_;
  --route.jobs;
  if (route.dropped) {
    if (route.jobs == 0) release(route);
    return;
  }
  const auto op = route.op;
  try {
    route.link->codec_done(outcome);
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
    sent += link->traffic().sent_bytes;
    received += link->traffic().received_bytes;
  }
  sent_bytes_.store(sent, std::memory_order_relaxed);
  received_bytes_.store(received, std::memory_order_relaxed);
}

void IoThread::on_deadline(int64_t now) {
  next_look_ns_ = now + kNanosecondsPerSecond;
  watch_links(now);
  for (size_t i = active_.size(); i-- > 0;) {
    Route& route = *active_[i];
    client_.check_age(*route.op, now, epoch_->servers[route.link->server()].name,
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
  client_.events().failed(Link::failure_of(end), Role::server, link.server(), reason, link.tag());
}

void IoThread::trace_frame(const char* direction, const ServerLink& link, const Header& header) {
  if (client_.settings().verbose < 2) return;
  client_.events().log(kInfo, std::string(direction) + " " + epoch_->servers[link.server()].name + " " +
                                  name_of(header.type) + " key " + std::to_string(tensor_of(header.key)) +
                                  "." + std::to_string(piece_of(header.key)) + " round " +
                                  std::to_string(header.round) + " " + std::to_string(header.length) +
                                  " bytes");
}

}  // namespace byteps

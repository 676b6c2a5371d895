#include "worker/io_thread.h"

#include "base/clock.h"
#include "worker/client.h"

namespace byteps {

IoThread::IoThread(Client& client, unsigned index)
    : client_(client), loop_(*this, "bps-io-" + std::to_string(index)) {}

ServerLink& IoThread::add_link(uint16_t server, Fd fd, bool checksum, uint64_t most_bytes, Budget* budget,
                               pid_t peer_pid) {
  const TcpLink::Options options{client_.settings().job, client_.settings().epoch, checksum};
  links_.push_back(
      std::make_unique<ServerLink>(*this, server, std::move(fd), options, most_bytes, budget, peer_pid));
  return *links_.back();
}

void IoThread::start() {
  for (auto& link : links_) link->link()->open();
  loop_.start();
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
void IoThread::coded(CodecOutcome coded) {
  Work work{Work::Kind::coded};
  work.coded = std::move(coded);
  post(std::move(work));
}
void IoThread::abandon_all() { post({Work::Kind::abandon_all}); }
void IoThread::forget(std::shared_ptr<Tensor> tensor) {
  post({Work::Kind::forget, nullptr, nullptr, std::move(tensor)});
}

void IoThread::nudge(ServerLink& link) {
  Work work{Work::Kind::nudge};
  work.link = &link;
  post(std::move(work));
}

void IoThread::on_wake() {
  {
    std::lock_guard lock(inbox_mutex_);
    taken_.swap(inbox_);
  }
  for (Work& work : taken_) handle(work);
  taken_.clear();
}

void IoThread::handle(Work& work) {
  switch (work.kind) {
    case Work::Kind::submit: {
      Route& route = *work.route;
      route.op = std::move(work.op);
      route.active_index = active_.size();
      active_.push_back(&route);
      if (ended_ || route.op->failing()) return release(route);
      return route.link->submit(route);
    }
    case Work::Kind::abandon:
      for (size_t i = active_.size(); i-- > 0;) {
        if (active_[i]->op == work.op) drop(*active_[i]);
      }
      return;
    case Work::Kind::abandon_all:
      ended_ = true;
      for (auto& link : links_) link->link()->close();
      for (size_t i = active_.size(); i-- > 0;) drop(*active_[i]);
      return;
    case Work::Kind::coded: {
      Route& route = *work.coded.job.route;
      --route.jobs;
      if (!route.dropped) return route.link->coded(work.coded);
      if (route.jobs == 0) release(route);
      return;
    }
    case Work::Kind::nudge:
      return work.link->retry();
    case Work::Kind::forget:
      for (auto& link : links_) link->forget(work.tensor->id);
      return;
  }
}

void IoThread::drop(Route& route) {
  if (!route.dropped) route.link->abandon(route);
  route.jobs -= client_.codecs().cancel(route);
  release(route);
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
  if (!op->release_route()) return;
  if (op->driver) {  // it ends when all ranks of this machine are done
    if (op->failing()) op->tensor->group->give_up(*op);
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
  for (size_t i = active_.size(); i-- > 0;) {
    Route& route = *active_[i];
    client_.check_age(*route.op, now, client_.settings().servers[route.link->server()],
                      ": " + std::to_string(route.left) + " of " + std::to_string(route.pieces.size()) +
                          " pieces not answered");
  }
}

void IoThread::link_ended(ServerLink& link, Link::End end, const std::string& reason) {
  client_.events().post({end == Link::End::violation ? "violation" : "lost", link.server(), reason});
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

// What should be sent next: the most urgent first, first come first served among equals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace byteps {

// A binary heap in a vector: no allocation in the steady state.
template <typename T>
class ReadyQueue {
 public:
  // An item and its place: who takes one out can put it back where it was.
  struct Entry {
    int32_t priority;
    uint64_t sequence;
    T item;
  };

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  void push(int32_t priority, T item) { put_back({priority, next_++, std::move(item)}); }
  void put_back(Entry entry) {
    heap_.push_back(std::move(entry));
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Entry take() {
    Entry entry = std::move(heap_.front());
    pop();
    return entry;
  }
  T& top() { return heap_.front().item; }
  void pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
  template <typename Predicate>
  void remove_if(Predicate&& gone) {
    std::erase_if(heap_, [&](Entry& e) { return gone(e.item); });
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
  void clear() { heap_.clear(); }

 private:
  static bool later(const Entry& a, const Entry& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.sequence > b.sequence;
  }
  std::vector<Entry> heap_;
  uint64_t next_ = 0;
};

}  // namespace byteps

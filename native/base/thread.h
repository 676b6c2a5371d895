// Starts a thread of the core.
//
// Signals belong to the interpreter's main thread: all are blocked while the thread is made, which inherits
// that. They are let in again also when there is no thread to be had (std::system_error): the caller's own
// must go on hearing them.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <thread>
#include <utility>

namespace byteps {

template <class Work>
std::thread start_thread(const std::string& name, Work&& work) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Blocked blocked;
  std::thread thread(std::forward<Work>(work));
  pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
  return thread;
}

}  // namespace byteps

// A test frame in one page: TEST(name) { CHECK(condition); CHECK_EQ(actual, expected); }
//
// Each test_*.cc becomes a program with the runner of check_main.cc: no argument runs every test of the file,
// an argument runs those whose name contains it, --list names them. A failed check is printed with its values
// and the test goes on; the exit code is 1 if any check failed. Checks may be used from several threads.
#pragma once

#include <atomic>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace byteps::check {

struct Test {
  std::string_view name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registration {
  Registration(std::string_view name, void (*run)()) { tests().push_back({name, run}); }
};

// A program with its own main (a stress test) returns failures() != 0.
inline std::atomic<int>& failures() {
  static std::atomic<int> count{0};
  return count;
}

template <class T>
std::string shown(const T& value) {
  std::ostringstream out;
  if constexpr (sizeof(T) == 1 && std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    out << static_cast<int>(value);  // a byte is a number here, not a character
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (requires { out << value; }) {
    out << std::boolalpha << value;
  } else {
    out << "(a value that cannot be printed)";
  }
  return out.str();
}

// A broken kernel can fail a million checks: the first ones say enough.
inline void fail(const char* file, int line, const std::string& what) {
  constexpr int kShown = 20;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const int count = ++failures();
  if (count <= kShown) std::cerr << file << ":" << line << ": " << what << "\n";
  if (count == kShown) std::cerr << "(further failures are only counted)\n";
}

template <class A, class B>
void check_equal(const char* file, int line, const char* text, const A& actual, const B& expected) {
  if (actual == expected) return;
  fail(file, line,
       std::string(text) + "\n    actual:   " + shown(actual) + "\n    expected: " + shown(expected));
}

}  // namespace byteps::check

#define TEST(name)                                                                    \
  static void test_##name();                                                          \
  static const ::byteps::check::Registration registration_##name{#name, test_##name}; \
  static void test_##name()

#define CHECK(condition) \
  ((condition) ? void() : ::byteps::check::fail(__FILE__, __LINE__, "CHECK(" #condition ") does not hold"))

#define CHECK_EQ(actual, expected)                                                                           \
  ::byteps::check::check_equal(__FILE__, __LINE__, "CHECK_EQ(" #actual ", " #expected ") differs", (actual), \
                               (expected))

// The statement must throw this exception (or one derived from it).
#define CHECK_THROWS(statement, exception)                                                                \
  do {                                                                                                    \
    bool thrown = false;                                                                                  \
    try {                                                                                                 \
      statement;                                                                                          \
    } catch (const exception&) {                                                                          \
      thrown = true;                                                                                      \
    }                                                                                                     \
    if (!thrown) ::byteps::check::fail(__FILE__, __LINE__, "CHECK_THROWS(" #statement ") did not throw"); \
  } while (false)

// The runner of every test_*.cc.
#include <exception>
#include <iostream>
#include <string_view>

#include "tests/check.h"

int main(int argc, char** argv) {
  using namespace byteps::check;
  const std::string_view filter = argc > 1 ? argv[1] : "";
  if (filter == "--list") {
    for (const Test& test : tests()) std::cout << test.name << "\n";
    return 0;
  }
  int ran = 0;
  for (const Test& test : tests()) {
    if (test.name.find(filter) == std::string_view::npos) continue;
    const int before = failures();
    ++ran;
    try {
      test.run();
    } catch (const std::exception& error) {
      fail(test.name.data(), 0, std::string("uncaught exception: ") + error.what());
    }
    std::cout << (failures() == before ? "ok    " : "FAIL  ") << test.name << "\n" << std::flush;
  }
  if (ran == 0) std::cerr << "no test matches \"" << filter << "\"\n";
  return ran == 0 || failures() != 0 ? 1 : 0;
}

// Runs a fuzz target without libFuzzer: every file of the corpus, then seeded random mutations of them.
//
//   fuzz_NAME [-runs=N] [-seed=S] [-max_len=BYTES] [FILE or DIRECTORY]...
//
// The options are those of libFuzzer, so that the same command drives either. The same seed makes the same
// inputs. An input that kills the process is saved as crash-input in the working directory: give that file as
// the only argument, with -runs=0, to see it die again.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// There when the target is built with a sanitizer: called before the sanitizer ends the process.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
// Of g++ the undefined behaviour sanitizer ends the process without that call: a signal tells us, too.
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace {

using Input = std::vector<uint8_t>;

const Input* current = nullptr;  // what the target is looking at, for save_current

// Called while the process dies: system calls only.
void save_current() {
  if (current == nullptr) return;
  const int fd = open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  constexpr std::string_view note = "the input was saved as crash-input\n";
  if (write(fd, current->data(), current->size()) >= 0 && write(STDERR_FILENO, note.data(), note.size()) < 0)
    return;
  close(fd);
}

void on_signal(int signal) {
  save_current();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// A copy of exactly this size on the heap, so that the address sanitizer sees a read past the end.
void run(const Input& input) {
  Input exact(input);
  exact.shrink_to_fit();
  current = &exact;
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  current = nullptr;
}

class Mutator {
 public:
  Mutator(uint64_t seed, size_t max_bytes) : random_(seed), max_bytes_(std::max<size_t>(max_bytes, 1)) {}

  Input next(const std::vector<Input>& corpus) {
    Input input = corpus.empty() ? Input() : corpus[below(corpus.size())];
    for (size_t steps = 1 + below(4); steps > 0; --steps) mutate(input, corpus);
    input.resize(std::min(input.size(), max_bytes_));
    return input;
  }

 private:
  size_t below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  uint8_t byte() { return static_cast<uint8_t>(random_()); }

  void mutate(Input& input, const std::vector<Input>& corpus) {
    const auto at = [&](size_t size) { return static_cast<std::ptrdiff_t>(below(size)); };
    switch (input.empty() ? 6 : below(8)) {
      case 0:  // one bit
        input[below(input.size())] ^= static_cast<uint8_t>(1u << below(8));
        return;
      case 1:  // one byte
        input[below(input.size())] = byte();
        return;
      case 2: {  // a number that code forgets: 0, -1, the limits, in one to eight bytes
        const size_t begin = below(input.size());
        const size_t width = std::min(size_t{1} << below(4), input.size() - begin);
        const bool low = below(2) == 0, high = below(2) == 0;
        for (size_t i = 0; i < width; ++i) input[begin + i] = low ? 0x00 : 0xFF;
        if (high) input[begin + width - 1] ^= 0x80;
        return;
      }
      case 3:  // cut
        input.resize(below(input.size()));
        return;
      case 4: {  // remove a piece
        const auto begin = input.begin() + at(input.size());
        input.erase(begin, begin + 1 + at(static_cast<size_t>(input.end() - begin)));
        return;
      }
      case 5: {  // repeat a piece
        const size_t begin = below(input.size());
        const Input piece(input.begin() + static_cast<std::ptrdiff_t>(begin), input.end());
        input.insert(input.end(), piece.begin(), piece.end());
        return;
      }
      case 6:  // noise at the end
        for (size_t count = 1 + below(below(4) == 0 ? max_bytes_ : 64); count > 0; --count)
          input.push_back(byte());
        return;
      default: {  // another file's end
        if (corpus.empty()) return;
        const Input& other = corpus[below(corpus.size())];
        if (other.empty()) return;
        input.resize(below(input.size() + 1));
        input.insert(input.end(), other.begin() + at(other.size()), other.end());
        return;
      }
    }
  }

  std::mt19937_64 random_;
  size_t max_bytes_;
};

Input read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

// Files in the order of their names: the same corpus and seed must make the same run everywhere.
std::vector<Input> read_corpus(const std::vector<std::filesystem::path>& arguments) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : arguments) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const auto& path : files) corpus.push_back(read(path));
  return corpus;
}

bool option(std::string_view argument, std::string_view name, uint64_t& value) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), value);
  return error == std::errc() && end == argument.data() + argument.size();
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 10000, seed = 1, max_len = 4096;
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (option(argument, "-runs=", runs) || option(argument, "-seed=", seed) ||
        option(argument, "-max_len=", max_len)) {
      continue;
    }
    if (argument.starts_with("-") || !std::filesystem::exists(argument)) {
      std::cerr << "expected -runs=N, -seed=S, -max_len=BYTES, a file or a directory; got \"" << argument
                << "\"\n";
      return 2;
    }
    paths.emplace_back(argument);
  }

  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(save_current);
    std::signal(SIGABRT, on_signal);
  } else {
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_signal);
  }

  const std::vector<Input> corpus = read_corpus(paths);
  run({});
  for (const Input& input : corpus) run(input);
  Mutator mutator(seed, max_len);
  for (uint64_t i = 0; i < runs; ++i) run(mutator.next(corpus));
  std::cout << "ran " << corpus.size() << " corpus files and " << runs << " mutations, seed " << seed << "\n";
  return 0;
}

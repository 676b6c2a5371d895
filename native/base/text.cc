#include "base/text.h"

#include <cstdint>

namespace byteps {
namespace {

// Bytes of the character that begins here, or 0 if none does: too short, too long for its value, a surrogate.
size_t character_bytes(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = at(0);
  const size_t bytes = first < 0x80                    ? 1
                       : first >= 0xC2 && first < 0xE0 ? 2
                       : (first & 0xF0) == 0xE0        ? 3
                       : first >= 0xF0 && first < 0xF5 ? 4
                                                       : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && at(1) < 0xA0) return 0;
  if (first == 0xED && at(1) >= 0xA0) return 0;
  if (first == 0xF0 && at(1) < 0x90) return 0;
  if (first == 0xF4 && at(1) >= 0x90) return 0;
  return bytes;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;  // U+0080 to U+009F
}

}  // namespace

std::string printable(std::string_view text, size_t most) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    const bool shown = bytes > 0 && !is_control(character);
    if (out.size() + (shown ? character.size() : 1) > most) break;
    if (shown) {
      out += character;
    } else {
      out += '?';
    }
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace byteps

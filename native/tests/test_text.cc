// What peers say reaches logs and Python only as valid, printable UTF-8.
#include "base/text.h"

#include "tests/check.h"

using byteps::printable;

TEST(what_people_can_read_stays) {
  for (const char* text : {"", "worker 1 (host b)", "größer als erwartet", "名前", "\xF0\x9F\x98\x80"}) {
    CHECK_EQ(printable(text), std::string(text));
  }
}

TEST(escape_codes_and_broken_characters_become_question_marks) {
  CHECK_EQ(printable("\x1B[31mred\x7F\n"), std::string("?[31mred??"));
  CHECK_EQ(printable("\xC2\x9B"
                     "31m"),
           std::string("?31m"));  // the escape code in two bytes
  CHECK_EQ(printable("a\xFF"
                     "b\xC3"),
           std::string("a?b?"));                                 // no character, half a character
  CHECK_EQ(printable("\xC0\xAF"), std::string("??"));            // too long for its value
  CHECK_EQ(printable("\xED\xA0\x80"), std::string("???"));       // a surrogate
  CHECK_EQ(printable("\xF4\x90\x80\x80"), std::string("????"));  // beyond the last character
  CHECK_EQ(printable(std::string_view("a\0b", 3)), std::string("a?b"));
}

TEST(long_texts_are_cut_between_characters) {
  CHECK_EQ(printable("aé", 2), std::string("a"));
  CHECK_EQ(printable("aé", 3), std::string("aé"));
}

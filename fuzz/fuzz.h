// What every fuzz target checks: whatever the bytes are, the reader takes them or
// refuses them with an InputError of one line. Anything else ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lrmoe/base/error.h"

namespace lrmoe::fuzz {

template <class Read>
void takes_or_refuses(Read&& read) {
  try {
    read();
  } catch (const InputError& error) {
    if (std::strpbrk(error.what(), "\n\r") != nullptr || error.what()[0] == '\0') {
      std::fprintf(stderr, "a message that is not one line: %s\n", error.what());
      std::abort();
    }
  }
}

}  // namespace lrmoe::fuzz

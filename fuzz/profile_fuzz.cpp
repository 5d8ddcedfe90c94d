// The reader of hardware profiles.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.h"
#include "lrmoe/cost/profile_toml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lrmoe::fuzz::takes_or_refuses([&] {
    lrmoe::cost::parse_profile({reinterpret_cast<const char*>(data), size}, "x");
  });
  return 0;
}

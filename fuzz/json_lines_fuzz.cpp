// The converters of JSON lines and of tables.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.h"
#include "lrmoe/trace/convert.h"
#include "lrmoe/trace/summary.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  lrmoe::fuzz::takes_or_refuses(
      [&] { lrmoe::trace::summarise(lrmoe::trace::from_json_lines(text, "x")); });
  lrmoe::fuzz::takes_or_refuses(
      [&] { lrmoe::trace::summarise(lrmoe::trace::from_table(text, "x")); });
  return 0;
}

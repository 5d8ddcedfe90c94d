// The trace reader, and with it the safetensors reader: every value is read, counted
// and described.
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/fuzz.h"
#include "lrmoe/trace/demand.h"
#include "lrmoe/trace/summary.h"
#include "lrmoe/trace/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lrmoe::fuzz::takes_or_refuses([&] {
    const auto trace = lrmoe::trace::Trace::parse(std::as_bytes(std::span(data, size)), "x");
    const auto summary = lrmoe::trace::summarise(trace, 3);
    lrmoe::trace::to_text(summary);
    lrmoe::trace::to_json(summary);
    lrmoe::trace::demand(trace, 0, 0, 2);
  });
  return 0;
}

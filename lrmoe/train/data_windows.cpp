#include "lrmoe/train/data_windows.h"

#include <algorithm>
#include <cmath>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"

namespace lrmoe::train {
namespace {

/// Sets the offsets' random bits apart from those of other uses of the seed.
constexpr std::uint64_t kTextBits = hash("text");

}  // namespace

Windows::Windows(std::size_t size, double validation_fraction, int sequence,
                 const std::string& where, const std::string& unit)
    : size_(size), length_(static_cast<std::size_t>(sequence) + 1) {
  LRMOE_ASSERT(sequence >= 1, "a sequence has at least one token");
  const std::string needs = "; one sequence takes " + std::to_string(length_) + " " + unit;
  if (size == 0) {
    throw InputError(where + "there is no text" + needs);
  }
  const auto held_out =
      static_cast<std::size_t>(std::floor(static_cast<double>(size) * validation_fraction));
  training_size_ = size - held_out;
  if (training_size_ < length_) {
    throw InputError(where + "its training part is too short (" + std::to_string(training_size_) +
                     " of " + std::to_string(size) + " " + unit + ")" + needs);
  }
  if (validation_fraction > 0 && held_out < length_) {
    throw InputError(where + "its held-out part is too short (" + std::to_string(held_out) +
                     " of " + std::to_string(size) + " " + unit + ")" + needs +
                     ": raise data.validation_fraction, or set it to 0 to hold out nothing");
  }
}

std::size_t Windows::offset(std::uint64_t seed, std::int64_t step, std::int64_t index) const {
  const std::uint64_t bits =
      hash({kTextBits, seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(index)});
  const std::uint64_t places = training_size_ - length_ + 1;
  // The high half of the 128-bit product: uniform over the places without a division.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>((Wide{bits} * places) >> 64);
}

std::int64_t Windows::held_out_count(std::int64_t tokens) const {
  const auto room = static_cast<std::int64_t>(held_out_size() / length_);
  return std::min(tokens / (static_cast<std::int64_t>(length_) - 1), room);
}

std::size_t Windows::held_out_offset(std::int64_t index, std::int64_t count) const {
  const std::size_t size = held_out_size();
  LRMOE_ASSERT(index >= 0 && index < count && static_cast<std::size_t>(count) * length_ <= size,
               "held-out sequence " + std::to_string(index) + " of " + std::to_string(count));
  // floor(index * size / count), without the product's overflow.
  const auto n = static_cast<std::size_t>(count);
  const auto i = static_cast<std::size_t>(index);
  return size / n * i + size % n * i / n;
}

}  // namespace lrmoe::train

#include "lrmoe/train/text.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/output_file.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

/// Sets the offsets' random bits apart from those of other uses of the seed.
constexpr std::uint64_t kTextBits = hash("text");

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) {
    if (fs::exists(path) && !fs::is_regular_file(path)) {
      throw InputError("data.path = " + quote(path.string()) +
                       ": neither a file nor a folder; it takes a text file or a folder of them");
    }
    return {path};
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  if (files.empty()) {
    throw InputError("data.path = " + quote(path.string()) +
                     ": the folder holds no file; it takes one text file or more");
  }
  return files;
}

std::vector<std::uint8_t> read_all(const std::string& path) {
  if (path.empty()) {
    throw InputError("data.path is missing; name a text file or a folder of them");
  }
  std::vector<std::uint8_t> bytes;
  try {
    for (const fs::path& file : files_of(path)) {
      const std::string text = read_text(file);
      bytes.insert(bytes.end(), text.begin(), text.end());
    }
  } catch (const fs::filesystem_error& error) {
    throw InputError("data.path = " + quote(path) + ": cannot read " +
                     quote(error.path1().string()) + ": " + error.code().message());
  } catch (const InputError& error) {
    const std::string what = error.what();
    throw InputError(what.starts_with("data.path") ? what
                                                   : "data.path = " + quote(path) + ": " + what);
  }
  return bytes;
}

}  // namespace

Text::Text(const DataConfig& data, int sequence)
    : Text(read_all(data.path), data.validation_fraction, sequence, data.path) {}

Text::Text(std::vector<std::uint8_t> bytes, double validation_fraction, int sequence,
           const std::string& name)
    : bytes_(std::move(bytes)), sequence_(sequence) {
  LRMOE_ASSERT(sequence >= 1, "a sequence has at least one token");
  divide(validation_fraction, name);
}

void Text::divide(double validation_fraction, const std::string& name) {
  const std::string where = "data.path = " + quote(name) + ": ";
  const std::string needs = "; one sequence takes " + std::to_string(length()) + " bytes";
  if (bytes_.empty()) {
    throw InputError(where + "there is no text" + needs);
  }
  const auto held_out = static_cast<std::size_t>(
      std::floor(static_cast<double>(bytes_.size()) * validation_fraction));
  training_size_ = bytes_.size() - held_out;
  if (training_size_ < length()) {
    throw InputError(where + "its training part is too short (" + std::to_string(training_size_) +
                     " of " + std::to_string(bytes_.size()) + " bytes)" + needs);
  }
  if (validation_fraction > 0 && held_out < length()) {
    throw InputError(where + "its held-out part is too short (" + std::to_string(held_out) +
                     " of " + std::to_string(bytes_.size()) + " bytes)" + needs +
                     ": raise data.validation_fraction, or set it to 0 to hold out nothing");
  }
}

std::size_t Text::offset(std::uint64_t seed, std::int64_t step, std::int64_t index) const {
  const std::uint64_t bits =
      hash({kTextBits, seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(index)});
  const std::uint64_t places = training_size_ - length() + 1;
  // The high half of the 128-bit product: uniform over the places without a division.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>((Wide{bits} * places) >> 64);
}

std::int64_t Text::held_out_count(std::int64_t tokens) const {
  const auto room = static_cast<std::int64_t>(held_out().size() / length());
  return std::min(tokens / sequence_, room);
}

Text::Bytes Text::held_out_sequence(std::int64_t index, std::int64_t count) const {
  const std::size_t size = held_out().size();
  LRMOE_ASSERT(index >= 0 && index < count && static_cast<std::size_t>(count) * length() <= size,
               "held-out sequence " + std::to_string(index) + " of " + std::to_string(count));
  // floor(index * size / count), without the product's overflow.
  const auto n = static_cast<std::size_t>(count);
  const auto i = static_cast<std::size_t>(index);
  return held_out().subspan(size / n * i + size % n * i / n, length());
}

}  // namespace lrmoe::train

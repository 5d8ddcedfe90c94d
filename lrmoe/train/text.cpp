#include "lrmoe/train/text.h"

#include <filesystem>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/output_file.h"
#include "lrmoe/train/data_files.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint8_t> read_all(const std::string& path) {
  std::vector<std::uint8_t> bytes;
  try {
    for (const fs::path& file : data_files(path)) {
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
    : bytes_(std::move(bytes)),
      windows_(bytes_.size(), validation_fraction, sequence, "data.path = " + quote(name) + ": ",
               "bytes") {}

}  // namespace lrmoe::train

#include "lrmoe/train/data.h"

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/data_examples.h"
#include "lrmoe/train/data_files.h"
#include "lrmoe/train/data_ids.h"
#include "lrmoe/train/data_stream.h"

namespace lrmoe::train {
namespace {

std::unique_ptr<const Data> open_ids(const DataConfig& data, int sequence, int vocabulary) {
  const std::vector<std::filesystem::path> files = data_files(data.path);
  switch (const DataKind kind = data_kind(data.path, files); kind) {
    case DataKind::text:
      return open_text(data, sequence, vocabulary);
    case DataKind::json_lines:
      return open_json_lines(data, files, sequence, vocabulary);
    case DataKind::npy:
      if (IdArray::from_npy(files.front()).shape().size() == 2) {
        return open_rows(data, files, sequence, vocabulary);
      }
      [[fallthrough]];
    default:
      return open_stream(data, kind, files, sequence, vocabulary);
  }
}

}  // namespace

std::unique_ptr<const Data> open_data(const DataConfig& data, int sequence, int vocabulary) {
  try {
    return open_ids(data, sequence, vocabulary);
  } catch (const InputError& error) {
    const std::string what = error.what();
    throw InputError(
        what.starts_with("data.path") ? what : "data.path = " + quote(data.path) + ": " + what);
  }
}

}  // namespace lrmoe::train

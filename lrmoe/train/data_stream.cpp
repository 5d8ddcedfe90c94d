#include "lrmoe/train/data_stream.h"

#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/data_ids.h"
#include "lrmoe/train/data_windows.h"
#include "lrmoe/train/text.h"

namespace lrmoe::train {
namespace {

std::size_t total_size(const std::vector<IdArray>& files) {
  std::size_t size = 0;
  for (const IdArray& file : files) {
    size += file.size();
  }
  return size;
}

// Every token of a piece but its first is trained on.
class Pieces : public Data {
 public:
  explicit Pieces(const Windows& windows) : windows_(windows) {}

  std::int64_t pick(std::uint64_t seed, const Turn& turn) const override {
    return static_cast<std::int64_t>(windows_.offset(seed, turn.step, turn.index));
  }
  std::int64_t held_out_count(std::int64_t tokens) const override {
    return windows_.held_out_count(tokens);
  }
  std::int64_t pick_held_out(std::int64_t index, std::int64_t count) const override {
    return static_cast<std::int64_t>(windows_.training_size() +
                                     windows_.held_out_offset(index, count));
  }
  Sequence read(std::int64_t place) const override {
    Sequence sequence;
    sequence.tokens.reserve(windows_.length());
    copy(static_cast<std::size_t>(place), windows_.length(), sequence.tokens);
    sequence.trained.assign(windows_.length(), 1);
    sequence.trained[0] = 0;
    return sequence;
  }
  Size size(std::int64_t /*place*/) const override {
    const auto inputs = static_cast<std::int64_t>(windows_.length()) - 1;
    return {inputs, inputs};
  }
  bool masked() const override { return false; }

 private:
  virtual void copy(std::size_t begin, std::size_t count, std::vector<std::int64_t>& out) const = 0;

  Windows windows_;
};

class Stream : public Pieces {
 public:
  Stream(std::vector<IdArray> files, const Windows& windows)
      : Pieces(windows), files_(std::move(files)) {
    for (const IdArray& file : files_) {
      ends_.push_back(file.size() + (ends_.empty() ? 0 : ends_.back()));
    }
  }

 private:
  void copy(std::size_t begin, std::size_t count, std::vector<std::int64_t>& out) const override {
    auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) -
                                      ends_.begin());
    for (; count > 0; ++i) {
      const std::size_t first = i == 0 ? 0 : ends_[i - 1];
      const std::size_t part = std::min(count, ends_[i] - begin);
      files_[i].append(begin - first, part, out);
      begin += part;
      count -= part;
    }
  }

  std::vector<IdArray> files_;
  std::vector<std::size_t> ends_;  // of each file's ids in the stream
};

class TextPieces : public Pieces {
 public:
  explicit TextPieces(Text text) : Pieces(text.windows()), text_(std::move(text)) {}

 private:
  void copy(std::size_t begin, std::size_t count, std::vector<std::int64_t>& out) const override {
    const Text::Bytes bytes = text_.all().subspan(begin, count);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }

  Text text_;
};

}  // namespace

std::unique_ptr<const Data> open_stream(const DataConfig& data, DataKind kind,
                                        const std::vector<std::filesystem::path>& files,
                                        int sequence, int vocabulary) {
  std::vector<IdArray> arrays;
  for (const std::filesystem::path& file : files) {
    arrays.push_back(kind == DataKind::npy
                         ? IdArray::from_npy(file)
                         : IdArray::from_raw(file, data.dtype == IdType::uint16 ? 2 : 4));
    if (arrays.back().shape().size() != 1) {
      throw InputError(arrays.back().name() +
                       ": the array has two dimensions, but that of the folder's first file has "
                       "one; a folder holds one or the other");
    }
  }
  const Windows windows(total_size(arrays), data.validation_fraction, sequence,
                        "data.path = " + quote(data.path) + ": ", "ids");
  for (const IdArray& array : arrays) {
    array.check(vocabulary);
  }
  return std::make_unique<const Stream>(std::move(arrays), windows);
}

std::unique_ptr<const Data> open_text(const DataConfig& data, int sequence, int vocabulary) {
  if (vocabulary < 256) {
    throw InputError("data.path = " + quote(data.path) +
                     ": text takes a vocabulary of all 256 bytes, but model.vocabulary = " +
                     std::to_string(vocabulary) + "; name token ids (.npy, .bin, .jsonl) instead");
  }
  return std::make_unique<const TextPieces>(Text(data, sequence));
}

}  // namespace lrmoe::train

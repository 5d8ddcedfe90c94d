#include "lrmoe/train/data_examples.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "lrmoe/base/mapped_file.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/data_ids.h"
#include "lrmoe/train/data_line.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kOrderBits = hash("examples");

// Numbered examples: a training part and, at the end, a held-out part.
class Examples : public Data {
 public:
  std::int64_t pick(std::uint64_t seed, const Turn& turn) const override {
    const std::int64_t number = turn.step * turn.per_step + turn.index;
    const auto epoch = static_cast<std::uint64_t>(number / training_);
    return shuffled(number % training_, training_, hash({kOrderBits, seed, epoch}));
  }
  std::int64_t held_out_count(std::int64_t tokens) const override {
    return std::min(tokens / sequence_, held_out_);
  }
  std::int64_t pick_held_out(std::int64_t index, std::int64_t count) const override {
    LRMOE_ASSERT(index >= 0 && index < count && count <= held_out_,
                 "held-out example " + std::to_string(index) + " of " + std::to_string(count));
    return training_ + held_out_ * index / count;
  }

 protected:
  // Once the examples are counted.
  void divide(std::int64_t count, const DataConfig& data, int sequence, const std::string& unit) {
    sequence_ = sequence;
    held_out_ = static_cast<std::int64_t>(
        std::floor(static_cast<double>(count) * data.validation_fraction));
    training_ = count - held_out_;
    const std::string where = "data.path = " + quote(data.path) + ": ";
    if (training_ == 0) {
      throw InputError(where + "there is no example to train on; it takes one of the " + unit +
                       " at least");
    }
    if (data.validation_fraction > 0 && held_out_ == 0) {
      throw InputError(where + "of its " + std::to_string(count) + " " + unit +
                       " none is held out: raise data.validation_fraction, or set it to 0");
    }
  }

 private:
  std::int64_t training_ = 0;
  std::int64_t held_out_ = 0;
  int sequence_ = 1;
};

class Rows : public Examples {
 public:
  Rows(std::vector<IdArray> files, const DataConfig& data, int sequence)
      : files_(std::move(files)) {
    std::int64_t count = 0;
    for (const IdArray& file : files_) {
      count += file.shape()[0];
      ends_.push_back(count);
    }
    divide(count, data, sequence, "rows");
  }

  Sequence read(std::int64_t place) const override {
    const auto [file, row] = find(place);
    const auto length = static_cast<std::size_t>(file->shape()[1]);
    Sequence sequence;
    file->append(static_cast<std::size_t>(row) * length, length, sequence.tokens);
    sequence.trained.assign(length, 1);
    sequence.trained[0] = 0;
    return sequence;
  }
  Size size(std::int64_t place) const override {
    const std::int64_t inputs = find(place).first->shape()[1] - 1;
    return {inputs, inputs};
  }
  bool masked() const override { return true; }

 private:
  std::pair<const IdArray*, std::int64_t> find(std::int64_t place) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), place);
    const IdArray& file = files_[static_cast<std::size_t>(end - ends_.begin())];
    return {&file, place - (*end - file.shape()[0])};
  }

  std::vector<IdArray> files_;
  std::vector<std::int64_t> ends_;  // of each file's rows
};

class JsonLines : public Examples {
 public:
  JsonLines(const std::vector<fs::path>& files, const DataConfig& data, int sequence,
            int vocabulary)
      : most_(static_cast<std::size_t>(sequence) + 1) {
    for (const fs::path& file : files) {
      index(file, vocabulary);
    }
    if (lines_.empty() && left_out_ > 0) {
      throw InputError("data.path = " + quote(data.path) + ": no trained token of any line is " +
                       "within the first " + std::to_string(most_) +
                       " tokens; raise model.sequence");
    }
    divide(static_cast<std::int64_t>(lines_.size()), data, sequence, "lines");
  }

  Sequence read(std::int64_t place) const override {
    const Line& line = lines_[static_cast<std::size_t>(place)];
    Sequence sequence = parse_line(text_of(line), line_name(line.file, line.number), 0);
    cut_sequence(sequence, most_);
    return sequence;
  }
  Size size(std::int64_t place) const override {
    return lines_[static_cast<std::size_t>(place)].size;
  }
  bool masked() const override { return true; }
  std::string note() const override {
    if (cut_ == 0 && left_out_ == 0) {
      return {};
    }
    return std::to_string(cut_ + left_out_) + " of " + std::to_string(lines_.size() + left_out_) +
           " examples are longer than " + std::to_string(most_) +
           " tokens (model.sequence + 1): " + std::to_string(cut_) + " are cut, " +
           std::to_string(left_out_) + " left out because only their prompt would remain";
  }

 private:
  struct Line {
    std::uint32_t file = 0;
    std::uint32_t number = 0;  // counts from 1
    std::size_t begin = 0;
    std::size_t length = 0;
    Size size;
  };

  void index(const fs::path& path, int vocabulary) {
    const auto file = static_cast<std::uint32_t>(files_.size());
    files_.push_back(std::make_unique<const MappedFile>(path));
    names_.push_back(quote(path.string()));
    const auto bytes = files_.back()->bytes();
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    std::uint32_t number = 1;
    for (std::size_t begin = 0; begin < text.size(); ++number) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view part = text.substr(begin, end - begin);
      if (part.find_first_not_of(" \t\r") != std::string_view::npos) {
        add({file, number, begin, part.size(), {}}, vocabulary);
      }
      begin = end + 1;
    }
  }

  void add(Line line, int vocabulary) {
    Sequence sequence = parse_line(text_of(line), line_name(line.file, line.number), vocabulary);
    const bool longer = sequence.tokens.size() > most_;
    cut_sequence(sequence, most_);
    line.size.inputs = static_cast<std::int64_t>(sequence.tokens.size()) - 1;
    line.size.trained = std::count(sequence.trained.begin(), sequence.trained.end(), 1);
    if (line.size.trained == 0) {
      ++left_out_;
      return;
    }
    cut_ += longer ? 1 : 0;
    lines_.push_back(line);
  }

  std::string_view text_of(const Line& line) const {
    const auto bytes = files_[line.file]->bytes();
    return {reinterpret_cast<const char*>(bytes.data()) + line.begin, line.length};
  }
  std::string line_name(std::uint32_t file, std::uint32_t number) const {
    return names_[file] + ", line " + std::to_string(number);
  }

  std::size_t most_;
  std::vector<std::unique_ptr<const MappedFile>> files_;
  std::vector<std::string> names_;
  std::vector<Line> lines_;
  std::size_t cut_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace

// A Feistel network on the least even number of bits that holds `count`, walked until it
// lands inside.
std::int64_t shuffled(std::int64_t index, std::int64_t count, std::uint64_t key) {
  LRMOE_ASSERT(index >= 0 && index < count, "an index outside its range");
  const int half = (std::bit_width(static_cast<std::uint64_t>(count - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto x = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = x >> half;
    std::uint64_t right = x & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t mixed = left ^ (hash({key, round, right}) & mask);
      left = right;
      right = mixed;
    }
    x = left << half | right;
  } while (x >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(x);
}

std::unique_ptr<const Data> open_rows(const DataConfig& data, const std::vector<fs::path>& files,
                                      int sequence, int vocabulary) {
  std::vector<IdArray> arrays;
  for (const fs::path& file : files) {
    const IdArray& array = arrays.emplace_back(IdArray::from_npy(file));
    if (array.shape().size() != 2) {
      throw InputError(array.name() +
                       ": the array has one dimension, but that of the folder's first file has "
                       "two; a folder holds one or the other");
    }
    if (array.shape()[1] < 2 || array.shape()[1] > sequence + 1) {
      throw InputError(array.name() + ": its rows are of " + std::to_string(array.shape()[1]) +
                       " tokens; with model.sequence = " + std::to_string(sequence) +
                       " a row takes 2 to " + std::to_string(sequence + 1));
    }
    array.check(vocabulary);
  }
  return std::make_unique<const Rows>(std::move(arrays), data, sequence);
}

std::unique_ptr<const Data> open_json_lines(const DataConfig& data,
                                            const std::vector<fs::path>& files, int sequence,
                                            int vocabulary) {
  return std::make_unique<const JsonLines>(files, data, sequence, vocabulary);
}

}  // namespace lrmoe::train

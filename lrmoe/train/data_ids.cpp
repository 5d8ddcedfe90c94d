#include "lrmoe/train/data_ids.h"

#include <algorithm>
#include <cstring>

#include "lrmoe/base/error.h"
#include "lrmoe/base/mapped_file.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/npy.h"

namespace lrmoe::train {
namespace {

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Calls `visit` with a value of the integer type that an array has.
template <class Visit>
auto with_type(std::size_t width, bool is_signed, Visit visit) {
  switch (width) {
    case 1:
      return is_signed ? visit(std::int8_t{}) : visit(std::uint8_t{});
    case 2:
      return is_signed ? visit(std::int16_t{}) : visit(std::uint16_t{});
    case 4:
      return is_signed ? visit(std::int32_t{}) : visit(std::uint32_t{});
    default:
      return is_signed ? visit(std::int64_t{}) : visit(std::uint64_t{});
  }
}

}  // namespace

void refuse_id(const std::string& where, const std::string& id, int vocabulary) {
  throw InputError(where + ": the token id " + id +
                   " is outside the model's vocabulary (model.vocabulary = " +
                   std::to_string(vocabulary) + ": ids are 0 to " + std::to_string(vocabulary - 1) +
                   "); were the ids made with this model's tokenizer?");
}

IdArray IdArray::from_npy(const std::filesystem::path& path) {
  const auto file = std::make_shared<const npy::Reader>(path);
  const std::string& dtype = file->dtype();
  IdArray ids;
  ids.name_ = quote(path.string());
  if (dtype[1] != 'i' && dtype[1] != 'u') {
    throw InputError(ids.name_ + ": the dtype " + quote(dtype) +
                     " is no integer type; token ids are integers, such as uint16 or int32");
  }
  ids.shape_ = file->shape();
  if (ids.shape_.size() != 1 && ids.shape_.size() != 2) {
    throw InputError(ids.name_ + ": the array has " + std::to_string(ids.shape_.size()) +
                     " dimensions; token ids have one (a long stream) or two (a sequence per row)");
  }
  ids.width_ = static_cast<std::size_t>(dtype[2] - '0');
  ids.is_signed_ = dtype[1] == 'i';
  if (dtype.size() != 3 ||
      (ids.width_ != 1 && ids.width_ != 2 && ids.width_ != 4 && ids.width_ != 8)) {
    throw InputError(ids.name_ + ": the dtype " + quote(dtype) +
                     " is no integer type of 1, 2, 4 or 8 bytes");
  }
  ids.bytes_ = file->bytes();
  ids.file_ = file;
  return ids;
}

IdArray IdArray::from_raw(const std::filesystem::path& path, int bytes_each) {
  const auto file = std::make_shared<const MappedFile>(path);
  IdArray ids;
  ids.name_ = quote(path.string());
  ids.bytes_ = file->bytes();
  ids.file_ = file;
  ids.width_ = static_cast<std::size_t>(bytes_each);
  if (ids.bytes_.size() % ids.width_ != 0) {
    throw InputError(ids.name_ + ": its " + std::to_string(ids.bytes_.size()) +
                     " bytes are no whole number of " + std::to_string(bytes_each) +
                     "-byte ids; is data.dtype right?");
  }
  ids.shape_ = {static_cast<std::int64_t>(ids.size())};
  return ids;
}

void IdArray::append(std::size_t begin, std::size_t count, std::vector<std::int64_t>& out) const {
  LRMOE_ASSERT(begin <= size() && count <= size() - begin, "ids beyond the array's end");
  with_type(width_, is_signed_, [&](auto kind) {
    for (std::size_t i = begin; i < begin + count; ++i) {
      out.push_back(static_cast<std::int64_t>(value_at<decltype(kind)>(bytes_, i)));
    }
  });
}

void IdArray::check(int vocabulary) const {
  with_type(width_, is_signed_, [&](auto kind) {
    using T = decltype(kind);
    const auto inside = [&](T id) {
      return id >= 0 && static_cast<std::uint64_t>(id) < static_cast<std::uint64_t>(vocabulary);
    };
    for (std::size_t i = 0; i < size(); ++i) {
      if (const T id = value_at<T>(bytes_, i); !inside(id)) {
        std::string place = "position " + std::to_string(i);
        if (shape_.size() == 2) {
          const auto row = static_cast<std::size_t>(shape_[1]);
          place = "row " + std::to_string(i / row) + ", position " + std::to_string(i % row);
        }
        refuse_id(name_ + ", " + place, std::to_string(id), vocabulary);
      }
    }
  });
}

}  // namespace lrmoe::train

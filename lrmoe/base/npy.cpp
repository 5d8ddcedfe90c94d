#include "lrmoe/base/npy.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::npy {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of the data
constexpr std::uint64_t kMost = std::uint64_t{1} << 62;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Header {
  std::optional<std::string> dtype;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

// The header's dictionary: three keys in any order, a string, True or False, and
// a tuple of whole numbers.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Header parse() {
    Header header;
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !header.dtype) {
        if (peek() == '[') {
          throw InputError(where_ + "the array has named fields; a plain array is wanted");
        }
        header.dtype = string();
      } else if (key == "fortran_order" && !header.fortran_order) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !header.shape) {
        header.shape = tuple();
      } else {
        fail("the key " + quote(key) + " is unknown or stands twice");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (peek() != '\0') {
      fail("something follows the dictionary");
    }
    if (!header.dtype || !header.fortran_order || !header.shape) {
      fail("'descr', 'fortran_order' or 'shape' is missing");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(where_ + "the header of the .npy file cannot be read: " + what);
  }
  // The next character that is not blank; 0 at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) {
      return false;
    }
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) {
      fail("'" + std::string(1, c) + "' expected at byte " + std::to_string(at_));
    }
  }
  bool take(std::string_view word) {
    peek();
    if (text_.substr(at_, word.size()) != word) {
      return false;
    }
    at_ += word.size();
    return true;
  }
  std::string string() {
    const char mark = peek();
    const std::size_t end = text_.find(mark, at_ + 1);
    if ((mark != '\'' && mark != '"') || end == std::string_view::npos) {
      fail("a string expected at byte " + std::to_string(at_));
    }
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    if (take("True")) {
      return true;
    }
    if (!take("False")) {
      fail("True or False expected at byte " + std::to_string(at_));
    }
    return false;
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!take(')')) {
      peek();
      std::int64_t value = -1;
      const char* begin = text_.data() + at_;
      const auto [stop, error] = std::from_chars(begin, text_.data() + text_.size(), value);
      if (error != std::errc{} || value < 0) {
        fail("an extent expected at byte " + std::to_string(at_));
      }
      at_ += static_cast<std::size_t>(stop - begin);
      values.push_back(value);
      if (!take(',')) {
        expect(')');
        if (values.size() == 1) {
          fail("a shape with one extent ends in a comma");
        }
        break;
      }
    }
    return values;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

/// Bytes of an element of a dtype that is a letter and a size; 0 for others.
std::uint64_t element_size(std::string_view dtype) {
  std::uint64_t size = 0;
  if (dtype.size() < 3 || std::string_view("<|").find(dtype[0]) == std::string_view::npos ||
      std::string_view("?biufc").find(dtype[1]) == std::string_view::npos) {
    return 0;
  }
  const char* end = dtype.data() + dtype.size();
  const auto [stop, error] = std::from_chars(dtype.data() + 2, end, size);
  return error == std::errc{} && stop == end && size <= 32 ? size : 0;
}

/// elements * size, or kMost when that is too much for any file.
std::uint64_t byte_count(const std::vector<std::int64_t>& shape, std::uint64_t element) {
  std::uint64_t bytes = element;
  for (const std::int64_t extent : shape) {
    if (extent == 0) {
      return 0;
    }
    bytes = bytes > kMost / static_cast<std::uint64_t>(extent)
                ? kMost
                : bytes * static_cast<std::uint64_t>(extent);
  }
  return bytes;
}

// Integers of type T.
template <class T>
std::vector<std::int64_t> widen(std::span<const std::byte> bytes, const std::string& where) {
  std::vector<std::int64_t> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        throw InputError(where + "the value " + std::to_string(value) + " at position " +
                         std::to_string(i) + " is above 2^63 - 1");
      }
    }
    values[i] = static_cast<std::int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): a number
  }
  return values;
}

}  // namespace

Reader::Reader(const std::filesystem::path& path)
    : where_(quote(path.string()) + ": "), file_(path) {
  const std::span<const std::byte> all = file_.bytes();
  const std::string_view text = text_of(all);
  if (text.substr(0, kMagic.size()) != kMagic) {
    throw InputError(where_ + "this is no .npy file; numpy.save writes one");
  }
  if (text.size() < 10) {
    throw InputError(where_ + "the .npy file ends within its header");
  }
  const auto byte_at = [&](std::size_t i) { return std::to_integer<std::size_t>(all[i]); };
  const std::size_t version = byte_at(6);
  if (version < 1 || version > 3 || byte_at(7) != 0) {
    throw InputError(where_ + "version " + std::to_string(version) + "." +
                     std::to_string(byte_at(7)) +
                     " of the .npy format is unknown; 1.0, 2.0 and "
                     "3.0 can be read");
  }
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes && text.size() >= begin; ++i) {
    length |= byte_at(8 + i) << (8 * i);
  }
  if (text.size() < begin || length > text.size() - begin) {
    throw InputError(where_ + "the .npy file ends within its header");
  }
  const Header header = HeaderParser(text.substr(begin, length), where_).parse();
  dtype_ = *header.dtype;
  shape_ = *header.shape;
  bytes_ = all.subspan(begin + length);
  const std::uint64_t element = element_size(dtype_);
  if (element == 0) {
    throw InputError(where_ + "the dtype " + quote(dtype_) +
                     " is not supported; plain little-endian numbers are, such as '<i4'");
  }
  // Of one dimension, both orders are the same.
  if (*header.fortran_order && shape_.size() > 1) {
    throw InputError(where_ + "the array is in Fortran order; save numpy.ascontiguousarray(array)");
  }
  const std::uint64_t wanted = byte_count(shape_, element);
  if (wanted != bytes_.size()) {
    throw InputError(where_ + "the header promises " + std::to_string(wanted) +
                     " bytes of values, but there are " + std::to_string(bytes_.size()));
  }
}

std::vector<std::int64_t> Reader::integers() const {
  const std::string kind = dtype_.substr(1);
  if (kind == "i1") {
    return widen<std::int8_t>(bytes_, where_);
  }
  if (kind == "u1") {
    return widen<std::uint8_t>(bytes_, where_);
  }
  if (kind == "i2") {
    return widen<std::int16_t>(bytes_, where_);
  }
  if (kind == "u2") {
    return widen<std::uint16_t>(bytes_, where_);
  }
  if (kind == "i4") {
    return widen<std::int32_t>(bytes_, where_);
  }
  if (kind == "u4") {
    return widen<std::uint32_t>(bytes_, where_);
  }
  if (kind == "i8") {
    return widen<std::int64_t>(bytes_, where_);
  }
  if (kind == "u8") {
    return widen<std::uint64_t>(bytes_, where_);
  }
  throw InputError(where_ + "the dtype " + quote(dtype_) +
                   " is no integer type; u1, u2, i4 or i8 would do");
}

Writer::Writer(const std::filesystem::path& path, const std::string& dtype,
               const std::vector<std::int64_t>& shape)
    : file_(path), left_(byte_count(shape, element_size(dtype))) {
  LRMOE_ASSERT(element_size(dtype) > 0, "[npy] no such dtype: " + dtype);
  std::string header = "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    header += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  header += shape.size() == 1 ? ",), }" : "), }";
  const std::size_t before = kMagic.size() + 4;
  const std::size_t size = (before + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(size - before - 1, ' ');
  header += '\n';
  LRMOE_ASSERT(header.size() < 65536, "[npy] the header is too long for version 1");
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
            static_cast<char>(header.size() >> 8)};
  file_.write(start + header);
}

void Writer::append(std::span<const std::byte> bytes) {
  LRMOE_ASSERT(bytes.size() <= left_, "[npy] more bytes than the shape holds");
  file_.write(bytes);
  left_ -= bytes.size();
}

void Writer::commit() {
  LRMOE_ASSERT(left_ == 0, "[npy] fewer bytes than the shape holds");
  file_.commit();
}

}  // namespace lrmoe::npy

#include "lrmoe/base/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/mapped_file.h"
#include "lrmoe/base/names.h"

namespace lrmoe::safetensors {
namespace {

using Json = nlohmann::json;  // sorted by name: lookups stay fast with many tensors

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::uint64_t kMost = std::uint64_t{1} << 62;

constexpr std::array<std::pair<std::string_view, std::size_t>, 16> kDtypes{{{"BOOL", 1},
                                                                            {"U8", 1},
                                                                            {"I8", 1},
                                                                            {"F8_E5M2", 1},
                                                                            {"F8_E4M3", 1},
                                                                            {"F8_E8M0", 1},
                                                                            {"I16", 2},
                                                                            {"U16", 2},
                                                                            {"F16", 2},
                                                                            {"BF16", 2},
                                                                            {"I32", 4},
                                                                            {"U32", 4},
                                                                            {"F32", 4},
                                                                            {"F64", 8},
                                                                            {"I64", 8},
                                                                            {"U64", 8}}};

/// elements * size, or kMost when that is too much for any file.
std::uint64_t byte_count(const std::vector<std::int64_t>& shape, std::size_t element) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return 0;
  }
  std::uint64_t bytes = element;
  for (const std::int64_t extent : shape) {
    if (static_cast<std::uint64_t>(extent) > kMost / bytes) {
      return kMost;
    }
    bytes *= static_cast<std::uint64_t>(extent);
  }
  return bytes;
}

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

/// Parses JSON; a name that stands twice in an object is refused.
Json parse_header(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      names.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      names.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto name = parsed.get<std::string>();
      if (!names.back().insert(name).second && twice.empty()) {
        twice = quote(name);
      }
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& error) {
    throw InputError(where + "the header is not JSON: " + one_line(error.what()));
  }
  if (!header.is_object()) {
    throw InputError(where + "the header is no JSON object");
  }
  if (!twice.empty()) {
    throw InputError(where + "the name " + twice + " stands twice in the header");
  }
  return header;
}

/// A list of whole numbers, none negative.
bool read_numbers(const Json& json, std::vector<std::int64_t>& numbers) {
  if (!json.is_array()) {
    return false;
  }
  for (const Json& item : json) {
    // Literals that end in .0 or have an exponent are floats, and no extents.
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > kMost) {
      return false;
    }
    numbers.push_back(item.get<std::int64_t>());
  }
  return true;
}

struct Entry {
  Tensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Entry read_entry(const std::string& name, const Json& json, std::uint64_t data_size,
                 const std::string& file) {
  const std::string where = file + "tensor " + quote(name) + ": ";
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!json.is_object() || !json.contains(key)) {
      throw InputError(where + "has no " + key + "; it takes dtype, shape and data_offsets");
    }
  }
  if (json.size() != 3) {
    throw InputError(where + "has more than dtype, shape and data_offsets");
  }
  Entry entry;
  entry.tensor.name = name;
  const Json& dtype = json["dtype"];
  entry.tensor.dtype = dtype.is_string() ? dtype.get<std::string>() : "";
  const std::size_t element = size_of(entry.tensor.dtype);
  if (element == 0) {
    throw InputError(where + "unknown dtype " + one_line(dtype.dump(-1, ' ', true), 40));
  }
  if (!read_numbers(json["shape"], entry.tensor.shape)) {
    throw InputError(where + "shape must be a list of whole numbers, none negative");
  }
  std::vector<std::int64_t> offsets;
  if (!read_numbers(json["data_offsets"], offsets) || offsets.size() != 2 ||
      offsets[0] > offsets[1]) {
    throw InputError(where + "data_offsets must be [begin, end] with begin <= end");
  }
  entry.begin = static_cast<std::uint64_t>(offsets[0]);
  entry.end = static_cast<std::uint64_t>(offsets[1]);
  if (entry.end > data_size) {
    throw InputError(where + "ends at byte " + std::to_string(entry.end) +
                     " of the data, which has " + std::to_string(data_size) +
                     "; the file is cut off or damaged");
  }
  const std::uint64_t bytes = byte_count(entry.tensor.shape, element);
  if (bytes != entry.end - entry.begin) {
    throw InputError(where + "has " + std::to_string(entry.end - entry.begin) +
                     " bytes, but its shape and dtype take " + std::to_string(bytes));
  }
  return entry;
}

void check_cover(const std::vector<Entry>& entries, std::uint64_t data_size,
                 const std::string& file) {
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      throw InputError(file + "tensor " + quote(entry.tensor.name) + ": begins at byte " +
                       std::to_string(entry.begin) + " of the data, where " + std::to_string(at) +
                       " is the next (" + (entry.begin < at ? "an overlap)" : "a gap)"));
    }
    at = entry.end;
  }
  if (at != data_size) {
    throw InputError(file + "the tensors end at byte " + std::to_string(at) +
                     " of the data, which has " + std::to_string(data_size));
  }
}

}  // namespace

std::int64_t Tensor::elements() const {
  return static_cast<std::int64_t>(byte_count(shape, 1));
}

std::size_t size_of(std::string_view dtype) {
  for (const auto& [name, size] : kDtypes) {
    if (name == dtype) {
      return size;
    }
  }
  return 0;
}

Reader::Reader(const std::filesystem::path& path) : name_(quote(path.string())) {
  auto mapped = std::make_shared<const MappedFile>(path);
  mapping_ = mapped;
  parse(mapped->bytes());
}

Reader::Reader(std::span<const std::byte> file, const std::string& name) : name_(quote(name)) {
  parse(file);
}

void Reader::parse(std::span<const std::byte> file) {
  const std::string where = name_ + ": ";
  if (file.size() < kLengthBytes) {
    throw InputError(where + "no safetensors file: it has " + std::to_string(file.size()) +
                     " bytes, and the header's length alone takes 8");
  }
  const std::uint64_t length = little_endian(file);
  if (length > kLongestHeader || length > file.size() - kLengthBytes) {
    throw InputError(where + "no safetensors file, or cut off: its header would take " +
                     std::to_string(length) + " bytes of " +
                     std::to_string(file.size() - kLengthBytes));
  }
  const std::span<const std::byte> data = file.subspan(kLengthBytes + length);
  const Json header =
      parse_header({reinterpret_cast<const char*>(file.data()) + kLengthBytes, length}, where);

  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(read_entry(name, json, data.size(), where));
      continue;
    }
    if (!json.is_object()) {
      throw InputError(where + "__metadata__ must map names to strings");
    }
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) {
        throw InputError(where + "__metadata__ " + quote(key) + " is no string");
      }
      metadata_[key] = value.get<std::string>();
    }
  }
  // Empty tensors sort before the one that begins at the same byte.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_cover(entries, data.size(), where);
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    by_name_[entry.tensor.name] = tensors_.size();
    tensors_.push_back(std::move(entry.tensor));
  }
}

const Tensor* Reader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const Tensor& Reader::at(std::string_view name) const {
  if (const Tensor* tensor = find(name)) {
    return *tensor;
  }
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors_) {
    names.push_back(tensor.name);
  }
  throw InputError(name_ + ": there is no tensor " + quote(name) +
                   (names.empty() ? "; the file has none"
                                  : "; the nearest is " + quote(nearest_name(name, names))));
}

Writer::Writer(const std::filesystem::path& path, std::span<const Tensor> tensors,
               const Metadata& metadata)
    : file_(path) {
  Json header = Json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  for (const Tensor& tensor : tensors) {
    const std::size_t element = size_of(tensor.dtype);
    LRMOE_ASSERT(element > 0, "unknown dtype of tensor " + tensor.name);
    LRMOE_ASSERT(tensor.name != "__metadata__" && !header.contains(tensor.name),
                 "tensor " + tensor.name + " is written twice");
    const std::uint64_t end = left_ + byte_count(tensor.shape, element);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {left_, end}}};
    left_ = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned
  std::array<std::byte, kLengthBytes> length;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(text.size() >> (8 * i) & 0xff);
  }
  file_.write(length);
  file_.write(text);
}

void Writer::append(std::span<const std::byte> bytes) {
  LRMOE_ASSERT(bytes.size() <= left_, "more bytes than the header announced");
  file_.write(bytes);
  left_ -= bytes.size();
}

void Writer::commit() {
  LRMOE_ASSERT(left_ == 0, std::to_string(left_) + " bytes of the tensors are missing");
  file_.commit();
}

void write(const std::filesystem::path& path, std::span<const Tensor> tensors,
           const Metadata& metadata) {
  Writer writer(path, tensors, metadata);
  for (const Tensor& tensor : tensors) {
    LRMOE_ASSERT(tensor.bytes.size() == byte_count(tensor.shape, size_of(tensor.dtype)),
                 "bytes and shape of tensor " + tensor.name + " do not agree");
    writer.append(tensor.bytes);
  }
  writer.commit();
}

}  // namespace lrmoe::safetensors

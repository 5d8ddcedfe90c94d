#include "lrmoe/base/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lrmoe/base/error.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::npy {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

/// A file with this header and data.
std::string file_of(const std::string& header, const std::string& data, int version = 1) {
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  return text + header + data;
}

std::string header_of(const std::string& dtype, const std::string& shape,
                      const std::string& order = "False") {
  return "{'descr': '" + dtype + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }  \n";
}

/// What the reader says of a file, after its name.
std::string refusal(const std::string& contents, bool integers = false) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.npy";
  write_file(path, contents);
  const std::string message = testing::message_of<InputError>([&] {
    const Reader reader(path);
    if (integers) {
      reader.integers();
    }
  });
  const std::string name = "'" + path.string() + "': ";
  EXPECT_EQ(message.find(name), 0U) << message;
  return message.substr(std::min(name.size(), message.size()));
}

std::vector<std::int64_t> integers_of(const std::string& contents) {
  const TemporaryFolder folder;
  write_file(folder / "x.npy", contents);
  return Reader(folder / "x.npy").integers();
}

template <class T>
std::string data_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(Npy, ReadsIntegersOfAllSizesAndVersions) {
  using Values = std::vector<std::int64_t>;
  EXPECT_EQ(integers_of(file_of(header_of("|u1", "(2,)"), data_of<std::uint8_t>({7, 255}))),
            (Values{7, 255}));
  EXPECT_EQ(integers_of(file_of(header_of("|i1", "(2,)"), data_of<std::int8_t>({7, -1}))),
            (Values{7, -1}));
  EXPECT_EQ(integers_of(file_of(header_of("<u2", "(1, 2)"), data_of<std::uint16_t>({7, 65535}), 2)),
            (Values{7, 65535}));
  EXPECT_EQ(integers_of(file_of(header_of("<i2", "(2,)"), data_of<std::int16_t>({7, -3}))),
            (Values{7, -3}));
  EXPECT_EQ(integers_of(file_of(header_of("<i4", "(2,)"), data_of<std::int32_t>({-7, 8}), 3)),
            (Values{-7, 8}));
  EXPECT_EQ(integers_of(file_of(header_of("<u4", "(1,)"), data_of<std::uint32_t>({4000000000U}))),
            (Values{4000000000}));
  EXPECT_EQ(integers_of(file_of(header_of("<i8", "()"), data_of<std::int64_t>({-5}))),
            (Values{-5}));
  EXPECT_EQ(integers_of(file_of(header_of("<u8", "(1,)"), data_of<std::uint64_t>({5}))),
            (Values{5}));
  // Keys in another order, double quotes, no comma at the end.
  EXPECT_EQ(integers_of(file_of(R"({"shape":(2,),"fortran_order":True,"descr":"|u1"})", "ab")),
            (Values{'a', 'b'}));
}

TEST(Npy, RefusesInOneLine) {
  const std::string good = file_of(header_of("<i4", "(2,)"), "12345678");
  EXPECT_EQ(refusal("PK\x03\x04 a zip"), "this is no .npy file; numpy.save writes one");
  EXPECT_EQ(refusal(""), "this is no .npy file; numpy.save writes one");
  EXPECT_EQ(refusal(good.substr(0, 8)), "the .npy file ends within its header");
  EXPECT_EQ(refusal(good.substr(0, 40)), "the .npy file ends within its header");
  EXPECT_EQ(refusal(good.substr(0, good.size() - 1)),
            "the header promises 8 bytes of values, but there are 7");
  EXPECT_EQ(refusal(good + "9"), "the header promises 8 bytes of values, but there are 9");
  EXPECT_EQ(refusal(file_of(header_of("<i4", "(2,)"), "12345678", 4)),
            "version 4.0 of the .npy format is unknown; 1.0, 2.0 and 3.0 can be read");
  EXPECT_EQ(refusal(file_of(header_of("<i4", "(2, 1)", "True"), "12345678")),
            "the array is in Fortran order; save numpy.ascontiguousarray(array)");
  EXPECT_EQ(refusal(file_of(header_of(">i4", "(2,)"), "12345678")),
            "the dtype '>i4' is not supported; plain little-endian numbers are, such as '<i4'");
  EXPECT_EQ(refusal(file_of(header_of("|O", "(2,)"), "12345678")),
            "the dtype '|O' is not supported; plain little-endian numbers are, such as '<i4'");
  EXPECT_EQ(refusal(file_of("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,)}",
                            "12345678")),
            "the array has named fields; a plain array is wanted");
  const std::string unreadable = "the header of the .npy file cannot be read: ";
  EXPECT_EQ(refusal(file_of("{'descr': '<i4', 'shape': (2,)}", "12345678")),
            unreadable + "'descr', 'fortran_order' or 'shape' is missing");
  EXPECT_EQ(refusal(file_of("{'descr': '<i4', 'descr': '<i4'}", "")),
            unreadable + "the key 'descr' is unknown or stands twice");
  EXPECT_EQ(refusal(file_of(header_of("<i4", "(2)"), "12345678")),
            unreadable + "a shape with one extent ends in a comma");
  for (const char* shape :
       {"(-2,)", "(2,, 1)", "(2, x)", "2", "(99999999999999999999,)", "(1.5,)"}) {
    EXPECT_EQ(refusal(file_of(header_of("<i4", shape), "12345678")).find(unreadable), 0U) << shape;
  }
  EXPECT_EQ(refusal(file_of("{'descr': '<i4", "")).find(unreadable), 0U);
  EXPECT_EQ(refusal(file_of("", "")).find(unreadable), 0U);
  EXPECT_EQ(refusal(file_of(header_of("<i4", "(2,)").substr(0, 50) + "} x", "")).find(unreadable),
            0U);
  // Extents whose product passes 64 bits.
  EXPECT_EQ(refusal(file_of(header_of("<i4", "(4294967296, 4294967296, 4)"), "")),
            "the header promises 4611686018427387904 bytes of values, but there are 0");
}

TEST(Npy, IntegersOnly) {
  EXPECT_EQ(refusal(file_of(header_of("<f4", "(2,)"), "12345678"), true),
            "the dtype '<f4' is no integer type; u1, u2, i4 or i8 would do");
  EXPECT_EQ(refusal(file_of(header_of("|b1", "(2,)"), "12"), true),
            "the dtype '|b1' is no integer type; u1, u2, i4 or i8 would do");
  EXPECT_EQ(refusal(file_of(header_of("<u8", "(1,)"), std::string(8, '\xff')), true),
            "the value 18446744073709551615 at position 0 is above 2^63 - 1");
}

TEST(Npy, WriterRoundTrip) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.npy";
  const std::vector<float> values{1.5F, -2.0F, 3.25F, 0.0F, 5.0F, 6.0F};
  const auto bytes = std::as_bytes(std::span(values));
  Writer writer(path, "<f4", {2, 3});
  writer.append(bytes.first(10));
  EXPECT_THROW(writer.commit(), InternalError);
  EXPECT_THROW(writer.append(bytes), InternalError);
  writer.append(bytes.subspan(10));
  EXPECT_FALSE(fs::exists(path));
  writer.commit();
  const Reader reader(path);
  EXPECT_EQ(reader.dtype(), "<f4");
  EXPECT_EQ(reader.shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(reader.bytes().data(), values.data(), bytes.size()), 0);
  EXPECT_EQ(fs::file_size(path) - bytes.size(), 128U);  // the data is aligned

  Writer line(path, "|u1", {0});
  line.commit();
  EXPECT_EQ(Reader(path).shape(), (std::vector<std::int64_t>{0}));
}

}  // namespace
}  // namespace lrmoe::npy

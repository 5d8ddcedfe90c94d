#include "lrmoe/base/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lrmoe/base/error.h"
#include "lrmoe/base/hash.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::safetensors {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

std::string file_of(const std::string& header, const std::string& data) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  return text + header + data;
}

/// What the reader says of a file with this header, after the file's name.
std::string refusal(const std::string& header, std::size_t data_size) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.safetensors";
  write_file(path, file_of(header, std::string(data_size, 'd')));
  const std::string message = testing::message_of<InputError>([&] { Reader reader(path); });
  const std::string name = "'" + path.string() + "': ";
  EXPECT_EQ(message.find(name), 0U) << message;
  return message.substr(std::min(name.size(), message.size()));
}

TEST(Safetensors, RoundTrip) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.safetensors";
  const std::vector<float> floats{1.5F, -2.0F, 3.25F, 0.0F, 5.0F, 6.0F};
  const std::vector<std::uint8_t> bytes{7, 8, 9};
  const Metadata metadata{{"format", "test"}, {"quote\"d", "l\nine \xc3\xa9"}};
  const std::vector<Tensor> tensors{{"b", "U8", {3}, std::as_bytes(std::span(bytes))},
                                    {"a.weight", "F32", {2, 3}, std::as_bytes(std::span(floats))},
                                    {"empty", "I64", {4, 0}, {}},
                                    {"scalar", "U8", {}, std::as_bytes(std::span(bytes).first(1))}};
  write(path, tensors, metadata);

  const Reader reader(path);
  EXPECT_EQ(reader.metadata(), metadata);
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (const Tensor& tensor : tensors) {
    const Tensor& read = reader.at(tensor.name);
    EXPECT_EQ(read.dtype, tensor.dtype);
    EXPECT_EQ(read.shape, tensor.shape);
    ASSERT_EQ(read.bytes.size(), tensor.bytes.size());
    EXPECT_TRUE(std::equal(read.bytes.begin(), read.bytes.end(), tensor.bytes.begin()));
  }
  EXPECT_EQ(reader.at("a.weight").elements(), 6);
  EXPECT_EQ(reader.at("empty").elements(), 0);
  EXPECT_EQ(reader.find("nothing"), nullptr);
  EXPECT_EQ(testing::message_of<InputError>([&] { reader.at("a.weigth"); }),
            "'" + path.string() + "': there is no tensor 'a.weigth'; the nearest is 'a.weight'");
  // The data begins at a multiple of 8, so the first tensor is aligned.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reader.tensors()[0].bytes.data()) % 8, 0U);
}

TEST(Safetensors, WriterTakesPiecesAndInsistsOnAllOfThem) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.safetensors";
  const std::vector<std::byte> data(10, std::byte{42});
  const std::vector<Tensor> tensors{{"a", "U8", {10}, {}}};
  Writer writer(path, tensors);
  writer.append(std::span(data).first(4));
  EXPECT_THROW(writer.commit(), InternalError);
  EXPECT_THROW(writer.append(data), InternalError);
  writer.append(std::span(data).first(6));
  EXPECT_FALSE(fs::exists(path));
  writer.commit();
  EXPECT_EQ(Reader(path).at("a").bytes[9], std::byte{42});
  const std::vector<Tensor> twice{{"a", "U8", {1}, {}}, {"a", "U8", {1}, {}}};
  EXPECT_THROW(Writer(path, twice), InternalError);
  const std::vector<Tensor> odd{{"a", "F31", {1}, {}}};
  EXPECT_THROW(Writer(path, odd), InternalError);
}

TEST(Safetensors, EmptyFileOfTensors) {
  const TemporaryFolder folder;
  write(folder / "x", {}, {});
  EXPECT_TRUE(Reader(folder / "x").tensors().empty());
}

TEST(Safetensors, RefusesWhatIsNoSuchFile) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  const std::string name = "'" + path.string() + "'";
  const auto message = [&] {
    return testing::message_of<InputError>([&] { Reader reader(path); });
  };
  EXPECT_EQ(message(), "cannot read " + name + ": No such file or directory");
  write_file(path, "");
  EXPECT_EQ(message().find(name + ": no safetensors file: it has 0 bytes"), 0U);
  write_file(path, "PK\x03\x04 a zip archive, say");
  EXPECT_EQ(message().find(name + ": no safetensors file, or cut off"), 0U);
  write_file(path, std::string(8, '\xff'));
  EXPECT_EQ(message().find(name + ": no safetensors file, or cut off"), 0U);
  EXPECT_EQ(testing::message_of<InputError>([&] { Reader reader(folder.path()); }),
            "cannot read '" + folder.path().string() + "': it is no regular file");
}

TEST(Safetensors, RefusesDamagedHeaders) {
  const auto entry = [](const std::string& rest) { return "{\"t\":{" + rest + "}}"; };
  EXPECT_EQ(refusal("{\"t\":", 0).find("the header is not JSON: "), 0U);
  EXPECT_EQ(refusal("{\"\xff\":1}", 0).find("the header is not JSON: "), 0U);
  EXPECT_EQ(refusal("[]", 0), "the header is no JSON object");
  EXPECT_EQ(refusal("{\"t\":7}", 0),
            "tensor 't': has no dtype; it takes dtype, shape and data_offsets");
  EXPECT_EQ(refusal(entry("\"dtype\":\"F32\",\"shape\":[1]"), 4),
            "tensor 't': has no data_offsets; it takes dtype, shape and data_offsets");
  EXPECT_EQ(refusal(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"), 4),
            "tensor 't': has more than dtype, shape and data_offsets");
  EXPECT_EQ(refusal(entry(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4),
            "tensor 't': unknown dtype \"F33\"");
  EXPECT_EQ(refusal(entry(R"("dtype":5,"shape":[1],"data_offsets":[0,4])"), 4),
            "tensor 't': unknown dtype 5");
  for (const std::string shape : {"[-1]", "[1.0]", "3", "[\"1\"]", "[99999999999999999999]"}) {
    EXPECT_EQ(refusal(entry("\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[0,4]"), 4),
              "tensor 't': shape must be a list of whole numbers, none negative");
  }
  for (const std::string offsets : {"[4,0]", "[0]", "[0,4,4]", "[-4,0]", "4", "[0.0,4.0]"}) {
    EXPECT_EQ(refusal(entry("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + offsets), 4),
              "tensor 't': data_offsets must be [begin, end] with begin <= end");
  }
  EXPECT_EQ(refusal(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4),
            "tensor 't': ends at byte 8 of the data, which has 4; the file is cut off or damaged");
  EXPECT_EQ(refusal(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
            "tensor 't': has 4 bytes, but its shape and dtype take 8");
  // 2^32 * 2^32 elements: the product must not wrap around to 0.
  EXPECT_EQ(
      refusal(entry(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0)
          .find("tensor 't': has 0 bytes, but its shape and dtype take "),
      0U);
}

TEST(Safetensors, RefusesOverlapsGapsAndRepeatedNames) {
  const auto two = [](const std::string& a, const std::string& b, const std::string& name) {
    return R"({"t":{"dtype":"U8","shape":[4],"data_offsets":)" + a + R"(},")" + name +
           R"(":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(refusal(two("[0,4]", "[2,6]", "s"), 6),
            "tensor 's': begins at byte 2 of the data, where 4 is the next (an overlap)");
  EXPECT_EQ(refusal(two("[0,4]", "[0,4]", "s"), 4),
            "tensor 't': begins at byte 0 of the data, where 4 is the next (an overlap)");
  EXPECT_EQ(refusal(two("[5,9]", "[0,4]", "s"), 9),
            "tensor 't': begins at byte 5 of the data, where 4 is the next (a gap)");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]", "s"), 9),
            "the tensors end at byte 8 of the data, which has 9");
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]", "t"), 8), "the name 't' stands twice in the header");
  EXPECT_EQ(refusal("{}", 1), "the tensors end at byte 0 of the data, which has 1");
  EXPECT_EQ(refusal(R"({"__metadata__":[]})", 0), "__metadata__ must map names to strings");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", 0), "__metadata__ 'a' is no string");
}

// Whatever bytes change or go missing, the reader answers with tensors that lie
// in the file or with one InputError line.
TEST(Safetensors, SurvivesRandomDamage) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  const std::vector<std::byte> data(24, std::byte{1});
  const std::vector<Tensor> tensors{{"first", "F32", {2, 2}, std::span(data).first(16)},
                                    {"second", "I64", {1}, std::span(data).first(8)}};
  write(path, tensors, {{"key", "value"}});
  const std::string whole = read_text(path);
  int refused = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::string text = whole;
    for (std::uint64_t j = 0; j <= hash({i, 1}) % 3; ++j) {
      text[hash({i, j, 2}) % text.size()] = static_cast<char>(hash({i, j, 3}) & 0xff);
    }
    if (hash({i, 4}) % 4 == 0) {
      text.resize(hash({i, 5}) % text.size());
    }
    const fs::path damaged = folder / "y";
    {
      OutputFile file(damaged);
      file.write(text);
    }
    try {
      const Reader reader(damaged);
      for (const Tensor& tensor : reader.tensors()) {
        EXPECT_EQ(tensor.bytes.size(),
                  static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype));
      }
    } catch (const InputError& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(Safetensors, DeepNestingIsRefusedNotOverrun) {
  const std::size_t depth = 1'000'000;
  EXPECT_EQ(refusal(std::string(depth, '['), 0).find("the header is not JSON: "), 0U);
  EXPECT_EQ(refusal("{\"t\":" + std::string(depth, '[') + std::string(depth, ']') + "}", 0),
            "tensor 't': has no dtype; it takes dtype, shape and data_offsets");
}

}  // namespace
}  // namespace lrmoe::safetensors

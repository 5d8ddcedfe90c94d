#include "lrmoe/train/text.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;

std::vector<std::uint8_t> counting(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

std::string all_of(const Text& text) {
  std::string all(text.training().begin(), text.training().end());
  return all + std::string(text.held_out().begin(), text.held_out().end());
}

TEST(Text, AFolderIsReadInTheOrderOfItsPaths) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "b/deep");
  write_file(folder / "c", "33");
  write_file(folder / "b/deep/z", "2");
  write_file(folder / "a", "11");
  EXPECT_EQ(all_of(Text({folder.path().string(), 0}, 2)), "11233");
  EXPECT_EQ(all_of(Text({(folder / "c").string(), 0}, 1)), "33");
}

TEST(Text, TheEndIsHeldOut) {
  const Text text(counting(100), 0.25, 4, "x");
  EXPECT_EQ(text.training().size(), 75U);
  EXPECT_EQ(text.held_out().size(), 25U);
  EXPECT_EQ(text.held_out()[0], 75);
}

TEST(Text, SequencesDependOnSeedStepAndIndexAlone) {
  const Text text(counting(200), 0.1, 16, "x");
  const Text same(counting(200), 0.1, 16, "y");
  EXPECT_EQ(text.offset(1, 2, 3), same.offset(1, 2, 3));
  EXPECT_EQ(text.batch(1, 2, 3).size(), 17U);
  EXPECT_EQ(text.batch(1, 2, 3)[0], static_cast<std::uint8_t>(text.offset(1, 2, 3)));
  int differ = 0;
  for (int i = 0; i < 20; ++i) {
    differ += text.offset(1, 2, i) != text.offset(2, 2, i);
    differ += text.offset(1, 2, i) != text.offset(1, 3, i);
    differ += text.offset(1, 2, i) != text.offset(1, 2, i + 1);
  }
  EXPECT_GT(differ, 50);
}

TEST(Text, EveryPlaceIsDrawnAboutEquallyOften) {
  const Text text(counting(19), 0, 9, "x");  // places 0 to 9
  std::map<std::size_t, int> counts;
  for (int i = 0; i < 10000; ++i) {
    ++counts[text.offset(7, i / 10, i % 10)];
  }
  ASSERT_EQ(counts.size(), 10U);
  for (const auto& [place, count] : counts) {
    EXPECT_LT(place, 10U);
    EXPECT_NEAR(count, 1000, 150);  // five standard deviations
  }
}

TEST(Text, ExactlyOneSequenceIsEnough) {
  const Text text(counting(10), 0, 9, "x");
  EXPECT_EQ(text.offset(1, 1, 1), 0U);
  EXPECT_EQ(text.batch(1, 1, 1).size(), 10U);
  EXPECT_EQ(text.held_out_count(1000), 0);
}

TEST(Text, HeldOutSequencesAreEvenlySpacedAndDoNotOverlap) {
  const Text text(counting(2000), 0.5, 32, "x");
  EXPECT_EQ(text.held_out_count(100), 3);
  EXPECT_EQ(text.held_out_count(1 << 20), 30);  // 1000 / 33
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, std::int64_t{30}}) {
    const std::uint8_t* end = text.held_out().data();
    for (std::int64_t i = 0; i < count; ++i) {
      const Text::Bytes sequence = text.held_out_sequence(i, count);
      EXPECT_EQ(sequence.size(), 33U);
      EXPECT_EQ(sequence.data() - text.held_out().data(), 1000 * i / count);
      EXPECT_GE(sequence.data(), end);
      end = sequence.data() + sequence.size();
    }
    EXPECT_LE(end, text.held_out().data() + text.held_out().size());
  }
  EXPECT_THROW(text.held_out_sequence(0, 31), InternalError);
}

TEST(Text, BadTextsAreRefusedWithOneLine) {
  const TemporaryFolder folder;
  const auto message = [](const std::string& path, double fraction) {
    return message_of<InputError>([&] { Text({path, fraction}, 9); });
  };
  EXPECT_EQ(
      message("", 0),
      "data.path is missing; name a text file, token ids (.npy, .bin), JSON lines (.jsonl) or a "
      "folder of them");
  const std::string missing = (folder / "none").string();
  EXPECT_EQ(message(missing, 0), "data.path = '" + missing + "': cannot read '" + missing +
                                     "': No such file or directory");
  EXPECT_EQ(message(folder.path().string(), 0),
            "data.path = '" + folder.path().string() +
                "': the folder holds no file; it takes one text file or more");
  const std::string file = (folder / "f").string();
  write_file(file, "");
  EXPECT_EQ(message(file, 0),
            "data.path = '" + file + "': there is no text; one sequence takes 10 bytes");
  write_file(file, "123456789");
  EXPECT_EQ(message(file, 0),
            "data.path = '" + file +
                "': its training part is too short (9 of 9 bytes); one sequence takes 10 bytes");
  write_file(file, "1234567890123456789");
  EXPECT_EQ(message(file, 0.3),
            "data.path = '" + file +
                "': its held-out part is too short (5 of 19 bytes); one sequence takes 10 bytes: "
                "raise data.validation_fraction, or set it to 0 to hold out nothing");
}

}  // namespace
}  // namespace lrmoe::train

// Token data: what each kind of file gives, in which order, and what is refused.
#include "lrmoe/train/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/npy.h"
#include "lrmoe/train/data_examples.h"
#include "tests/error_message.h"
#include "tests/temporary_folder.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;
using Ids = std::vector<std::int64_t>;
using Mask = std::vector<std::uint8_t>;

template <class T>
void write_raw(const fs::path& path, const std::vector<T>& ids) {
  write_file(path, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)});
}

template <class T>
void write_npy(const fs::path& path, const std::string& dtype, const std::vector<T>& ids,
               const std::vector<std::int64_t>& shape) {
  npy::Writer file(path, dtype, shape);
  file.append(std::as_bytes(std::span<const T>(ids)));
  file.commit();
}

template <class T>
std::vector<T> counting(std::size_t size) {
  std::vector<T> ids(size);
  std::iota(ids.begin(), ids.end(), T{0});
  return ids;
}

std::unique_ptr<const Data> open(const fs::path& path, double held_out = 0, int sequence = 4,
                                 int vocabulary = 1000, IdType dtype = IdType::uint16) {
  return open_data({path.string(), held_out, dtype}, sequence, vocabulary);
}

std::string refusal(const fs::path& path, double held_out = 0, int sequence = 4,
                    int vocabulary = 1000) {
  return message_of<InputError>([&] { open(path, held_out, sequence, vocabulary); });
}

// A stream of 0, 1, 2, ...: every piece begins with its place and counts on.
void expect_counting(const Data& data, int sequence) {
  for (int i = 0; i < 50; ++i) {
    const std::int64_t place = data.pick(7, {i, i % 3, 3});
    const Sequence s = data.read(place);
    Ids want(static_cast<std::size_t>(sequence) + 1);
    std::iota(want.begin(), want.end(), place);
    EXPECT_EQ(s.tokens, want);
    EXPECT_EQ(s.trained, (Mask{0, 1, 1, 1, 1}));
    EXPECT_EQ(data.size(place).inputs, sequence);
    EXPECT_EQ(data.size(place).trained, sequence);
  }
}

TEST(Data, StreamsOfAnyIntegerTypeGiveTheSameTokens) {
  const TemporaryFolder folder;
  write_raw(folder / "a.bin", counting<std::uint16_t>(300));
  expect_counting(*open(folder / "a.bin"), 4);
  write_raw(folder / "b.bin", counting<std::uint32_t>(300));
  expect_counting(*open(folder / "b.bin", 0, 4, 1000, IdType::uint32), 4);
  write_npy(folder / "c.npy", "<i8", counting<std::int64_t>(300), {300});
  expect_counting(*open(folder / "c.npy"), 4);
  write_npy(folder / "d.npy", "<u2", counting<std::uint16_t>(300), {300});
  expect_counting(*open(folder / "d.npy"), 4);
  EXPECT_FALSE(open(folder / "d.npy")->masked());
}

TEST(Data, FilesOfAFolderFollowEachOther) {
  const TemporaryFolder folder;
  const auto all = counting<std::uint16_t>(300);
  write_raw(folder / "1.bin", std::vector<std::uint16_t>(all.begin(), all.begin() + 100));
  write_raw(folder / "2.bin", std::vector<std::uint16_t>(all.begin() + 100, all.begin() + 102));
  write_raw(folder / "3.bin", std::vector<std::uint16_t>(all.begin() + 102, all.end()));
  write_file(folder / "3.json", "{}");  // what the tokenizer writes beside its ids
  expect_counting(*open(folder.path()), 4);
  write_file(folder / "4.jsonl", R"({"tokens": [1, 2]})");
  EXPECT_NE(refusal(folder.path()).find("are of different kinds"), std::string::npos);
}

TEST(Data, TheEndOfAStreamIsHeldOut) {
  const TemporaryFolder folder;
  write_raw(folder / "a.bin", counting<std::uint16_t>(300));
  const auto data = open(folder / "a.bin", 0.1);
  for (int i = 0; i < 300; ++i) {
    EXPECT_LE(data->pick(1, {i, 0, 1}), 265);
  }
  ASSERT_EQ(data->held_out_count(1000), 6);
  EXPECT_EQ(data->held_out_count(9), 2);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(data->read(data->pick_held_out(i, 6)).tokens[0], 270 + 5 * i);
  }
}

TEST(Data, RowsAreTakenOncePerRound) {
  const TemporaryFolder folder;
  write_npy(folder / "a.npy", "<i4", counting<std::int32_t>(60), {20, 3});
  const auto data = open(folder / "a.npy", 0.25);
  EXPECT_TRUE(data->masked());
  std::vector<Ids> rounds(3);
  for (std::int64_t i = 0; i < 45; ++i) {  // 15 rows are trained on; steps of 5
    const Sequence row = data->read(data->pick(3, {i / 5, i % 5, 5}));
    EXPECT_EQ(row.trained, (Mask{0, 1, 1}));
    EXPECT_EQ(row.tokens[1], row.tokens[0] + 1);
    rounds[static_cast<std::size_t>(i / 15)].push_back(row.tokens[0]);
  }
  EXPECT_NE(rounds[0], rounds[1]);
  for (Ids& round : rounds) {
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round.front(), 0);
    EXPECT_EQ(round.back(), 42);
    EXPECT_EQ(std::set<std::int64_t>(round.begin(), round.end()).size(), 15U);
  }
  EXPECT_EQ(data->held_out_count(1000), 5);
  EXPECT_EQ(data->read(data->pick_held_out(0, 5)).tokens[0], 45);
  EXPECT_EQ(data->size(0).inputs, 2);
}

TEST(Data, ShuffledIsAPermutationThatDependsOnItsKey) {
  for (const std::int64_t count : {1, 2, 3, 5, 8, 100, 1025}) {
    std::set<std::int64_t> seen;
    int moved = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = shuffled(i, count, 5);
      EXPECT_GE(place, 0);
      EXPECT_LT(place, count);
      seen.insert(place);
      moved += place != shuffled(i, count, 6) ? 1 : 0;
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
    EXPECT_TRUE(count < 100 || moved > count * 9 / 10);
  }
}

TEST(Data, LinesSayWhatIsTrainedOn) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl",
             "{\"tokens\": [5, 6, 7], \"prompt\": 2}\n"
             "\n"
             "{\"tokens\": [1, 2, 3], \"mask\": [1, 1, 0], \"note\": \"other keys are free\"}\r\n"
             "{\"tokens\": [9, 8]}");
  const auto data = open(folder / "a.jsonl");
  EXPECT_TRUE(data->masked());
  EXPECT_TRUE(data->note().empty());
  const std::vector<Mask> masks = {{0, 0, 1}, {0, 1, 0}, {0, 1}};
  const std::vector<Ids> ids = {{5, 6, 7}, {1, 2, 3}, {9, 8}};
  for (std::size_t i = 0; i < 3; ++i) {
    const Sequence s = data->read(static_cast<std::int64_t>(i));
    EXPECT_EQ(s.tokens, ids[i]);
    EXPECT_EQ(s.trained, masks[i]);
    EXPECT_EQ(data->size(static_cast<std::int64_t>(i)).trained, 1);
  }
}

TEST(Data, LongLinesAreCutAndThatIsSaid) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl",
             "{\"tokens\": [1, 2, 3, 4, 5, 6, 7], \"prompt\": 3}\n"
             "{\"tokens\": [1, 2, 3, 4, 5, 6, 7], \"prompt\": 6}\n"
             "{\"tokens\": [1, 2, 3, 4, 5]}\n");
  const auto data = open(folder / "a.jsonl");
  EXPECT_EQ(data->note(),
            "2 of 3 examples are longer than 5 tokens (model.sequence + 1): 1 are cut, 1 left out "
            "because only their prompt would remain");
  EXPECT_EQ(data->read(0).tokens, (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(data->read(0).trained, (Mask{0, 0, 0, 1, 1}));
  EXPECT_EQ(data->size(0).trained, 2);
  EXPECT_EQ(data->size(1).inputs, 4);
  EXPECT_EQ(data->pick(1, {0, 0, 2}) + data->pick(1, {0, 1, 2}), 1);  // two are left
}

TEST(DataMistakes, IdsOutsideTheVocabularyAreNamed) {
  const TemporaryFolder folder;
  const std::string end =
      " is outside the model's vocabulary (model.vocabulary = 50: ids are 0 to 49); were the ids "
      "made with this model's tokenizer?";
  const auto expect = [&](const std::string& name, const std::string& place) {
    const std::string path = (folder / name).string();
    EXPECT_EQ(refusal(folder / name, 0, 4, 50),
              "data.path = '" + path + "': '" + path + "', " + place + end);
  };
  write_raw(folder / "a.bin", counting<std::uint16_t>(60));
  expect("a.bin", "position 50: the token id 50");
  write_npy(folder / "b.npy", "<i4", std::vector<std::int32_t>{1, 2, 3, 4, -7, 6}, {2, 3});
  expect("b.npy", "row 1, position 1: the token id -7");
  write_npy(folder / "d.npy", "<u8", std::vector<std::uint64_t>(9, ~std::uint64_t{0}), {9});
  expect("d.npy", "position 0: the token id 18446744073709551615");
  write_file(folder / "c.jsonl", "{\"tokens\": [1, 2]}\n{\"tokens\": [1, 2, 50]}\n");
  expect("c.jsonl", "line 2, token 2: the token id 50");
  write_file(folder / "e.jsonl", "{\"tokens\": [18446744073709551615, 2]}\n");
  expect("e.jsonl", "line 1, token 0: the token id 18446744073709551615");
}

TEST(DataMistakes, LinesThatSayNothingUsable) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::string& line, const std::string& part) {
    write_file(folder / "x.jsonl", "{\"tokens\": [1, 2]}\n" + line + "\n");
    const std::string message = refusal(folder / "x.jsonl");
    EXPECT_NE(message.find("x.jsonl', line 2"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect("{\"tokens\": [1, 2", "no JSON object");
  expect("[1, 2]", "no JSON object");
  expect("{\"text\": \"hello\"}", "python -m lrmoe.tokenize");
  expect("{\"tokens\": 5}", "no list");
  expect("{\"tokens\": [1, 2.5]}", "token 1: 2.5 is no whole number");
  expect("{\"tokens\": [1]}", "1 tokens have nothing to predict");
  expect("{\"tokens\": [1, 2], \"prompt\": 2}", "0 to 1 of these 2");
  expect("{\"tokens\": [1, 2], \"prompt\": -1}", "\"prompt\" is -1");
  expect("{\"tokens\": [1, 2], \"mask\": [1]}", "\"mask\" has 1 entries for 2 tokens");
  expect("{\"tokens\": [1, 2], \"mask\": [1, 2]}", "\"mask\" has 2 at position 1");
  expect("{\"tokens\": [1, 2], \"mask\": [1, 0]}", "leaves no token to train on");
  expect("{\"tokens\": [1, 2], \"mask\": [1, 1], \"prompt\": 1}", "both");
}

TEST(DataMistakes, FilesThatCannotBeUsed) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::string& name, const std::string& part, double held_out = 0) {
    const std::string message = refusal(folder / name, held_out);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  write_file(folder / "odd.bin", "abc");
  expect("odd.bin", "no whole number of 2-byte ids; is data.dtype right?");
  write_raw(folder / "short.bin", counting<std::uint16_t>(4));
  expect("short.bin", "4 of 4 ids");
  write_raw(folder / "ok.bin", counting<std::uint16_t>(50));
  expect("ok.bin", "held-out part is too short (2 of 50 ids)", 0.05);
  write_npy(folder / "real.npy", "<f4", std::vector<float>(9), {9});
  expect("real.npy", "no integer type");
  write_npy(folder / "deep.npy", "<i4", std::vector<std::int32_t>(8), {2, 2, 2});
  expect("deep.npy", "3 dimensions");
  write_npy(folder / "long.npy", "<i4", std::vector<std::int32_t>(12), {2, 6});
  expect("long.npy", "its rows are of 6 tokens; with model.sequence = 4 a row takes 2 to 5");
  write_file(folder / "empty.jsonl", "\n");
  expect("empty.jsonl", "there is no example");
  write_file(folder / "one.jsonl", "{\"tokens\": [1, 2]}\n");
  expect("one.jsonl", "none is held out", 0.05);
  write_file(folder / "cut.jsonl", "{\"tokens\": [1, 2, 3, 4, 5, 6], \"prompt\": 5}\n");
  expect("cut.jsonl", "raise model.sequence");
  expect("missing.jsonl", "No such file");
  write_file(folder / "text.txt", "some text");
  EXPECT_NE(refusal(folder / "text.txt", 0, 4, 99).find("all 256 bytes"), std::string::npos);
}

}  // namespace
}  // namespace lrmoe::train

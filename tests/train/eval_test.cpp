// lrmoe eval: its loss is the trainer's, its logits give its loss, both on any
// number of ranks; what it cannot take is refused in one line.
#include "lrmoe/train/eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lrmoe/base/error.h"
#include "lrmoe/base/npy.h"
#include "lrmoe/train/text.h"
#include "tests/error_message.h"
#include "tests/train/run_helper.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing_runs::options_for;
using testing_runs::TemporaryFolder;
using testing_runs::tiny_config;

template <class T>
void write_ids(const fs::path& path, const std::vector<std::int64_t>& shape,
               const std::vector<T>& ids) {
  const std::string kind = sizeof(T) == 1 ? "|u1" : sizeof(T) == 2 ? "<u2" : "<i8";
  npy::Writer writer(path, kind, shape);
  writer.append(std::as_bytes(std::span(ids)));
  writer.commit();
}

std::vector<float> read_floats(const fs::path& path, const std::vector<std::int64_t>& shape) {
  const npy::Reader reader(path);
  EXPECT_EQ(reader.dtype(), "<f4");
  EXPECT_EQ(reader.shape(), shape);
  std::vector<float> values(reader.bytes().size() / sizeof(float));
  std::memcpy(values.data(), reader.bytes().data(), reader.bytes().size());
  return values;
}

double cross_entropy(const float* logits, int vocabulary, std::int64_t target) {
  double sum = 0;
  for (int i = 0; i < vocabulary; ++i) {
    sum += std::exp(static_cast<double>(logits[i]) - static_cast<double>(logits[target]));
  }
  return std::log(sum);
}

/// A run of the tiny model on two ranks, with a quarter of the pairs kept.
class Eval : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = with_strategy(tiny_config(folder_, 2), "lrmoe:ratio=0.25");
    config_.train.checkpoint_every = 10;
    config_.train.evaluate_tokens = 64;
    config_.model.dense_layers = {0};
    result_ = train(options_for(config_, folder_, "run"));
    for (const char c : testing_runs::sentences(150)) {
      ids_.push_back(static_cast<std::uint8_t>(c));
    }
  }

  EvalOptions options(const std::string& tokens, int ranks = 1) const {
    EvalOptions options;
    options.model = folder_ / "run";
    options.tokens = folder_ / tokens;
    options.ranks = ranks;
    return options;
  }

  std::string refusal(const std::string& model, const std::string& tokens) const {
    EvalOptions wrong = options(tokens);
    wrong.model = folder_ / model;
    std::string message = message_of<InputError>([&] { evaluate(wrong); });
    // Without the folder, which has another name each time.
    const std::string folder = folder_ / "";
    for (std::size_t at = message.find(folder); at != std::string::npos;
         at = message.find(folder)) {
      message.erase(at, folder.size());
    }
    return message;
  }

  TemporaryFolder folder_;
  Config config_;
  TrainResult result_;
  std::vector<std::uint8_t> ids_;
};

TEST_F(Eval, is_the_trainers_evaluation) {
  const Text text(config_.data, config_.model.sequence);
  double sum = 0;
  const std::int64_t count = text.held_out_count(config_.train.evaluate_tokens);
  ASSERT_EQ(count, 4);
  for (std::int64_t i = 0; i < count; ++i) {
    // The model's sequence and one more token, which is the last one's target.
    const Text::Bytes bytes = text.held_out_sequence(i, count);
    write_ids<std::int64_t>(folder_ / "ids.npy", {17}, {bytes.begin(), bytes.end()});
    const EvalResult result = evaluate(options("ids.npy"));
    EXPECT_EQ(result.step, 20);
    EXPECT_EQ(result.tokens, 17);
    EXPECT_EQ(result.scored, 16);
    EXPECT_DOUBLE_EQ(result.perplexity, std::exp(result.loss));
    sum += result.loss;
  }
  EXPECT_NEAR(sum / 4, result_.validations.back().loss, 1e-5 * sum);
}

TEST_F(Eval, one_long_sequence_gives_the_same_numbers_on_any_ranks) {
  const auto tokens = static_cast<std::int64_t>(ids_.size());
  ASSERT_NE(tokens % config_.model.sequence, 0);  // the last piece is shorter
  write_ids(folder_ / "ids.npy", {tokens}, ids_);
  double loss = 0;
  std::vector<float> logits;
  for (const int ranks : {1, 2, 4, 3, 11}) {
    EvalOptions o = options("ids.npy", ranks);
    o.logits = folder_ / "logits.npy";
    const EvalResult result = evaluate(o);
    EXPECT_EQ(result.scored, tokens - 1);
    const std::vector<float> found = read_floats(o.logits, {tokens, 256});
    if (ranks == 1) {
      loss = result.loss;
      logits = found;
      double sum = 0;
      for (std::size_t i = 0; i + 1 < ids_.size(); ++i) {
        sum += cross_entropy(&found[i * 256], 256, ids_[i + 1]);
      }
      EXPECT_NEAR(loss, sum / static_cast<double>(tokens - 1), 1e-5 * loss);
      continue;
    }
    EXPECT_NEAR(result.loss, loss, 1e-5 * loss);
    ASSERT_EQ(found.size(), logits.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], logits[i], 1e-4) << ranks << " ranks, " << i;
    }
  }
}

TEST_F(Eval, rows_are_sequences_of_their_own) {
  const std::vector<std::uint16_t> rows(ids_.begin(), ids_.begin() + 130);
  write_ids(folder_ / "rows.npy", {13, 10}, rows);
  EvalOptions o = options("rows.npy", 2);
  o.logits = folder_ / "logits.npy";
  const EvalResult result = evaluate(o);
  EXPECT_EQ(result.tokens, 130);
  EXPECT_EQ(result.scored, 13 * 9);
  const std::vector<float> logits = read_floats(o.logits, {130, 256});
  double sum = 0;
  for (std::size_t i = 0; i < 130; ++i) {
    sum += i % 10 == 9 ? 0 : cross_entropy(&logits[i * 256], 256, rows[i + 1]);
  }
  EXPECT_NEAR(result.loss, sum / (13 * 9), 1e-5 * result.loss);
  // A row alone gives what it gives among others.
  write_ids(folder_ / "row.npy", {1, 10},
            std::vector<std::uint16_t>(rows.begin() + 30, rows.begin() + 40));
  EvalOptions one = options("row.npy");
  one.logits = folder_ / "one.npy";
  evaluate(one);
  const std::vector<float> alone = read_floats(one.logits, {10, 256});
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_NEAR(alone[i], logits[std::size_t{30} * 256 + i], 1e-4);
  }
}

TEST_F(Eval, takes_the_newest_checkpoint_or_the_named_one) {
  write_ids(folder_ / "ids.npy", {static_cast<std::int64_t>(ids_.size())}, ids_);
  const EvalResult newest = evaluate(options("ids.npy"));
  EXPECT_EQ(newest.step, 20);
  EXPECT_EQ(newest.checkpoint, folder_ / "run/step-20");
  EvalOptions named = options("ids.npy");
  named.model = folder_ / "run/step-10";
  const EvalResult earlier = evaluate(named);
  EXPECT_EQ(earlier.step, 10);
  EXPECT_GT(earlier.loss, newest.loss);
  // A copy under another name is the same checkpoint.
  fs::rename(folder_ / "run/step-10", folder_ / "copy");
  named.model = folder_ / "copy";
  EXPECT_EQ(evaluate(named).loss, earlier.loss);
}

TEST_F(Eval, refuses_in_one_line) {
  write_ids(folder_ / "ids.npy", {static_cast<std::int64_t>(ids_.size())}, ids_);
  EXPECT_EQ(refusal("none", "ids.npy"),
            "'none' does not exist; name a Hugging Face folder, a run folder or a checkpoint in it "
            "(step-N)");
  EXPECT_EQ(
      refusal("ids.npy", "ids.npy"),
      "'ids.npy' is no folder; name a Hugging Face folder, a run folder or a checkpoint in it "
      "(step-N)");
  fs::create_directory(folder_ / "empty");
  EXPECT_EQ(
      refusal("empty", "ids.npy"),
      "'empty' is no run folder, no checkpoint and no Hugging Face folder: there is no step-N, "
      "no state.json and no config.json in it");
  std::ofstream(folder_ / "empty/config.toml") << "[train]\n";
  EXPECT_EQ(refusal("empty", "ids.npy"),
            "'empty' is a run folder without a checkpoint; train.checkpoint_every or the end of "
            "the run writes one");
  std::ofstream(folder_ / "empty/config.json") << "{}";
  EXPECT_EQ(
      refusal("empty", "ids.npy"),
      "'empty/config.json': model_type = '' is not a model type that this program knows; there "
      "are: qwen3_moe, glm4_moe, olmoe, mixtral");
  EXPECT_EQ(refusal("run", "none.npy"), "cannot read 'none.npy': No such file or directory");

  const auto refused = [&](const std::vector<std::int64_t>& shape,
                           const std::vector<std::int64_t>& ids) {
    write_ids(folder_ / "wrong.npy", shape, ids);
    return refusal("run", "wrong.npy");
  };
  EXPECT_EQ(refused({0}, {}), "'wrong.npy': the array is empty; it takes two tokens at least");
  EXPECT_EQ(refused({3, 0}, {}), "'wrong.npy': the array is empty; it takes two tokens at least");
  EXPECT_EQ(refused({1}, {5}),
            "'wrong.npy': a sequence of one token has nothing to predict; it takes two at least");
  EXPECT_EQ(refused({2, 1}, {5, 6}),
            "'wrong.npy': a sequence of one token has nothing to predict; it takes two at least");
  EXPECT_EQ(refused({1, 1, 2}, {5, 6}),
            "'wrong.npy': the array has 3 dimensions; token ids have one (a long sequence) or two "
            "(a sequence per row)");
  EXPECT_EQ(refused({1, 17}, std::vector<std::int64_t>(17, 1)),
            "'wrong.npy': rows of 17 tokens are longer than the model's sequence (16); a "
            "one-dimensional array is cut into pieces of that length");
  EXPECT_EQ(refused({3}, {1, 256, 2}),
            "'wrong.npy': the token id 256 at position 1 is outside the model's vocabulary (0 to "
            "255)");
  EXPECT_EQ(refused({3}, {1, 2, -1}),
            "'wrong.npy': the token id -1 at position 2 is outside the model's vocabulary (0 to "
            "255)");

  fs::resize_file(folder_ / "run/step-20/model.safetensors", 100);
  EXPECT_EQ(refusal("run", "ids.npy").find("'run/step-20/model.safetensors'"), 0U);
}

}  // namespace
}  // namespace lrmoe::train

#include "lrmoe/cost/work.h"

#include <bit>
#include <type_traits>

#include "lrmoe/base/error.h"

namespace lrmoe::cost {
namespace {

// Both directions go through one list of the fields, so they cannot drift apart.
template <class Work, class Archive>
void visit(Work& w, Archive&& archive) {
  archive(w.tokens);
  archive(w.forward_rows);
  archive(w.forward_pairs);
  archive(w.forward_gemm_rows);
  archive(w.combine_rows);
  archive(w.statistics_bytes);
  archive(w.backward_rows);
  archive(w.backward_pairs);
  archive(w.backward_gemm_rows);
  archive(w.zero_pairs);
  archive(w.recompute);
  archive(w.again_rows);
  archive(w.again_gemm_rows);
  archive(w.cached_pairs);
  archive(w.chunks);
  archive(w.plan_cells);
  archive(w.fetched_instances);
  archive(w.scored_pairs);
  archive(w.forward_bytes);
  archive(w.backward_bytes);
  archive(w.added_variance);
  archive(w.total_variance);
  archive(w.forward_seconds);
  archive(w.backward_seconds);
  archive(w.exchange_seconds);
  archive(w.plan_seconds);
  archive(w.select_seconds);
  archive(w.forward_cpu_seconds);
  archive(w.backward_cpu_seconds);
}

class Writer {
 public:
  void operator()(std::int64_t value) { words_.push_back(value); }
  void operator()(bool value) { words_.push_back(value ? 1 : 0); }
  void operator()(double value) { words_.push_back(std::bit_cast<std::int64_t>(value)); }
  void operator()(const std::vector<std::int32_t>& values) {
    words_.push_back(static_cast<std::int64_t>(values.size()));
    words_.insert(words_.end(), values.begin(), values.end());
  }
  std::vector<std::int64_t> take() {
    words_[0] = static_cast<std::int64_t>(words_.size());
    return std::move(words_);
  }

 private:
  std::vector<std::int64_t> words_ = {0};  // first: how many words
};

class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> words) : words_(words) {
    const std::int64_t length = next();
    LRMOE_ASSERT(length >= 2 && static_cast<std::size_t>(length) <= words.size(),
                 "packed work has another length than it says");
    words_ = words.first(static_cast<std::size_t>(length));
  }
  std::int64_t next() {
    LRMOE_ASSERT(at_ < words_.size(), "packed work ends too early");
    return words_[at_++];
  }
  /// A number of things, each of which takes a word at least.
  std::size_t count() {
    const std::int64_t n = next();
    LRMOE_ASSERT(n >= 0 && static_cast<std::size_t>(n) <= words_.size() - at_,
                 "packed work has a count that does not fit");
    return static_cast<std::size_t>(n);
  }
  void operator()(std::int64_t& value) { value = next(); }
  void operator()(bool& value) { value = next() != 0; }
  void operator()(double& value) { value = std::bit_cast<double>(next()); }
  void operator()(std::vector<std::int32_t>& values) {
    values.resize(count());
    for (std::int32_t& value : values) {
      value = static_cast<std::int32_t>(next());
    }
  }
  bool done() const { return at_ == words_.size(); }

 private:
  std::span<const std::int64_t> words_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::int64_t> pack(std::span<const LayerWork> work) {
  Writer writer;
  writer(static_cast<std::int64_t>(work.size()));
  for (const LayerWork& w : work) {
    visit(w, writer);
  }
  return writer.take();
}

std::vector<LayerWork> unpack(std::span<const std::int64_t> packed) {
  Reader reader(packed);
  std::vector<LayerWork> work(reader.count());
  for (LayerWork& w : work) {
    visit(w, reader);
  }
  LRMOE_ASSERT(reader.done(), "packed work goes on after its last entry");
  return work;
}

}  // namespace lrmoe::cost

// The threads engine: every operation has one test body, run on 1, 2, 3 and 8
// ranks and checked against values computed here.
#include "lrmoe/comm/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lrmoe/base/hash.h"
#include "lrmoe/comm/reduce.h"

namespace lrmoe::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kAllTypes[] = {DType::u8,  DType::i32, DType::i64,
                               DType::f32, DType::f64, DType::bf16};
constexpr DType kNumbers[] = {DType::i32, DType::i64, DType::f32, DType::f64, DType::bf16};
constexpr Reduce kReductions[] = {Reduce::sum, Reduce::max, Reduce::min};

/// Any bits that identify (rank, tag, position).
Bytes pattern(std::int64_t count, DType dtype, std::uint64_t rank, std::uint64_t tag) {
  Bytes bytes(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(hash({rank, tag, i}));
  }
  return bytes;
}

Bytes part(const Bytes& bytes, std::int64_t begin, std::int64_t count, DType dtype) {
  const auto size = static_cast<std::ptrdiff_t>(size_of(dtype));
  return {bytes.begin() + begin * size, bytes.begin() + (begin + count) * size};
}

ConstBuffer reading(const Bytes& bytes, DType dtype) {
  return {bytes.data(), static_cast<std::int64_t>(bytes.size() / size_of(dtype)), dtype};
}
Buffer writing(Bytes& bytes, DType dtype) {
  return {bytes.data(), static_cast<std::int64_t>(bytes.size() / size_of(dtype)), dtype};
}

/// Numbers of very different sizes and signs, so that a sum tells the order.
template <class T>
std::vector<T> numbers(std::int64_t count, int rank, std::uint64_t tag) {
  std::vector<T> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t h = hash({static_cast<std::uint64_t>(rank), tag, i});
    const auto mantissa = static_cast<double>(h % 2001) - 1000.0;
    const auto exponent = static_cast<int>((h >> 32) % 25) - 12;
    if constexpr (std::is_integral_v<T>) {
      out[i] = static_cast<T>(h >> 40) - (1 << 20);
    } else {
      out[i] = static_cast<T>(std::ldexp(mantissa, exponent));
    }
  }
  return out;
}

template <class T>
T reduced(T a, T b, Reduce op) {
  return op == Reduce::sum ? a + b : op == Reduce::max ? std::max(a, b) : std::min(a, b);
}

/// The reduction of `numbers` over ranks, written the plain way.
template <class T>
std::vector<T> expected(std::int64_t count, int ranks, std::uint64_t tag, Reduce op) {
  std::vector<T> sum = numbers<T>(count, 0, tag);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<T> next = numbers<T>(count, r, tag);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = reduced(sum[i], next[i], op);
    }
  }
  return sum;
}

/// Numbers of one rank, and their reduction, as bytes of any dtype.
struct Case {
  Bytes mine;
  Bytes result;
};
template <class T>
Case make_case_of(std::int64_t count, int rank, int ranks, Reduce op) {
  const auto bytes = [](const std::vector<T>& v) {
    const auto raw = std::as_bytes(std::span(v));
    return Bytes(raw.begin(), raw.end());
  };
  return {bytes(numbers<T>(count, rank, 7)), bytes(expected<T>(count, ranks, 7, op))};
}
Case make_bf16_case(std::int64_t count, int rank, int ranks, Reduce op) {
  const auto rounded = [count](int r) {
    std::vector<float> v = numbers<float>(count, r, 7);
    for (float& x : v) {
      x = from_bf16(to_bf16(x));
    }
    return v;
  };
  const auto bytes = [](const std::vector<float>& v) {
    Bytes out(v.size() * 2);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const std::uint16_t bits = to_bf16(v[i]);
      std::memcpy(&out[2 * i], &bits, 2);
    }
    return out;
  };
  std::vector<float> sum = rounded(0);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> next = rounded(r);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = reduced(sum[i], next[i], op);
    }
  }
  return {bytes(rounded(rank)), bytes(sum)};
}
Case make_case(std::int64_t count, DType dtype, int rank, int ranks, Reduce op) {
  switch (dtype) {
    case DType::i32:
      return make_case_of<std::int32_t>(count, rank, ranks, op);
    case DType::i64:
      return make_case_of<std::int64_t>(count, rank, ranks, op);
    case DType::f32:
      return make_case_of<float>(count, rank, ranks, op);
    case DType::f64:
      return make_case_of<double>(count, rank, ranks, op);
    default:
      return make_bf16_case(count, rank, ranks, op);
  }
}

class Threads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Threads, ::testing::Values(1, 2, 3, 8));

TEST_P(Threads, RanksAndSize) {
  std::mutex mutex;
  std::map<int, std::thread::id> seen;
  run_ranks(GetParam(), [&](Communicator& c) {
    EXPECT_EQ(c.size(), GetParam());
    const std::lock_guard lock(mutex);
    seen[c.rank()] = std::this_thread::get_id();
  });
  EXPECT_EQ(static_cast<int>(seen.size()), GetParam());
  if (GetParam() == 1) {
    EXPECT_EQ(seen[0], std::this_thread::get_id());
  }
}

TEST_P(Threads, Barrier) {
  std::atomic<int> entered = 0;
  run_ranks(GetParam(), [&](Communicator& c) {
    for (int i = 1; i <= 100; ++i) {
      ++entered;
      c.barrier();
      EXPECT_GE(entered.load(), i * c.size());
      c.barrier();
    }
  });
}

TEST_P(Threads, AllGather) {
  run_ranks(GetParam(), [](Communicator& c) {
    for (const DType dtype : kAllTypes) {
      for (const std::int64_t count : {0, 1, 5, 3000}) {
        Bytes expect;
        for (int r = 0; r < c.size(); ++r) {
          const Bytes theirs = pattern(count, dtype, r, 1);
          expect.insert(expect.end(), theirs.begin(), theirs.end());
        }
        const Bytes in = pattern(count, dtype, c.rank(), 1);
        Bytes out(expect.size());
        c.all_gather(reading(in, dtype), writing(out, dtype));
        EXPECT_EQ(out, expect) << name_of(dtype) << " " << count;

        Bytes in_place(expect.size());
        std::ranges::copy(in, in_place.begin() + c.rank() * static_cast<std::ptrdiff_t>(in.size()));
        c.all_gather(
            {in_place.data() + c.rank() * static_cast<std::ptrdiff_t>(in.size()), count, dtype},
            writing(in_place, dtype));
        EXPECT_EQ(in_place, expect);
      }
    }
  });
}

TEST_P(Threads, AllReduce) {
  run_ranks(GetParam(), [](Communicator& c) {
    for (const DType dtype : kNumbers) {
      for (const Reduce op : kReductions) {
        // 511 fits the small path of all types, 5001 of none.
        for (const std::int64_t count : {0, 1, 7, 511, 5001}) {
          Case test = make_case(count, dtype, c.rank(), c.size(), op);
          c.all_reduce(writing(test.mine, dtype), op);
          EXPECT_EQ(test.mine, test.result) << name_of(dtype) << " " << count;
        }
      }
    }
  });
}

TEST_P(Threads, ReduceScatter) {
  run_ranks(GetParam(), [](Communicator& c) {
    for (const DType dtype : kNumbers) {
      for (const Reduce op : kReductions) {
        for (const std::int64_t count : {0, 1, 33, 2500}) {
          Case test = make_case(count * c.size(), dtype, c.rank(), c.size(), op);
          const Bytes expect = part(test.result, c.rank() * count, count, dtype);
          Bytes out(expect.size());
          c.reduce_scatter(reading(test.mine, dtype), writing(out, dtype), op);
          EXPECT_EQ(out, expect) << name_of(dtype) << " " << count;

          const auto offset = c.rank() * static_cast<std::ptrdiff_t>(out.size());
          c.reduce_scatter(reading(test.mine, dtype), {test.mine.data() + offset, count, dtype},
                           op);
          EXPECT_EQ(part(test.mine, c.rank() * count, count, dtype), expect);
        }
      }
    }
  });
}

std::int64_t random_count(int from, int to, int round) {
  const std::uint64_t h = hash({static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to),
                                static_cast<std::uint64_t>(round)});
  return h % 3 == 0 ? 0 : static_cast<std::int64_t>((h >> 8) % 200);
}

TEST_P(Threads, AllToAllV) {
  run_ranks(GetParam(), [](Communicator& c) {
    const auto size = static_cast<std::size_t>(c.size());
    for (const DType dtype : kAllTypes) {
      for (int round = 0; round < 10; ++round) {
        std::vector<std::int64_t> send(size), receive(size);
        Bytes in, expect;
        for (int r = 0; r < c.size(); ++r) {
          const auto at = static_cast<std::size_t>(r);
          // In round 0 nobody sends anything.
          send[at] = round == 0 ? 0 : random_count(c.rank(), r, round);
          receive[at] = round == 0 ? 0 : random_count(r, c.rank(), round);
          const auto message = [&](int from, int to, std::int64_t count) {
            return pattern(count, dtype, hash({std::uint64_t(from), std::uint64_t(to)}), round);
          };
          const Bytes sent = message(c.rank(), r, send[at]);
          const Bytes received = message(r, c.rank(), receive[at]);
          in.insert(in.end(), sent.begin(), sent.end());
          expect.insert(expect.end(), received.begin(), received.end());
        }
        Bytes out(expect.size());
        c.all_to_all_v(reading(in, dtype), send, writing(out, dtype), receive);
        EXPECT_EQ(out, expect) << name_of(dtype) << " round " << round;
      }
    }
  });
}

TEST_P(Threads, Exchange) {
  run_ranks(GetParam(), [](Communicator& c) {
    const auto count_of = [](int from, int to) { return std::int64_t{(from * 5 + to * 3) % 4}; };
    const auto message = [](int from, int to, int k, std::int64_t count, DType dtype) {
      return pattern(count, dtype, hash({std::uint64_t(from), std::uint64_t(to)}), k);
    };
    for (const DType dtype : kAllTypes) {
      // Message k of a pair has 13 k elements: the first of each pair is empty.
      std::vector<Transfer> transfers;
      std::vector<Bytes> sent, received, expect;
      sent.reserve(64), received.reserve(64), expect.reserve(64);
      for (int k = 0; k < 4; ++k) {
        for (int peer = c.size() - 1; peer >= 0; --peer) {
          if (k < count_of(c.rank(), peer)) {
            sent.push_back(message(c.rank(), peer, k, 13 * k, dtype));
            transfers.push_back({Transfer::Kind::send, peer, writing(sent.back(), dtype)});
          }
        }
        for (int peer = 0; peer < c.size(); ++peer) {
          if (k < count_of(peer, c.rank())) {
            expect.push_back(message(peer, c.rank(), k, 13 * k, dtype));
            received.emplace_back(expect.back().size());
            transfers.push_back({Transfer::Kind::receive, peer, writing(received.back(), dtype)});
          }
        }
      }
      c.exchange(transfers);
      EXPECT_EQ(received, expect) << name_of(dtype);
      c.exchange({});
    }
  });
}

TEST(ThreadsOrder, SumsRunInRankOrder) {
  // (1e30 + 1) - 1e30 = 0, but (1e30 - 1e30) + 1 = 1: and all other ranks add 0.
  for (const std::int64_t count : {1, 10000}) {
    for (const bool cancels_first : {false, true}) {
      run_ranks(4, [&](Communicator& c) {
        const float early[] = {1e30F, 1.0F, -1e30F, 0.0F};
        const float late[] = {1e30F, -1e30F, 1.0F, 0.0F};
        const float mine = (cancels_first ? late : early)[c.rank()];
        std::vector<float> data(static_cast<std::size_t>(count), mine);
        c.all_reduce(view(std::span(data)), Reduce::sum);
        for (const float x : data) {
          EXPECT_EQ(x, cancels_first ? 1.0F : 0.0F);
        }
      });
    }
  }
}

TEST(ThreadsOrder, Bf16SumsAreRoundedOnce) {
  // 256 + 1 has no bf16, so a sum rounded at each rank would stay at 256.
  run_ranks(5, [](Communicator& c) {
    std::vector<std::uint16_t> data(3, to_bf16(c.rank() == 0 ? 256.0F : 1.0F));
    c.all_reduce({data.data(), 3, DType::bf16}, Reduce::sum);
    EXPECT_EQ(from_bf16(data[2]), 260.0F);
  });
}

TEST(ThreadsOrder, NanWinsEveryReduction) {
  run_ranks(3, [](Communicator& c) {
    for (const Reduce op : kReductions) {
      for (int owner = 0; owner < 3; ++owner) {
        double x = c.rank() == owner ? std::numeric_limits<double>::quiet_NaN() : c.rank();
        c.all_reduce(view(std::span(&x, 1)), op);
        EXPECT_NE(x, x);
      }
    }
  });
}

TEST(CommTypes, SizesAndNames) {
  const std::map<std::string, std::size_t> sizes = {{"u8", 1},  {"i32", 4}, {"i64", 8},
                                                    {"f32", 4}, {"f64", 8}, {"bf16", 2}};
  for (const DType dtype : kAllTypes) {
    EXPECT_EQ(size_of(dtype), sizes.at(std::string(name_of(dtype))));
  }
}

TEST(CommTypes, Bf16RoundsToNearestEven) {
  EXPECT_EQ(from_bf16(to_bf16(1.0F)), 1.0F);
  EXPECT_EQ(from_bf16(to_bf16(257.0F)), 256.0F);  // a tie, down to the even one
  EXPECT_EQ(from_bf16(to_bf16(259.0F)), 260.0F);  // a tie, up to the even one
  EXPECT_EQ(from_bf16(to_bf16(257.1F)), 258.0F);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(from_bf16(to_bf16(nan)), from_bf16(to_bf16(nan)));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(from_bf16(to_bf16(-infinity)), -infinity);
}

}  // namespace
}  // namespace lrmoe::comm

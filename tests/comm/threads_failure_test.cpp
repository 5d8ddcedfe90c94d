// The threads engine when ranks fail, disagree or stay away: nobody hangs, and
// everybody hears why.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lrmoe/base/hash.h"
#include "lrmoe/comm/threads.h"

namespace lrmoe::comm {
namespace {

using namespace std::chrono_literals;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class ThreadsFailureOn : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsFailureOn, ::testing::Values(1, 2, 3, 8));

// A call of each operation that any number of ranks can make.

struct NamedCall {
  const char* name;
  std::function<void(Communicator&)> call;
};

std::vector<NamedCall> all_operations() {
  return {
      {"barrier", [](Communicator& c) { c.barrier(); }},
      {"all_gather",
       [](Communicator& c) {
         std::vector<float> in(100), out(100 * static_cast<std::size_t>(c.size()));
         c.all_gather(view(std::span<const float>(in)), view(std::span(out)));
       }},
      {"all_reduce",
       [](Communicator& c) {
         std::vector<float> data(10000);
         c.all_reduce(view(std::span(data)), Reduce::sum);
       }},
      {"reduce_scatter",
       [](Communicator& c) {
         std::vector<float> in(100 * static_cast<std::size_t>(c.size())), out(100);
         c.reduce_scatter(view(std::span<const float>(in)), view(std::span(out)), Reduce::sum);
       }},
      {"all_to_all_v",
       [](Communicator& c) {
         const auto size = static_cast<std::size_t>(c.size());
         std::vector<float> in(10 * size), out(10 * size);
         const std::vector<std::int64_t> counts(size, 10);
         c.all_to_all_v(view(std::span<const float>(in)), counts, view(std::span(out)), counts);
       }},
      {"exchange",
       [](Communicator& c) {
         std::vector<float> in(10), out(10);
         const int next = (c.rank() + 1) % c.size();
         const int last = (c.rank() + c.size() - 1) % c.size();
         const Transfer transfers[] = {{Transfer::Kind::receive, last, view(std::span(out))},
                                       {Transfer::Kind::send, next, view(std::span(in))}};
         c.exchange(transfers);
       }},
  };
}

TEST_P(ThreadsFailureOn, RankThatThrowsReleasesTheOthersFromEveryOperation) {
  const int bad = GetParam() - 1;
  for (const NamedCall& operation : all_operations()) {
    std::atomic<int> released = 0;
    const std::string message = message_of([&] {
      run_ranks(GetParam(), [&](Communicator& c) {
        operation.call(c);
        if (c.rank() == bad) {
          std::this_thread::sleep_for(2ms);  // so that others are waiting already
          throw std::runtime_error("disk full");
        }
        for (int again = 0; again < 2; ++again) {  // and from those that come later
          try {
            operation.call(c);
            ADD_FAILURE() << operation.name << " went on without rank " << bad;
          } catch (const PeerError& error) {
            ++released;
            EXPECT_EQ(error.rank(), bad);
            EXPECT_EQ(error.what(), "rank " + std::to_string(bad) + " failed: disk full");
          }
        }
      });
    });
    EXPECT_EQ(message, "rank " + std::to_string(bad) + ": disk full") << operation.name;
    EXPECT_EQ(released, 2 * bad) << operation.name;
  }
}

TEST(ThreadsFailure, RankThatReturnsEarlyReleasesTheOthers) {
  for (const bool others_wait : {true, false}) {
    for (const NamedCall& operation : all_operations()) {
      std::atomic<int> released = 0;
      const std::string message = message_of([&] {
        run_ranks(3, [&](Communicator& c) {
          if ((c.rank() == 1) == others_wait) {
            std::this_thread::sleep_for(5ms);
          }
          if (c.rank() == 1) {
            return;
          }
          EXPECT_THROW(
              {
                try {
                  operation.call(c);
                } catch (const PeerError& error) {
                  ++released;
                  EXPECT_EQ(error.rank(), 1);
                  throw;
                }
              },
              PeerError);
        });
      });
      EXPECT_EQ(message.substr(0, 27), "rank 1: returned while rank") << message;
      EXPECT_NE(message.find(operation.name), std::string::npos) << message;
      EXPECT_EQ(released, 2);
    }
  }
}

TEST(ThreadsFailure, InputErrorIsRethrownAsItIs) {
  for (const int size : {1, 4}) {
    try {
      run_ranks(size, [](Communicator& c) {
        if (c.rank() == c.size() - 1) {
          throw InputError("no such file: x.toml");
        }
        c.barrier();
      });
      FAIL();
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "no such file: x.toml");
    }
  }
}

TEST(ThreadsFailure, ExceptionsOfAnyTypeAreRunErrors) {
  for (const int size : {1, 3}) {
    EXPECT_THROW(run_ranks(size,
                           [](Communicator& c) {
                             if (c.rank() == 0) {
                               throw 42;
                             }
                             c.barrier();
                           }),
                 RunError);
    EXPECT_EQ(message_of([&] {
                run_ranks(size, [](Communicator& c) {
                  if (c.rank() == 0) {
                    throw "text";
                  }
                  c.barrier();
                });
              }),
              "rank 0: threw something that is not a std::exception");
    EXPECT_THROW(run_ranks(size, [](Communicator&) { throw std::bad_alloc(); }), RunError);
    EXPECT_EQ(message_of([&] {  // libraries add stack traces; a user reads one line
                run_ranks(size, [](Communicator& c) {
                  if (c.rank() == 0) {
                    throw std::runtime_error("what went wrong\nframe #0: f()");
                  }
                  c.barrier();
                });
              }),
              "rank 0: what went wrong");
  }
}

TEST(ThreadsFailure, TimeOutNamesTheRanksThatDidNotCome) {
  std::atomic<int> run_errors = 0;
  const std::string message = message_of([&] {
    run_ranks(4,
              [&](Communicator& c) {
                if (c.rank() == 1 || c.rank() == 3) {
                  std::this_thread::sleep_for(300ms);
                }
                try {
                  c.barrier();
                } catch (const RunError& error) {
                  ++run_errors;
                  EXPECT_NE(std::string(error.what()).find("ranks 1, 3 did not come within 50 ms"),
                            std::string::npos)
                      << error.what();
                }
              },
              {.timeout = 50ms});
  });
  EXPECT_EQ(run_errors, 4);
  EXPECT_EQ(message.substr(8), "[barrier] ranks 1, 3 did not come within 50 ms");
}

TEST(ThreadsFailure, OperationsThatDifferAreAnErrorOnAllRanks) {
  const auto operations = all_operations();
  for (std::size_t a = 0; a < operations.size(); ++a) {
    const NamedCall& usual = operations[a];
    const NamedCall& odd = operations[(a + 1) % operations.size()];
    std::atomic<int> errors = 0;
    const std::string message = message_of([&] {
      run_ranks(3, [&](Communicator& c) {
        try {
          (c.rank() == 2 ? odd : usual).call(c);
        } catch (const InternalError& error) {
          ++errors;
          throw;
        }
      });
    });
    EXPECT_EQ(errors, 3) << usual.name;
    EXPECT_EQ(message, std::string("rank 2: [") + usual.name + "] rank 2 called " + odd.name +
                           " where rank 0 called " + usual.name);
  }
}

/// Runs a body in which all ranks must get an InternalError; its message.
std::string disagreement(int size, const std::function<void(Communicator&)>& body) {
  std::atomic<int> errors = 0;
  const std::string message = message_of([&] {
    run_ranks(size, [&](Communicator& c) {
      EXPECT_THROW(
          {
            try {
              body(c);
            } catch (const InternalError&) {
              ++errors;
              throw;
            }
          },
          InternalError);
      EXPECT_THROW(c.barrier(), InternalError);  // and nothing works afterwards
    });
  });
  EXPECT_EQ(errors, size);
  return message;
}

TEST(ThreadsFailure, ArgumentsThatDifferAreAnErrorOnAllRanks) {
  std::vector<float> memory[3];
  for (auto& m : memory) {
    m.resize(64);
  }
  const auto mine = [&](Communicator& c) { return memory[c.rank()].data(); };
  const auto odd = [](Communicator& c) { return c.rank() == 1; };
  using I = std::int64_t;

  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           c.all_reduce({mine(c), odd(c) ? 7 : 8, DType::f32}, Reduce::sum);
                         }),
            "rank 1: [all_reduce] rank 1 gave 7 elements where rank 0 gave 8");
  EXPECT_EQ(
      disagreement(3,
                   [&](Communicator& c) {
                     c.all_reduce({mine(c), 8, odd(c) ? DType::i32 : DType::f32}, Reduce::sum);
                   }),
      "rank 1: [all_reduce] rank 1 gave i32 where rank 0 gave f32");
  EXPECT_EQ(
      disagreement(3,
                   [&](Communicator& c) {
                     c.all_reduce({mine(c), 8, DType::f32}, odd(c) ? Reduce::max : Reduce::sum);
                   }),
      "rank 1: [all_reduce] rank 1 wants the max where rank 0 wants the sum");
  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           c.all_reduce({mine(c), 8, DType::u8}, Reduce::sum);
                         }),
            "rank 0: [all_reduce] rank 0 wants to reduce u8");
  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           c.all_reduce({odd(c) ? nullptr : mine(c), 8, DType::f32}, Reduce::sum);
                         }),
            "rank 1: [all_reduce] rank 1 gave 8 elements at a null pointer");
  EXPECT_EQ(
      disagreement(
          3,
          [&](Communicator& c) {
            c.all_gather({mine(c), 4, DType::f32}, {mine(c) + 4, odd(c) ? 13 : 12, DType::f32});
          }),
      "rank 1: [all_gather] rank 1 gave 13 and 4 elements; the first must be 3 times the "
      "second");
  EXPECT_EQ(
      disagreement(
          3,
          [&](Communicator& c) {
            c.all_gather({mine(c) + (odd(c) ? 1 : 40), 4, DType::f32}, {mine(c), 12, DType::f32});
          }),
      "rank 1: [all_gather] rank 1's input and output overlap");
  EXPECT_EQ(
      disagreement(
          3,
          [&](Communicator& c) {
            c.reduce_scatter({mine(c), 12, DType::f32}, {mine(c) + 12, 5, DType::f32}, Reduce::sum);
          }),
      "rank 0: [reduce_scatter] rank 0 gave 12 and 5 elements; the first must be 3 times the "
      "second");
  // Rank 1 sends one element more to rank 2 than rank 2 expects.
  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           const std::vector<I> send = {2, 2, odd(c) ? 3 : 2};
                           const std::vector<I> receive = {2, 2, 2};
                           c.all_to_all_v({mine(c), odd(c) ? 7 : 6, DType::f32}, send,
                                          {mine(c) + 10, 6, DType::f32}, receive);
                         }),
            "rank 1: [all_to_all_v] rank 1 sends 3 elements to rank 2, which expects 2");
  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           const std::vector<I> counts = {2, 2, 2};
                           c.all_to_all_v({mine(c), odd(c) ? 7 : 6, DType::f32}, counts,
                                          {mine(c) + 10, 6, DType::f32}, counts);
                         }),
            "rank 1: [all_to_all_v] rank 1's send counts sum to 6, its buffer has 7 elements");
  EXPECT_EQ(
      disagreement(
          3,
          [&](Communicator& c) {
            const std::vector<I> counts = {8, -2, 0};
            c.all_to_all_v({mine(c), 6, DType::f32}, counts, {mine(c) + 10, 6, DType::f32}, counts);
          }),
      "rank 0: [all_to_all_v] rank 0 gave a send count of -2");
}

TEST(ThreadsFailure, MessagesThatDoNotMeetAreAnErrorOnAllRanks) {
  float memory[3][8] = {};
  const auto to = [&](Communicator& c, int peer, std::int64_t n) {
    return Transfer{Transfer::Kind::send, peer, {memory[c.rank()], n, DType::f32}};
  };
  const auto from = [&](Communicator& c, int peer, std::int64_t n) {
    return Transfer{Transfer::Kind::receive, peer, {memory[c.rank()] + 4, n, DType::f32}};
  };
  using Transfers = std::vector<Transfer>;
  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           c.exchange(c.rank() == 0   ? Transfers{to(c, 2, 3)}
                                      : c.rank() == 2 ? Transfers{from(c, 0, 4)}
                                                      : Transfers{});
                         }),
            "rank 0: [exchange] message 0 from rank 0 to rank 2 has 3 f32, the receiver expects 4 "
            "f32");
  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           c.exchange(c.rank() == 1 ? Transfers{from(c, 0, 1)} : Transfers{});
                         }),
            "rank 0: [exchange] rank 0 sends 0 messages to rank 1, which expects 1");
  EXPECT_EQ(disagreement(3,
                         [&](Communicator& c) {
                           c.exchange(c.rank() == 1 ? Transfers{to(c, 1, 1)} : Transfers{});
                         }),
            "rank 1: [exchange] rank 1 sends 1 messages to rank 1, which expects 0");
  EXPECT_EQ(disagreement(3, [&](Communicator& c) { c.exchange(Transfers{to(c, 3, 1)}); }),
            "rank 0: [exchange] rank 0 names peer 3 of 3");
}

// Many operations in a random order that all ranks share, with more ranks than cores.
TEST(ThreadsStress, MixedOperations) {
  const auto operations = all_operations();
  run_ranks(16, [&](Communicator& c) {
    std::int64_t checked = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
      operations[hash({i, 3}) % operations.size()].call(c);
      std::int64_t x = c.rank() + static_cast<std::int64_t>(i);
      c.all_reduce(view(std::span(&x, 1)), Reduce::sum);
      EXPECT_EQ(x, 120 + 16 * static_cast<std::int64_t>(i));
      ++checked;
    }
    EXPECT_EQ(checked, 400);
  });
}

// Ranks fail at random places of a long run; all others hear of it.
TEST(ThreadsStress, FailuresAtRandomPlaces) {
  const auto operations = all_operations();
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const int bad = static_cast<int>(hash({seed, 1}) % 8);
    const std::uint64_t when = hash({seed, 2}) % 40;
    std::atomic<int> released = 0;
    EXPECT_EQ(message_of([&] {
                run_ranks(8, [&](Communicator& c) {
                  try {
                    for (std::uint64_t i = 0; i < 41; ++i) {
                      if (c.rank() == bad && i == when) {
                        throw RunError("at " + std::to_string(when));
                      }
                      operations[hash({seed, i}) % operations.size()].call(c);
                    }
                  } catch (const PeerError& error) {
                    ++released;
                    throw;
                  }
                });
              }),
              "rank " + std::to_string(bad) + ": at " + std::to_string(when));
    EXPECT_EQ(released, 7);
  }
}

}  // namespace
}  // namespace lrmoe::comm

#include "lrmoe/optim/expert_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lrmoe/base/hash.h"
#include "tests/moe/reference.h"

namespace lrmoe::optim {
namespace {

constexpr int kExperts = 5;
constexpr std::int64_t kHidden = 3, kWidth = 4, kLength = 3 * kHidden * kWidth;

at::Tensor initial(int e) {
  return testing::randn({kLength}, hash({1, static_cast<std::uint64_t>(e)}));
}

moe::ExpertSlots make_slots(const plan::Placement& placement, int rank) {
  moe::ExpertSlots slots;
  slots.placement = placement;
  slots.rank = rank;
  slots.gate_up = at::zeros({placement.cols, 2 * kWidth, kHidden}, at::kDouble).requires_grad_();
  slots.down = at::zeros({placement.cols, kHidden, kWidth}, at::kDouble).requires_grad_();
  return slots;
}

at::Tensor slot_gradient(int step, int rank, int slot) {
  return testing::randn({kLength},
                        hash({2, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank),
                              static_cast<std::uint64_t>(slot)}));
}

void set_gradient(moe::ExpertSlots& slots, int step) {
  const std::int64_t split = 2 * kWidth * kHidden;
  at::Tensor gate_up = at::zeros_like(slots.gate_up), down = at::zeros_like(slots.down);
  for (const int s : slots.instances(slots.rank)) {
    const at::Tensor g = slot_gradient(step, slots.rank, s);
    gate_up[s].copy_(g.slice(0, 0, split).view({2 * kWidth, kHidden}));
    down[s].copy_(g.slice(0, split).view({kHidden, kWidth}));
  }
  slots.gate_up.mutable_grad() = gate_up;
  slots.down.mutable_grad() = down;
}

// AdamW as its paper writes it, one number at a time.
struct NaiveAdamW {
  std::vector<double> w, m, v;
  void step(const at::Tensor& g, int t, const AdamWOptions& o) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double gi = g[static_cast<std::int64_t>(i)].item<double>();
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * gi;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * gi * gi;
      const double mh = m[i] / (1 - std::pow(o.beta1, t));
      const double vh = v[i] / (1 - std::pow(o.beta2, t));
      w[i] -= o.learning_rate * (mh / (std::sqrt(vh) + o.epsilon) + o.weight_decay * w[i]);
    }
  }
};

class ExpertOptimizerTest : public ::testing::TestWithParam<int> {};

TEST_P(ExpertOptimizerTest, EqualsNaiveAdamWThroughMovingPlacements) {
  const int ranks = GetParam();
  const int slots = (kExperts + ranks - 1) / ranks + 2;
  const auto symi = plan::make_strategy({.name = "symi"});
  const plan::Cluster cluster{ranks, kExperts, slots, 1, 0};
  const AdamWOptions options{.learning_rate = 0.01, .weight_decay = 0.1};

  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    ExpertOptimizer optimizer({ranks, kExperts, kLength, false}, comm, initial, at::kDouble);
    plan::Placement placement = symi->initial(cluster);  // puts replicas on one rank too
    moe::ExpertSlots mine = make_slots(placement, comm.rank());
    optimizer.deliver(placement, mine);
    std::vector<NaiveAdamW> naive;
    for (int e = 0; e < kExperts; ++e) {
      const at::Tensor w = initial(e);
      naive.push_back({{w.data_ptr<double>(), w.data_ptr<double>() + kLength},
                       std::vector<double>(kLength, 0.0),
                       std::vector<double>(kLength, 0.0)});
    }
    for (int step = 1; step <= 3; ++step) {
      set_gradient(mine, step);
      optimizer.reduce(mine);
      optimizer.scale_gradient(0.5);
      optimizer.step(step, options);
      std::vector<at::Tensor> sums(kExperts, at::zeros({kLength}, at::kDouble));
      double square = 0.0;
      for (int r = 0; r < ranks; ++r) {
        for (const int s : mine.instances(r)) {
          auto& sum = sums[static_cast<std::size_t>(placement.at(r, s))];
          sum = sum + 0.5 * slot_gradient(step, r, s);
        }
      }
      for (int e = 0; e < kExperts; ++e) {
        naive[static_cast<std::size_t>(e)].step(sums[static_cast<std::size_t>(e)], step, options);
        square += sums[static_cast<std::size_t>(e)].square().sum().item<double>();
      }
      double total = optimizer.gradient_square();
      comm.all_reduce(comm::view(std::span<double>(&total, 1)), comm::Reduce::sum);
      EXPECT_NEAR(total, square, 1e-12 * square);

      plan::Counts demand(ranks, kExperts, 1);
      demand.at(0, step) = 40;
      const plan::Placement next = symi->place(cluster, demand, placement);
      EXPECT_NE(next, placement);
      placement = next;
      optimizer.deliver(placement, mine);
      for (const int s : mine.instances(comm.rank())) {
        const auto& want = naive[static_cast<std::size_t>(mine.expert(s))].w;
        const at::Tensor got =
            at::cat({mine.gate_up.detach()[s].flatten(), mine.down.detach()[s].flatten()});
        EXPECT_LT(testing::relative_error(got, at::tensor(want, at::kDouble)), 1e-12);
      }
      EXPECT_FALSE(mine.gate_up.grad().defined());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExpertOptimizerTest, ::testing::Values(1, 2, 3, 8));

TEST(ExpertOptimizer, OwnersSendNothing) {
  const auto fixed = plan::make_strategy({.name = "fixed"});
  for (const int ranks : {2, 8}) {  // 8: ranks without experts
    const int slots = (kExperts + ranks - 1) / ranks;
    const plan::Cluster cluster{ranks, kExperts, slots, 1, 0};
    comm::run_ranks(ranks, [&](comm::Communicator& comm) {
      ExpertOptimizer optimizer({ranks, kExperts, kLength, true}, comm, initial, at::kDouble);
      moe::ExpertSlots mine = make_slots(fixed->initial(cluster), comm.rank());
      optimizer.deliver(mine.placement, mine);
      set_gradient(mine, 1);
      optimizer.reduce(mine);
      EXPECT_EQ(optimizer.bytes_sent(), 0);
      std::int64_t held = optimizer.gradient.numel() / kLength;
      EXPECT_EQ(held, static_cast<std::int64_t>(mine.instances(comm.rank()).size()));
      for (std::int64_t i = 0; i < held; ++i) {
        const int slot = mine.instances(comm.rank())[static_cast<std::size_t>(i)];
        EXPECT_TRUE(at::equal(optimizer.gradient.narrow(0, i * kLength, kLength),
                              slot_gradient(1, comm.rank(), slot)));
        EXPECT_TRUE(at::equal(mine.down.detach()[slot].flatten(),
                              initial(mine.expert(slot)).slice(0, 2 * kWidth * kHidden)));
      }
    });
  }
}

TEST(ExpertOptimizer, BytesAreTheShardsOfEveryInstance) {
  const auto symi = plan::make_strategy({.name = "symi"});
  const plan::Cluster cluster{3, kExperts, 3, 1, 0};
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    ExpertOptimizer optimizer({3, kExperts, kLength, false}, comm, initial, at::kDouble);
    moe::ExpertSlots mine = make_slots(symi->initial(cluster), comm.rank());
    optimizer.deliver(mine.placement, mine);
    // 36 elements over 3 ranks: each rank has 12 of every expert.
    std::int64_t instances_elsewhere = 0;
    for (int r = 0; r < 3; ++r) {
      instances_elsewhere +=
          r == comm.rank() ? 0 : static_cast<std::int64_t>(mine.instances(r).size());
    }
    const auto delivered = optimizer.bytes_sent();
    EXPECT_EQ(delivered, 8 * 12 * instances_elsewhere);
  });
}

}  // namespace
}  // namespace lrmoe::optim

// Generated traces (docs/traces.md, "Workloads"). The same options give the same
// bytes on every machine and compiler.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lrmoe/trace/trace.h"

namespace lrmoe::trace {

struct WorkloadOptions {
  std::string name;  // one of workload_names(), "W1" for short, or "P:N"
  int experts = 64;
  int top_k = 8;
  std::int64_t tokens = 8192;  // of a step, over all ranks
  std::uint64_t seed = 1;
  int steps = 1;
  int layers = 1;
  int ranks = 0;          // above 0: the tokens' sources are written
  double exponent = 1.0;  // zipf: expert number i is chosen as i^-exponent
  double max_mean = 2.0;  // lognormal, drift: the greatest expected load over the mean
  double drift = 0.1;     // drift: the share of the popularity's variance new in each step
};

/// W0_balanced, ..., zipf, 80:4, lognormal, drift.
std::vector<std::string> workload_names();

class Workload {
 public:
  /// InputError for a name that does not exist (it lists those that do) and options
  /// that cannot be.
  explicit Workload(const WorkloadOptions& options);
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  Info info() const;
  Routing make(int step, int layer) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// Writes the whole trace, layer by layer.
void make_trace(const WorkloadOptions& options, const std::filesystem::path& path);

}  // namespace lrmoe::trace

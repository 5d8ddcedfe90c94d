// Hardware profiles: what the virtual cluster's clock knows of a machine
// (docs/clock.md). They are written as TOML (cost/profile_toml.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lrmoe::cost {

/// One kind of link, as one rank sees it, each direction by itself.
struct Link {
  double bandwidth = 0;  // bytes per second that a large exchange reaches
  double latency = 0;    // seconds of a collective without data
};

/// What a grouped GEMM reaches of the peak with so many rows per expert.
struct Efficiency {
  double rows = 0;
  double fraction = 0;
};

struct Profile {
  std::string name;
  std::string source;            // of the figures, for people
  double peak_flops = 0;         // dense bf16, per second and rank
  std::vector<Efficiency> gemm;  // ascending rows; linear between, from (0, 0) on, flat at the end
  double memory_bandwidth = 0;   // bytes per second that a large pass reaches
  double launch = 0;             // seconds that each kernel takes at least
  double host_cell = 0;          // seconds of planning per (rank, expert), on the host
  Link intra;                    // within a node
  Link inter;                    // between nodes
  int ranks_per_node = 0;        // 0: all ranks in one node
  bool measured = false;         // compute is priced by the ranks' own CPU seconds

  /// Fraction of the peak at `rows` rows per expert.
  double efficiency(double rows) const;
};

/// The built-in ones.
std::vector<std::string> profile_names();

/// Whether the name is a file's: it ends in ".toml".
bool is_profile_file(std::string_view name);

/// The built-in profile of this name, or the one in this file. InputError for an
/// unknown name (it lists those that exist) and as parse_profile.
Profile find_profile(std::string_view name);

}  // namespace lrmoe::cost

#include "lrmoe/cost/profile.h"

#include <algorithm>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::cost {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

// Below a tile of 128 rows a grouped GEMM takes as long as with 128: fractions
// fall linearly to zero there, so the time stays the same.
const std::vector<Efficiency> kHopperGemm = {{128, 0.25},  {256, 0.40},  {512, 0.52},
                                             {1024, 0.60}, {4096, 0.66}, {16384, 0.68}};
const std::vector<Efficiency> kAmpereGemm = {{128, 0.35},  {256, 0.50},  {512, 0.62},
                                             {1024, 0.70}, {4096, 0.76}, {16384, 0.78}};

constexpr double kMemoryReached = 0.8;  // of the data sheet's memory bandwidth
constexpr double kLinkReached = 0.75;   // of the data sheet's link bandwidth
constexpr double kHostCell = 400e-9;    // the planner on one core, measured: 220 to 390 ns

/// H200 SXM data sheet: 1979 TFLOP/s bf16 with sparsity, half of it dense;
/// 4.8 TB/s HBM3e; NVLink 900 GB/s, half of it each way.
Profile h200() {
  Profile p;
  p.peak_flops = 989.5 * kTera;
  p.gemm = kHopperGemm;
  p.memory_bandwidth = kMemoryReached * 4.8 * kTera;
  p.launch = 4 * kMicro;
  p.host_cell = kHostCell;
  p.intra = {kLinkReached * 450 * kGiga, 15 * kMicro};
  return p;
}

/// A100 80GB SXM data sheet: 312 TFLOP/s dense bf16; 2.039 TB/s HBM2e; NVLink
/// 600 GB/s, half of it each way.
Profile a100() {
  Profile p;
  p.peak_flops = 312 * kTera;
  p.gemm = kAmpereGemm;
  p.memory_bandwidth = kMemoryReached * 2.039 * kTera;
  p.launch = 4 * kMicro;
  p.host_cell = kHostCell;
  p.intra = {kLinkReached * 300 * kGiga, 20 * kMicro};
  return p;
}

std::vector<Profile> make_profiles() {
  const std::string assumed = "; reached fractions and latencies are assumptions";

  Profile h200_nvlink = h200();
  h200_nvlink.name = "h200-nvlink";
  h200_nvlink.source = "H200 SXM data sheet, all ranks in one NVLink domain" + assumed;
  h200_nvlink.inter = h200_nvlink.intra;

  Profile h200_ib = h200();
  h200_ib.name = "h200-ib";
  h200_ib.source = "H200 SXM data sheet, 8 per node, NDR InfiniBand 400 Gbit/s per GPU" + assumed;
  h200_ib.inter = {kLinkReached * 50 * kGiga, 30 * kMicro};
  h200_ib.ranks_per_node = 8;

  Profile a100_ib = a100();
  a100_ib.name = "a100-ib";
  a100_ib.source =
      "A100 80GB SXM data sheet, 8 per node, HDR InfiniBand 200 Gbit/s per GPU" + assumed;
  a100_ib.inter = {kLinkReached * 25 * kGiga, 35 * kMicro};
  a100_ib.ranks_per_node = 8;

  Profile here;
  here.name = "this-machine";
  here.source =
      "compute: CPU seconds that each rank measured; copies between ranks: assumed 5 GB/s, 20 us";
  here.memory_bandwidth = 10 * kGiga;
  here.intra = {5 * kGiga, 20 * kMicro};
  here.inter = here.intra;
  here.measured = true;

  return {h200_nvlink, h200_ib, a100_ib, here};
}

const std::vector<Profile>& profiles() {
  static const std::vector<Profile> all = make_profiles();
  return all;
}

}  // namespace

double Profile::efficiency(double rows) const {
  Efficiency low;  // (0, 0)
  for (const Efficiency& high : gemm) {
    if (rows < high.rows) {
      const double along = (rows - low.rows) / (high.rows - low.rows);
      return low.fraction + along * (high.fraction - low.fraction);
    }
    low = high;
  }
  return low.fraction;
}

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const Profile& profile : profiles()) {
    names.push_back(profile.name);
  }
  return names;
}

Profile find_profile(std::string_view name) {
  for (const Profile& profile : profiles()) {
    if (profile.name == name) {
      return profile;
    }
  }
  throw InputError("[clock] profile: there is no profile " + quote(name) +
                   "; there are: " + join(profile_names()));
}

}  // namespace lrmoe::cost

// The folder of a run: config.toml, metrics.jsonl and checkpoints `step-N/`. A
// run never writes over another: only an explicit resume goes on in a folder that
// holds one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "lrmoe/base/atomic_file.h"
#include "lrmoe/train/config.h"

namespace lrmoe::train {

struct Checkpoint {
  std::int64_t step = 0;  // steps done
  std::filesystem::path path;
};

/// Complete checkpoints, by step. One is complete as soon as it has its name:
/// it is written as `.step-N.partial` and then renamed.
std::vector<Checkpoint> list_checkpoints(const std::filesystem::path& run);
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& run);

/// A checkpoint under construction: write files into path(), then commit().
AtomicFolder begin_checkpoint(const std::filesystem::path& run, std::int64_t step);

/// Removes all but the newest `keep` checkpoints, and what crashes left over.
void prune_checkpoints(const std::filesystem::path& run, int keep);

/// A folder that is ready to train in.
struct RunFolder {
  std::filesystem::path path;
  std::optional<Checkpoint> checkpoint;  // where to go on from, when resuming

  std::filesystem::path config() const { return path / "config.toml"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
};

/// Makes the folder and writes config.toml; resuming, only looks: it takes the
/// newest complete checkpoint (none: from the start). Errors, all InputError of
/// one line: the folder is not empty and `resume` is false; `resume` is true and
/// there is no run in it, one whose model differs, or one that has more steps.
RunFolder open_run(const std::filesystem::path& path, const Config& config, bool resume);

/// Once the checkpoint of a resumed run has been read: cuts metrics.jsonl after
/// its step and writes config.toml.
void continue_run(const RunFolder& run, const Config& config);

}  // namespace lrmoe::train

#include "lrmoe/train/run_folder.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/train/config_fields.h"
#include "lrmoe/train/metrics.h"

namespace lrmoe::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

/// N of "step-N", written as to_string writes it; -1 for other names.
std::int64_t step_of(const std::string& name) {
  std::int64_t step = -1;
  if (!name.starts_with(kPrefix)) {
    return -1;
  }
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  const bool whole = error == std::errc{} && stop == end && step >= 0;
  return whole && name == std::string(kPrefix) + std::to_string(step) ? step : -1;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw_file_error("make the run folder", path, error.value());
  }
}

bool holds_nothing(const fs::path& path) {
  std::error_code error;
  const bool empty = fs::is_empty(path, error);
  if (error) {
    throw_file_error("read the run folder", path, error.value());
  }
  return empty;
}

void check_resumed(const RunFolder& run, const Config& config) {
  const std::string where = "run folder " + quote(run.path.string());
  if (!fs::exists(run.config())) {
    throw InputError(where +
                     " holds no run to resume (no config.toml in it); without --resume "
                     "a new run starts in an empty folder");
  }
  const std::string changed = changed_on_resume(load_config(run.config().string(), {}), config);
  if (!changed.empty()) {
    throw InputError(where + " was begun with " + changed +
                     "; resume with the same value, or name another folder with --run");
  }
}

}  // namespace

std::vector<Checkpoint> list_checkpoints(const fs::path& run) {
  std::vector<Checkpoint> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run, error)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory()) {
      found.push_back({step, entry.path()});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Checkpoint& a, const Checkpoint& b) { return a.step < b.step; });
  return found;
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& run) {
  const std::vector<Checkpoint> all = list_checkpoints(run);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

AtomicFolder begin_checkpoint(const fs::path& run, std::int64_t step) {
  return AtomicFolder(run / (std::string(kPrefix) + std::to_string(step)));
}

void prune_checkpoints(const fs::path& run, int keep) {
  LRMOE_ASSERT(keep >= 1, "a run keeps at least one checkpoint");
  const std::vector<Checkpoint> all = list_checkpoints(run);
  std::error_code ignored;
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    // Renamed first, so that a crash halfway leaves nothing that looks complete.
    const fs::path doomed = run / ("." + all[i].path.filename().string() + ".partial");
    fs::remove_all(doomed, ignored);
    fs::rename(all[i].path, doomed, ignored);
    fs::remove_all(doomed, ignored);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(run, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".step-") && (name.ends_with(".partial") || name.ends_with(".old"))) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

RunFolder open_run(const fs::path& path, const Config& config, bool resume) {
  RunFolder run{path, std::nullopt};
  if (!resume) {
    make_folder(path);
    if (!holds_nothing(path)) {
      throw InputError("run folder " + quote(path.string()) +
                       " is not empty; --resume goes on with the run in it, --run names another");
    }
  } else {
    check_resumed(run, config);
    run.checkpoint = newest_checkpoint(path);
    if (run.checkpoint && run.checkpoint->step > config.train.steps) {
      throw InputError("run folder " + quote(path.string()) + " has " +
                       std::to_string(run.checkpoint->step) + " steps already; train.steps = " +
                       std::to_string(config.train.steps) + " asks for fewer");
    }
    return run;
  }
  write_file(run.config(), to_toml(config));
  return run;
}

void continue_run(const RunFolder& run, const Config& config) {
  truncate_metrics(run.metrics(), run.checkpoint ? run.checkpoint->step : 0);
  write_file(run.config(), to_toml(config));
}

}  // namespace lrmoe::train

#include "lrmoe/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>

#include "lrmoe/base/size.h"

namespace lrmoe::train {
namespace {

template <class... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string print_rate(double tokens_per_second) {
  if (tokens_per_second >= 1e6) {
    return print("%.2fM tokens/s", tokens_per_second / 1e6);
  }
  return tokens_per_second >= 1e4 ? print("%.1fk tokens/s", tokens_per_second / 1e3)
                                  : print("%.0f tokens/s", tokens_per_second);
}

}  // namespace

std::string print_duration(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) {
    return print("%llds", whole);
  }
  if (whole < 3600) {
    return print("%lldm%02llds", whole / 60, whole % 60);
  }
  return print("%lldh%02lldm", whole / 3600, whole / 60 % 60);
}

Progress::Progress(std::ostream& out, ProgressOptions options)
    : out_(out), options_(std::move(options)), started_(options_.clock()), shown_at_(started_) {}

void Progress::update(const StepMetrics& metrics) {
  last_ = metrics;
  pending_ = true;
  ++steps_seen_;
  tokens_ += static_cast<double>(metrics.tokens);
  const double now = options_.clock();
  const double wait = options_.terminal ? options_.refresh : options_.interval;
  if (steps_seen_ == 1 || now - shown_at_ >= wait) {
    show();
  }
}

void Progress::note(const std::string& text) {
  if (options_.terminal && drawn_ > 0) {
    out_ << '\r' << std::string(drawn_, ' ') << '\r';
    drawn_ = 0;
  }
  out_ << text << '\n' << std::flush;
  if (options_.terminal && steps_seen_ > 0) {
    show();
  }
}

void Progress::finish() {
  if (pending_) {
    show();
  }
  if (options_.terminal && drawn_ > 0) {
    out_ << '\n' << std::flush;
    drawn_ = 0;
  }
}

void Progress::show() {
  const double now = options_.clock();
  if (pending_ && now > shown_at_) {
    rate_ = tokens_ / (now - shown_at_);
    tokens_ = 0;
    shown_at_ = now;
  }
  pending_ = false;
  if (!options_.terminal) {
    out_ << line(static_cast<std::size_t>(-1)) << '\n' << std::flush;
    return;
  }
  // The last column stays free: some terminals wrap as soon as it is written.
  const std::string text = line(static_cast<std::size_t>(std::max(options_.width() - 1, 8)));
  out_ << '\r' << text;
  if (text.size() < drawn_) {
    out_ << std::string(drawn_ - text.size(), ' ') << '\r' << text;
  }
  out_ << std::flush;
  drawn_ = text.size();
}

/// The parts in the order of reading; those that do not fit go, the least
/// important first.
std::string Progress::line(std::size_t columns) const {
  struct Part {
    std::string text;
    int importance;
  };
  const double left = static_cast<double>(options_.steps - last_.step) *
                      (options_.clock() - started_) / static_cast<double>(steps_seen_);
  std::vector<Part> parts{
      {print("step %lld/%lld", static_cast<long long>(last_.step),
             static_cast<long long>(options_.steps)),
       8},
      {print("loss %.4f", last_.loss), 7},
      {print("lr %.2e", last_.lr), 3},
      {print_rate(rate_), 6},
      {print("imbalance %.2f/%.2f", last_.moe.imbalance_forward, last_.moe.imbalance_backward), 4},
      {print("MoE %.0f%%", last_.seconds > 0 ? 100.0 * last_.moe_seconds / last_.seconds : 0.0), 2},
      {"memory " + print_size(last_.moe.memory_peak_bytes), 1},
      {"left " + print_duration(left), 5}};
  while (true) {
    std::string text;
    for (const Part& part : parts) {
      text += (text.empty() ? "" : "  ") + part.text;
    }
    if (text.size() <= columns) {
      return text;
    }
    if (parts.size() == 1) {
      return text.substr(0, columns);
    }
    parts.erase(std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.importance < b.importance;
    }));
  }
}

ProgressOptions standard_error_options(std::int64_t steps) {
  ProgressOptions options;
  options.steps = steps;
  options.terminal = ::isatty(STDERR_FILENO) == 1;
  options.width = [] {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  };
  options.clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return options;
}

}  // namespace lrmoe::train

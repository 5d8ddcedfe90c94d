#include "lrmoe/cost/profile_toml.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/output_file.h"

namespace lrmoe::cost {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;
constexpr double kNano = 1e-9;
// Far beyond any machine, and small enough that no product of them overflows.
constexpr double kMost = 1e9;
constexpr std::size_t kMostRows = 1024;

struct Bounds {
  double low = 0;
  double high = kMost;
  bool open = false;  // low itself is left out

  bool hold(double x) const { return (open ? x > low : x >= low) && x <= high; }
  std::string text() const {
    return "a number " + std::string(open ? "above " : "from ") + print_number(low) +
           (open ? ", at most " : " to ") + print_number(high);
  }
};
constexpr Bounds kPositive{.open = true};
constexpr Bounds kNotNegative{};
constexpr Bounds kReached{.high = 1, .open = true};

std::string at_line(const std::string& name, const toml::node& node) {
  return name + ":" + std::to_string(node.source().begin.line) + ": ";
}

std::optional<double> number_of(const toml::node& node) {
  const bool number = node.is_integer() || node.is_floating_point();
  const std::optional<double> value = number ? node.value<double>() : std::nullopt;
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// A table of the file: hands out its keys; at the end none may be left.
class Section {
 public:
  Section(const toml::table& table, std::string name, std::string file)
      : table_(table), name_(std::move(name)), file_(std::move(file)) {}

  const toml::node* find(const std::string& key) {
    keys_.push_back(key);
    return table_.get(key);
  }

  const toml::node& need(const std::string& key, const std::string& expected) {
    const toml::node* node = find(key);
    if (node == nullptr) {
      throw InputError(where() + shown(key) + " is missing; it takes " + expected);
    }
    return *node;
  }

  double number(const std::string& key, const Bounds& bounds) {
    return checked(need(key, bounds.text()), key, bounds);
  }
  double number_or(const std::string& key, const Bounds& bounds, double otherwise) {
    const toml::node* node = find(key);
    return node == nullptr ? otherwise : checked(*node, key, bounds);
  }

  /// Null where it is not there.
  const toml::table* table(const std::string& key) {
    const toml::node* node = find(key);
    if (node != nullptr && !node->is_table()) {
      throw InputError(at_line(file_, *node) + key + " is a section: write [" + key +
                       "] and its keys below it");
    }
    return node == nullptr ? nullptr : node->as_table();
  }

  [[noreturn]] void refuse(const toml::node& node, const std::string& key,
                           const std::string& expected) const {
    throw InputError(at_line(file_, node) + shown(key) + " will not do; it takes " + expected);
  }

  void finish() const {
    for (const auto& [key, node] : table_) {
      const std::string text(key.str());
      if (std::find(keys_.begin(), keys_.end(), text) == keys_.end()) {
        throw InputError(at_line(file_, node) + "unknown key " + quote(text) +
                         (name_.empty() ? "" : " in [" + name_ + "]") + "; did you mean " +
                         quote(nearest_name(text, keys_)) + "? There are: " + join(keys_));
      }
    }
  }

 private:
  double checked(const toml::node& node, const std::string& key, const Bounds& bounds) const {
    const std::optional<double> value = number_of(node);
    if (!value || !bounds.hold(*value)) {
      refuse(node, key, bounds.text());
    }
    return *value;
  }
  std::string shown(const std::string& key) const {
    return name_.empty() ? key : name_ + "." + key;
  }
  std::string where() const { return name_.empty() ? file_ + ": " : at_line(file_, table_); }

  const toml::table& table_;
  std::string name_;
  std::string file_;
  std::vector<std::string> keys_;
};

std::vector<Efficiency> read_efficiency(Section& gemm) {
  const std::string expected =
      "pairs of rows per expert and the fraction of the peak that they reach (above 0, at most 1), "
      "rows ascending, as in [[128, 0.25], [1024, 0.6]]";
  const toml::node& node = gemm.need("reached", expected);
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty() || list->size() > kMostRows) {
    gemm.refuse(node, "reached", expected);
  }
  std::vector<Efficiency> table;
  for (const toml::node& item : *list) {
    const toml::array* pair = item.as_array();
    if (pair == nullptr || pair->size() != 2) {
      gemm.refuse(item, "reached", expected);
    }
    const std::optional<double> rows = number_of(*pair->get(0));
    const std::optional<double> fraction = number_of(*pair->get(1));
    const double last = table.empty() ? 0 : table.back().rows;
    if (!rows || !fraction || *rows <= last || *rows > kMost || !kReached.hold(*fraction)) {
      gemm.refuse(item, "reached", expected);
    }
    table.push_back({*rows, *fraction});
  }
  return table;
}

void read_gemm(const toml::table& table, const std::string& file, Profile& profile) {
  Section gemm(table, "gemm", file);
  profile.peak_flops = gemm.number("peak_tflops", kPositive) * kTera;
  profile.gemm = read_efficiency(gemm);
  profile.launch = gemm.number_or("launch_us", kNotNegative, 0) * kMicro;
  gemm.finish();
}

double read_bandwidth(Section& section) {
  const double peak = section.number("gb_per_s", kPositive);
  return section.number_or("reached", kReached, 1) * peak * kGiga;
}

Link read_link(const toml::table& table, const std::string& key, const std::string& file) {
  Section section(table, key, file);
  Link link;
  link.bandwidth = read_bandwidth(section);
  link.latency = section.number("latency_us", kNotNegative) * kMicro;
  section.finish();
  return link;
}

const toml::table& need_table(Section& root, const std::string& key, const std::string& file) {
  const toml::table* table = root.table(key);
  if (table == nullptr) {
    throw InputError(file + ": the section [" + key + "] is missing");
  }
  return *table;
}

toml::table parse(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw InputError(name + ":" + std::to_string(error.source().begin.line) +
                     ": not TOML: " + one_line(error.description()));
  }
}

}  // namespace

Profile parse_profile(std::string_view toml, const std::string& name) {
  const std::string file = one_line(name);
  const toml::table table = parse(toml, file);
  Section root(table, "", file);
  Profile profile;
  profile.name = name;
  const std::string words = "the figures' source, in quotes";
  const toml::node& source = root.need("source", words);
  if (!source.is_string()) {
    root.refuse(source, "source", words);
  }
  profile.source = source.as_string()->get();
  if (const toml::node* node = root.find("ranks_per_node")) {
    const toml::value<std::int64_t>* ranks = node->as_integer();
    if (ranks == nullptr || ranks->get() < 0 || ranks->get() > 65536) {
      root.refuse(*node, "ranks_per_node",
                  "a whole number from 0 (all ranks in one node) to 65536");
    }
    profile.ranks_per_node = static_cast<int>(ranks->get());
  }
  if (const toml::node* node = root.find("measured")) {
    if (!node->is_boolean()) {
      root.refuse(*node, "measured", "true or false");
    }
    profile.measured = node->as_boolean()->get();
  }
  if (const toml::table* gemm = root.table("gemm")) {
    read_gemm(*gemm, file, profile);
  } else if (!profile.measured) {
    need_table(root, "gemm", file);
  }
  Section memory(need_table(root, "memory", file), "memory", file);
  profile.memory_bandwidth = read_bandwidth(memory);
  memory.finish();
  if (const toml::table* section = root.table("host")) {
    Section host(*section, "host", file);
    profile.host_cell = host.number("plan_cell_ns", kNotNegative) * kNano;
    host.finish();
  }
  profile.intra = read_link(need_table(root, "intra", file), "intra", file);
  const toml::table* inter = root.table("inter");
  profile.inter = inter == nullptr ? profile.intra : read_link(*inter, "inter", file);
  root.finish();
  return profile;
}

Profile load_profile(const std::string& path) {
  return parse_profile(read_text(path), path);
}

}  // namespace lrmoe::cost

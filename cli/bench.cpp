// `lrmoe bench`: the micro-benchmarks, by Google Benchmark.
#include <benchmark/benchmark.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::cli {
namespace {

struct BenchOptions {
  std::string filter = ".*";
  std::string min_time;
  std::string json;
  bool list = false;
};

/// Google Benchmark takes its settings as command-line flags.
void initialize(const BenchOptions& options) {
  std::vector<std::string> flags = {"lrmoe bench", "--benchmark_filter=" + options.filter,
                                    "--benchmark_color=false"};
  if (!options.min_time.empty()) {
    flags.push_back("--benchmark_min_time=" + options.min_time);
  }
  if (options.list) {
    flags.emplace_back("--benchmark_list_tests=true");
  }
  std::vector<char*> arguments;
  for (std::string& flag : flags) {
    arguments.push_back(flag.data());
  }
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
}

void run(const BenchOptions& options) {
  check_json(options.json);
  initialize(options);
  // The table goes where the JSON does not.
  std::ostringstream document;
  benchmark::ConsoleReporter table(benchmark::ConsoleReporter::OO_Tabular);
  std::ostream& shown = options.json == "-" ? std::cerr : std::cout;
  table.SetOutputStream(&shown);
  table.SetErrorStream(&std::cerr);
  benchmark::JSONReporter json;
  json.SetOutputStream(&document);
  json.SetErrorStream(&std::cerr);

  /// Both at once: what is measured is measured once.
  class Both final : public benchmark::BenchmarkReporter {
   public:
    Both(BenchmarkReporter& first, BenchmarkReporter& second) : first_(first), second_(second) {}
    bool ReportContext(const Context& context) override {
      const bool a = first_.ReportContext(context);
      const bool b = second_.ReportContext(context);
      return a && b;
    }
    void ReportRuns(const std::vector<Run>& runs) override {
      first_.ReportRuns(runs);
      second_.ReportRuns(runs);
    }
    void Finalize() override {
      first_.Finalize();
      second_.Finalize();
    }

   private:
    BenchmarkReporter& first_;
    BenchmarkReporter& second_;
  } both(table, json);

  if (benchmark::RunSpecifiedBenchmarks(&both) == 0) {
    throw InputError("bench: no benchmark's name matches " + quote(options.filter) +
                     "; lrmoe bench --list shows them");
  }
  if (!options.list) {
    write_json(options.json, document.str());
  }
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "micro-benchmarks of this machine");
  command->add_option("--filter", options->filter,
                      "regular expression for the names, e.g. 'plan/ranks:64/'");
  command->add_option("--min-time", options->min_time, "seconds that each is measured, e.g. 0.1")
      ->check(CLI::PositiveNumber);
  command->add_flag("--list", options->list, "show the names and measure nothing");
  add_json_option(*command, options->json);
  command->callback([options, &action] { action = [options] { run(*options); }; });
}

}  // namespace lrmoe::cli

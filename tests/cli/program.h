// Runs the program as a user would, by the shell.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "lrmoe/base/atomic_file.h"
#include "tests/temporary_folder.h"

namespace lrmoe::testing {

struct Outcome {
  int status = -1;
  std::string output;
  std::string error;
};

/// Runs `lrmoe ARGUMENTS` by the shell in `folder`.
inline Outcome lrmoe_in(const TemporaryFolder& folder, const std::string& arguments) {
  const std::string command = "cd '" + folder.path().string() + "' && '" LRMOE_PROGRAM "' " +
                              arguments + " 2> standard_error";
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << "popen";
    return outcome;
  }
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.error = lrmoe::read_text(folder / "standard_error");
  return outcome;
}

/// Expects status 2, nothing on standard output and this line on standard error.
inline void expect_usage_error(const std::string& arguments, const std::string& line) {
  const TemporaryFolder folder;
  lrmoe::write_file(folder / "a.toml", "[train]\nsteps = 3\n");
  const Outcome outcome = lrmoe_in(folder, arguments);
  EXPECT_EQ(outcome.status, 2) << arguments;
  EXPECT_EQ(outcome.output, "") << arguments;
  EXPECT_EQ(outcome.error.substr(0, line.size()), line) << arguments;
  EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  EXPECT_FALSE(std::filesystem::exists(folder / "runs")) << arguments;
}

}  // namespace lrmoe::testing

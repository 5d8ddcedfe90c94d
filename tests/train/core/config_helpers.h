// Reading a configuration from text, and the message that a wrong one gives.
#pragma once

#include <gtest/gtest.h>

#include "lrmoe/base/error.h"
#include "lrmoe/train/config.h"

namespace lrmoe::train {

inline Config parse(const std::string& text, const std::vector<std::string>& settings = {}) {
  return parse_config(text, "a.toml", settings);
}

/// The message of the InputError that `text` and `settings` give.
inline std::string message_of(const std::string& text,
                              const std::vector<std::string>& settings = {}) {
  try {
    parse(text, settings);
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace lrmoe::train

// The message of an exception that a call must throw.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace lrmoe::testing {

/// what() of the E that `call` throws; fails the test when it throws none, or
/// when the message is not one line.
template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lrmoe::testing

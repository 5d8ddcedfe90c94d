// The errors LRMoE throws. A user's mistake is an InputError (exit status 2), a
// run that fails is a RunError (exit status 1), a broken internal rule is an
// InternalError (also 1: it is ours).
#pragma once

#include <stdexcept>
#include <string>

namespace lrmoe {

/// Base of every exception that LRMoE throws. `what()` is one line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wrong usage or unreadable input: says what, where, and what would be right.
class InputError : public Error {
 public:
  using Error::Error;
};

/// The run itself failed (a rank stopped, a disk filled up, the loss diverged).
class RunError : public Error {
 public:
  using Error::Error;
};

/// A rule that the program's own code must keep was broken.
class InternalError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void throw_internal(const char* condition, const std::string& message,
                                 const char* file, int line);

}  // namespace lrmoe

/// Checks a rule of the program's own making; never used for a user's input.
#define LRMOE_ASSERT(condition, message)                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ::lrmoe::throw_internal(#condition, (message), __FILE__, __LINE__); \
    }                                                                     \
  } while (false)

// The program's log: lines on standard error. The level comes from the
// environment's LRMOE_LOG (trace, debug, info, warn, error or off; default info).
#pragma once

#include <string>

namespace lrmoe::log {

void debug(const std::string& message);
void info(const std::string& message);
void warn(const std::string& message);
void error(const std::string& message);

/// Warns the first time only that `key` comes up in this process.
void warn_once(const std::string& key, const std::string& message);

}  // namespace lrmoe::log

#include "lrmoe/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "lrmoe/base/names.h"

namespace lrmoe::log {
namespace {

std::shared_ptr<spdlog::logger> make_logger() {
  auto made =
      std::make_shared<spdlog::logger>("lrmoe", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  made->set_pattern("[%H:%M:%S] %l: %v");
  made->flush_on(spdlog::level::trace);
  const char* wanted = std::getenv("LRMOE_LOG");
  if (wanted == nullptr) {
    return made;
  }
  const std::string name = wanted;
  const spdlog::level::level_enum level = spdlog::level::from_str(name);
  if (level == spdlog::level::off && name != "off") {
    // from_str answers `off` for what it does not know.
    made->warn("LRMOE_LOG = {} is not a level; there are: trace, debug, info, warn, error, off",
               quote(name));
  } else {
    made->set_level(level);
  }
  return made;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> the = make_logger();
  return *the;
}

}  // namespace

void debug(const std::string& message) {
  logger().debug("{}", message);
}
void info(const std::string& message) {
  logger().info("{}", message);
}
void warn(const std::string& message) {
  logger().warn("{}", message);
}
void error(const std::string& message) {
  logger().error("{}", message);
}

void warn_once(const std::string& key, const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (seen.insert(key).second) {
    warn(message);
  }
}

}  // namespace lrmoe::log

#include "lrmoe/base/error.h"

namespace lrmoe {

void throw_internal(const char* condition, const std::string& message, const char* file, int line) {
  throw InternalError(message + " [" + condition + " is false at " + file + ":" +
                      std::to_string(line) + "]");
}

}  // namespace lrmoe

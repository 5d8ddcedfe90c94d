// LRMoE's errors as Python's.
#pragma once

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

#include "lrmoe/base/error.h"

namespace lrmoe::python {

/// Calls the function; a user's mistake becomes a ValueError, any other error of
/// LRMoE's a RuntimeError.
template <class Function>
auto translated(const Function& function) {
  try {
    return function();
  } catch (const InputError& error) {
    TORCH_CHECK_VALUE(false, error.what());
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, "[lrmoe] ", error.what());
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what());
  }
}

}  // namespace lrmoe::python

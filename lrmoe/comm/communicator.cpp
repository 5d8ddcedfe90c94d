#include "lrmoe/comm/communicator.h"

namespace lrmoe::comm {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return 1;
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::f64:
      return 8;
  }
  throw InternalError("size_of: no such dtype");
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
  }
  throw InternalError("name_of: no such dtype");
}

}  // namespace lrmoe::comm

// The `c10d` engine of a build without torch.
#include "lrmoe/comm/c10d.h"

namespace lrmoe::comm {

std::unique_ptr<Communicator> make_c10d(const std::string& group_name) {
  throw InputError("[c10d] process group " + group_name +
                   ": this program was built without torch (LRMOE_TORCH=OFF)");
}

}  // namespace lrmoe::comm

#include "tests/moe/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace lrmoe::testing {
namespace {

struct Count {
  std::mutex mutex;
  std::int64_t live = 0;
  std::int64_t peak = 0;
  void add(std::int64_t bytes) {
    const std::lock_guard lock(mutex);
    live += bytes;
    peak = std::max(peak, live);
  }
};

thread_local std::shared_ptr<Count> current;

struct Block {
  std::int64_t bytes = 0;
  std::shared_ptr<Count> count;
};

c10::Allocator* base = nullptr;
std::mutex blocks_mutex;
std::unordered_map<void*, Block> blocks;  // those that are counted

void free_block(void* data) {
  Block block;
  {
    const std::lock_guard lock(blocks_mutex);
    if (auto node = blocks.extract(data); !node.empty()) {
      block = node.mapped();
    }
  }
  if (block.count) {
    block.count->add(-block.bytes);
  }
  base->raw_deallocate(data);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = base->raw_allocate(bytes);
    if (current && data != nullptr) {
      current->add(static_cast<std::int64_t>(bytes));
      const std::lock_guard lock(blocks_mutex);
      blocks[data] = {static_cast<std::int64_t>(bytes), current};
    }
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

void put_in_place() {
  static CountingAllocator allocator;
  static std::once_flag once;
  std::call_once(once, [] {
    base = c10::GetCPUAllocator();
    c10::SetAllocator(c10::DeviceType::CPU, &allocator, 255);
  });
}

}  // namespace

MemoryMeter::MemoryMeter() {
  put_in_place();
  current = std::make_shared<Count>();
}
MemoryMeter::~MemoryMeter() {
  current.reset();
}
std::int64_t MemoryMeter::live() const {
  return current->live;
}
std::int64_t MemoryMeter::peak() const {
  return current->peak;
}
void MemoryMeter::restart() {
  const std::lock_guard lock(current->mutex);
  current->peak = current->live;
}

}  // namespace lrmoe::testing

#include "lrmoe/trace/trace.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/base/safetensors.h"
#include "lrmoe/trace/encoding.h"

namespace lrmoe::trace {
namespace {

using safetensors::Tensor;

std::string prefix_of(int step, int layer) {
  return "s" + std::to_string(step) + ".l" + std::to_string(layer) + ".";
}

/// One layer's tensors in the file.
struct Layer {
  const Tensor* ids = nullptr;
  const Tensor* gates = nullptr;
  const Tensor* source = nullptr;  // null: not given
  const Tensor* scores = nullptr;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

class Header {
 public:
  Header(const safetensors::Reader& file) : file_(file), where_(file.name()) {}

  Info info() const {
    if (text("format") != "lrmoe-trace") {
      throw InputError(where_ + ": no routing trace: its metadata has no format = 'lrmoe-trace'");
    }
    if (text("version") != "1") {
      throw InputError(where_ + ": version " + quote(text("version")) +
                       " of the trace format; this program reads version 1");
    }
    Info info;
    info.model = text("model");
    info.source = text("source");
    info.experts = static_cast<int>(whole("num_experts", {}));
    info.top_k = static_cast<int>(whole("top_k", {}));
    info.steps = static_cast<int>(whole("num_steps", {}));
    info.layers = static_cast<int>(whole("num_layers", {}));
    info.hidden = static_cast<int>(whole("hidden", 0));
    info.expert_width = static_cast<int>(whole("expert_width", 0));
    info.ranks = static_cast<int>(whole("ranks", 0));
    info.first = whole("first_step", 1);
    check_info(info, where_);
    return info;
  }

  Layer layer(int step, int index, const Info& info) const {
    const std::string prefix = prefix_of(step, index);
    Layer found{&need(prefix + "ids"), &need(prefix + "gates"), file_.find(prefix + "source"),
                file_.find(prefix + "scores")};
    const std::vector<std::int64_t>& shape = found.ids->shape;
    if (shape.size() != 2 || shape[1] != info.top_k) {
      throw InputError(where(*found.ids) + "shape " + shape_text(shape) +
                       "; it takes [tokens, top_k], top_k = " + std::to_string(info.top_k));
    }
    check(*found.ids, {"U8", "U16", "I32"}, shape);
    if (info.experts > most_experts(found.ids->dtype)) {
      throw InputError(where(*found.ids) + found.ids->dtype + " ids cannot name " +
                       std::to_string(info.experts) + " experts");
    }
    check(*found.gates, {"F16", "BF16", "F32"}, shape);
    if (found.source != nullptr) {
      check(*found.source, {"I32"}, {shape[0]});
    }
    if (found.scores != nullptr) {
      check(*found.scores, {"F32"}, shape);
    }
    return found;
  }

 private:
  std::string where(const Tensor& tensor) const {
    return where_ + ": tensor " + quote(tensor.name) + ": ";
  }

  std::string text(const char* key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? "" : found->second;
  }

  std::int64_t whole(const char* key, std::optional<std::int64_t> fallback) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) {
      if (fallback) {
        return *fallback;
      }
      throw InputError(where_ + ": the metadata has no " + key);
    }
    const std::string& digits = found->second;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // The narrower fields are checked against their own ranges later.
    const bool narrow = std::string_view(key) != "first_step";
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 0 ||
        (narrow && value > 2'000'000'000)) {
      throw InputError(where_ + ": " + key + " = " + quote(digits) +
                       " in the metadata is not a whole number that will do");
    }
    return value;
  }

  const Tensor& need(const std::string& name) const {
    if (const Tensor* tensor = file_.find(name)) {
      return *tensor;
    }
    throw InputError(where_ + ": there is no tensor " + quote(name) + ", though the metadata has " +
                     text("num_steps") + " steps of " + text("num_layers") + " layers");
  }

  void check(const Tensor& tensor, const std::vector<std::string>& dtypes,
             const std::vector<std::int64_t>& shape) const {
    bool known = false;
    for (const std::string& dtype : dtypes) {
      known = known || dtype == tensor.dtype;
    }
    if (!known) {
      throw InputError(where(tensor) + "dtype " + tensor.dtype + "; it takes " +
                       join(dtypes, " or "));
    }
    if (tensor.shape != shape) {
      throw InputError(where(tensor) + "shape " + shape_text(tensor.shape) + ", but " +
                       shape_text(shape) + " goes with the ids");
    }
  }

  const safetensors::Reader& file_;
  std::string where_;
};

/// Tensors of steps and layers that the metadata does not have are a mistake;
/// other names are of later versions and left alone.
void check_no_more(const safetensors::Reader& file, std::size_t known) {
  std::size_t named = 0;
  std::string example;
  for (const Tensor& tensor : file.tensors()) {
    const std::string& name = tensor.name;
    if (name.size() > 1 && name[0] == 's' && name[1] >= '0' && name[1] <= '9' &&
        (name.ends_with(".ids") || name.ends_with(".gates"))) {
      ++named;
      example = name;
    }
  }
  if (named != known) {
    throw InputError(file.name() + ": " + std::to_string(named) + " tensors of ids and gates, as " +
                     quote(example) + ", but the metadata's steps and layers have " +
                     std::to_string(known));
  }
}

}  // namespace

struct Trace::Impl {
  std::string name;
  Info info;
  std::optional<safetensors::Reader> file;
  std::vector<Layer> layers;     // of the file, step by step
  std::vector<Routing> routing;  // in memory, likewise

  std::size_t index(int step, int layer) const {
    LRMOE_ASSERT(step >= 0 && step < info.steps && layer >= 0 && layer < info.layers,
                 "no such step or layer: " + prefix_of(step, layer));
    return static_cast<std::size_t>(step) * static_cast<std::size_t>(info.layers) +
           static_cast<std::size_t>(layer);
  }

  static std::shared_ptr<const Impl> of(safetensors::Reader reader) {
    auto impl = std::make_shared<Impl>();
    impl->name = reader.name();
    impl->file.emplace(std::move(reader));
    const Header header(*impl->file);
    impl->info = header.info();
    for (int s = 0; s < impl->info.steps; ++s) {
      for (int l = 0; l < impl->info.layers; ++l) {
        impl->layers.push_back(header.layer(s, l, impl->info));
      }
    }
    check_no_more(*impl->file, 2 * impl->layers.size());
    return impl;
  }
};

Trace::Trace(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Trace Trace::open(const std::filesystem::path& path) {
  return Trace(Impl::of(safetensors::Reader(path)));
}

Trace Trace::parse(std::span<const std::byte> file, const std::string& name) {
  return Trace(Impl::of(safetensors::Reader(file, name)));
}

Trace::Trace(Info info, std::vector<Routing> routing, const std::string& name) {
  auto impl = std::make_shared<Impl>();
  impl->name = quote(name);
  impl->info = std::move(info);
  impl->routing = std::move(routing);
  check_info(impl->info, impl->name);
  const auto wanted =
      static_cast<std::size_t>(impl->info.steps) * static_cast<std::size_t>(impl->info.layers);
  if (impl->routing.size() != wanted) {
    throw InputError(impl->name + ": " + std::to_string(impl->routing.size()) +
                     " layers, but its steps and layers are " + std::to_string(wanted));
  }
  for (int s = 0; s < impl->info.steps; ++s) {
    for (int l = 0; l < impl->info.layers; ++l) {
      check_routing(impl->routing[impl->index(s, l)], impl->info, impl->name, prefix_of(s, l));
    }
  }
  impl_ = std::move(impl);
}

const Info& Trace::info() const {
  return impl_->info;
}

const std::string& Trace::name() const {
  return impl_->name;
}

Routing Trace::read(int step, int layer) const {
  const std::size_t index = impl_->index(step, layer);
  if (!impl_->file) {
    return impl_->routing[index];
  }
  const Layer& tensors = impl_->layers[index];
  Routing routing;
  routing.tokens = tensors.ids->shape[0];
  routing.top_k = impl_->info.top_k;
  routing.ids = decode_ids(tensors.ids->bytes, tensors.ids->dtype);
  routing.gates = decode_floats(tensors.gates->bytes, tensors.gates->dtype);
  if (tensors.source != nullptr) {
    routing.sources = decode_i32(tensors.source->bytes);
  }
  if (tensors.scores != nullptr) {
    routing.scores = decode_floats(tensors.scores->bytes, "F32");
  }
  check_routing(routing, impl_->info, impl_->name, prefix_of(step, layer));
  return routing;
}

std::int64_t Trace::tokens(int step, int layer) const {
  const std::size_t index = impl_->index(step, layer);
  return impl_->file ? impl_->layers[index].ids->shape[0] : impl_->routing[index].tokens;
}

bool Trace::has_sources(int step, int layer) const {
  const std::size_t index = impl_->index(step, layer);
  return impl_->file ? impl_->layers[index].source != nullptr
                     : !impl_->routing[index].sources.empty();
}

bool Trace::has_scores(int step, int layer) const {
  const std::size_t index = impl_->index(step, layer);
  return impl_->file ? impl_->layers[index].scores != nullptr
                     : !impl_->routing[index].scores.empty();
}

std::int64_t Trace::bytes() const {
  std::size_t bytes = 0;
  for (const Layer& layer : impl_->layers) {
    for (const Tensor* tensor : {layer.ids, layer.gates, layer.source, layer.scores}) {
      bytes += tensor != nullptr ? tensor->bytes.size() : 0;
    }
  }
  for (const Routing& routing : impl_->routing) {
    bytes += 4 * (routing.ids.size() + routing.gates.size() + routing.sources.size() +
                  routing.scores.size());
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace lrmoe::trace

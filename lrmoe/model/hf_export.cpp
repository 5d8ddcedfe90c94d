#include "lrmoe/model/hf_export.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"

namespace lrmoe::model {

namespace {

namespace fs = std::filesystem;

// What is asked for and written at once: a dense parameter or an expert, or a tensor
// of the source that is written as it is.
struct Unit {
  std::string parameter;
  std::size_t moe_layer = 0;
  int expert = -1;
  std::vector<HfTensor> parts;
  std::vector<std::string> dtypes;
  const safetensors::Tensor* copied = nullptr;

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const safetensors::Tensor part{parts[i].name, dtypes[i], parts[i].shape, {}};
      sum += static_cast<std::uint64_t>(part.elements()) * safetensors::size_of(dtypes[i]);
    }
    return sum;
  }
};

using DtypeOf = std::function<std::string(const std::string& name)>;

std::vector<Unit> units_of(const ModelConfig& config, const DtypeOf& dtype_of, bool biases) {
  std::vector<Unit> units;
  const auto add = [&](Unit unit) {
    for (const HfTensor& part : unit.parts) {
      unit.dtypes.push_back(dtype_of(part.name));
    }
    units.push_back(std::move(unit));
  };
  for (HfParameter& parameter : hf_parameters(config)) {
    if (biases || !parameter.name.ends_with(".router_bias")) {
      add({parameter.name, 0, -1, std::move(parameter.parts), {}, nullptr});
    }
  }
  std::size_t moe_layer = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!config.is_moe_layer(layer)) {
      continue;
    }
    for (int e = 0; e < config.experts; ++e) {
      add({"", moe_layer, e, hf_expert(config, layer, e), {}, nullptr});
    }
    ++moe_layer;
  }
  return units;
}

at::ScalarType scalar_type(const std::string& dtype) {
  return dtype == "BF16" ? at::kBFloat16 : (dtype == "F16" ? at::kHalf : at::kFloat);
}

// The header's view of some units.
std::vector<safetensors::Tensor> table(std::span<const Unit> units) {
  std::vector<safetensors::Tensor> tensors;
  for (const Unit& unit : units) {
    for (std::size_t i = 0; i < unit.parts.size(); ++i) {
      tensors.push_back({unit.parts[i].name, unit.dtypes[i], unit.parts[i].shape, {}});
    }
  }
  return tensors;
}

void append(safetensors::Writer& writer, const Unit& unit, const at::Tensor& value) {
  if (unit.copied != nullptr) {
    writer.append(unit.copied->bytes);
    return;
  }
  std::int64_t at = 0;
  const at::Tensor flat = value.defined() ? value.reshape({-1}) : at::Tensor();
  for (std::size_t i = 0; i < unit.parts.size(); ++i) {
    const safetensors::Tensor part{unit.parts[i].name, unit.dtypes[i], unit.parts[i].shape, {}};
    const std::int64_t count = part.elements();
    const at::ScalarType type = scalar_type(unit.dtypes[i]);
    const at::Tensor out =
        flat.defined() ? flat.narrow(0, at, count).to(type).contiguous() : at::zeros({count}, type);
    writer.append({static_cast<const std::byte*>(out.const_data_ptr()), out.nbytes()});
    at += count;
  }
}

// The units' values, one after the other, to the writer where there is one. A rank that
// cannot write goes on fetching, so that no other waits for it, and fails at the end.
void write_units(std::span<const Unit> units, const HfValues& values, safetensors::Writer* writer,
                 std::exception_ptr& failure) {
  const at::NoGradGuard no_grad;
  for (const Unit& unit : units) {
    at::Tensor value;
    if (unit.copied == nullptr) {
      value = unit.expert < 0 ? values.dense(unit.parameter)
                              : values.expert(unit.moe_layer, unit.expert);
    }
    try {
      if (writer != nullptr && !failure) {
        append(*writer, unit, value);
      }
    } catch (const Error&) {
      failure = std::current_exception();
    }
  }
}

// Everything but the weights; what is no plain file at the folder's top stays behind.
void copy_other_files(const fs::path& source, const fs::path& target) {
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    const bool weights = extension == ".safetensors" || extension == ".bin" || extension == ".pt" ||
                         extension == ".pth" || extension == ".gguf" || extension == ".h5" ||
                         extension == ".msgpack" || name.ends_with(".index.json");
    if (entry.is_regular_file() && !weights) {
      fs::copy_file(entry.path(), target / name);
    }
  }
}

// How many units go into each file.
std::vector<std::size_t> cut(const std::vector<Unit>& units, std::uint64_t most) {
  std::vector<std::size_t> counts{0};
  std::uint64_t bytes = 0;
  for (const Unit& unit : units) {
    if (counts.back() > 0 && bytes + unit.bytes() > most) {
      counts.push_back(0);
      bytes = 0;
    }
    ++counts.back();
    bytes += unit.bytes();
  }
  return counts;
}

std::string file_name(std::size_t i, std::size_t count) {
  if (count == 1) {
    return "model.safetensors";
  }
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", i + 1, count);
  return text;
}

const safetensors::Metadata kMetadata{{"format", "pt"}};

void write_index(const std::vector<Unit>& units, const std::vector<std::size_t>& counts,
                 const fs::path& folder) {
  nlohmann::json map = nlohmann::json::object();
  std::uint64_t bytes = 0;
  std::size_t at = 0;
  for (std::size_t f = 0; f < counts.size(); ++f) {
    for (std::size_t i = 0; i < counts[f]; ++i, ++at) {
      bytes += units[at].bytes();
      for (const HfTensor& part : units[at].parts) {
        map[part.name] = file_name(f, counts.size());
      }
    }
  }
  const nlohmann::json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
  write_file(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

std::string default_dtype(const HfConfig& config) {
  return config.dtype == "bfloat16" ? "BF16" : (config.dtype == "float16" ? "F16" : "F32");
}

std::vector<Unit> saved_units(const HfConfig& config, const HfWeights& original) {
  const ModelConfig& m = config.model;
  std::map<std::string, std::string> fused;  // of every expert's tensors, where they were joined
  for (int layer = 0; layer < m.layers; ++layer) {
    const std::vector<HfTensor> joined = hf_fused_experts(m, layer);
    const std::string gate_up = original.dtype(joined[0].name, "");
    for (int e = 0; m.is_moe_layer(layer) && !gate_up.empty() && e < m.experts; ++e) {
      const std::vector<HfTensor> parts = hf_expert(m, layer, e);
      fused[parts[0].name] = fused[parts[1].name] = gate_up;
      fused[parts[2].name] = original.dtype(joined[1].name, gate_up);
    }
  }
  std::vector<Unit> units = units_of(
      m,
      [&](const std::string& name) {
        const auto found = fused.find(name);
        return found != fused.end() ? found->second : original.dtype(name, default_dtype(config));
      },
      true);
  for (const safetensors::Tensor& tensor : original.unused()) {
    Unit unit{"", 0, -1, {{tensor.name, tensor.shape}}, {tensor.dtype}, &tensor};
    units.push_back(std::move(unit));
  }
  return units;
}

void check_target(const fs::path& target) {
  if (fs::exists(target)) {
    throw InputError(quote(target.string()) + " is there already; name a folder that is not");
  }
}

}  // namespace

void save_hf(const HfSave& save, const HfConfig& config, const HfWeights& original,
             const HfValues& values, comm::Communicator& communicator) {
  const bool first = communicator.rank() == 0;
  const std::vector<Unit> units = saved_units(config, original);
  const std::vector<std::size_t> counts = cut(units, save.shard_bytes);
  std::optional<AtomicFolder> folder;
  std::exception_ptr failure;
  const auto guarded = [&](const auto& act) {
    try {
      if (first && !failure) {
        act();
      }
    } catch (const Error&) {
      failure = std::current_exception();
    } catch (const fs::filesystem_error& error) {
      failure = std::make_exception_ptr(
          RunError("cannot write " + quote(save.target.string()) + ": " + one_line(error.what())));
    }
  };
  guarded([&] {
    check_target(save.target);
    folder.emplace(save.target);
    copy_other_files(save.source, folder->path());
  });
  std::size_t at = 0;
  for (std::size_t f = 0; f < counts.size(); ++f) {
    const std::span<const Unit> part(units.data() + at, counts[f]);
    std::optional<safetensors::Writer> writer;
    guarded([&] {
      writer.emplace(folder->path() / file_name(f, counts.size()), table(part), kMetadata);
    });
    write_units(part, values, writer ? &*writer : nullptr, failure);
    guarded([&] { writer->commit(); });
    at += counts[f];
  }
  guarded([&] {
    if (counts.size() > 1) {
      write_index(units, counts, folder->path());
    }
    folder->commit();
  });
  if (failure) {
    std::rethrow_exception(failure);
  }
  communicator.barrier();
}

void write_hf_tensors(const fs::path& file, const ModelConfig& config, const HfValues& values,
                      comm::Communicator& communicator) {
  const std::vector<Unit> units = units_of(
      config, [](const std::string&) { return std::string("F32"); }, false);
  std::optional<safetensors::Writer> writer;
  std::exception_ptr failure;
  if (communicator.rank() == 0) {
    try {
      writer.emplace(file, table(units), kMetadata);
    } catch (const Error&) {
      failure = std::current_exception();
    }
  }
  write_units(units, values, writer ? &*writer : nullptr, failure);
  if (failure) {
    std::rethrow_exception(failure);
  }
  if (writer) {
    writer->commit();
  }
  communicator.barrier();
}

}  // namespace lrmoe::model

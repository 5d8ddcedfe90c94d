// The weights of a Hugging Face folder: safetensors in one file or several with an
// index, mapped into memory and read piece by piece, so that a rank reads only what
// it holds and no second copy of the model is ever in memory.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lrmoe/base/safetensors.h"
#include "lrmoe/model/hf_config.h"
#include "lrmoe/model/hf_names.h"
#include "lrmoe/model/transformer.h"

namespace lrmoe::model {

class HfWeights {
 public:
  /// Opens every file and checks all names, shapes and dtypes (F32, BF16, F16). An
  /// InputError of one line names the file and the tensor that is missing, not
  /// expected, there twice, or of another shape; weights of layers for multi-token
  /// prediction are passed over. May be shared by ranks that are threads.
  HfWeights(const std::filesystem::path& folder, const HfConfig& config);

  /// Fills the model's dense parameters and its routers' biases.
  void load_dense(Transformer& model) const;
  /// Fills the working weights of this rank's slots, and of no other's, as they are
  /// placed now.
  void load_slots(Transformer& model) const;
  /// Elements [begin, end) of an expert's flat parameters [gate_up 2nd | down dn],
  /// in fp32; `layer` counts all layers, dense ones too.
  at::Tensor expert(int layer, int expert, std::int64_t begin, std::int64_t end) const;

  /// The dtype that a tensor has in the files ("BF16"); `otherwise` where it is in none.
  std::string dtype(const std::string& name, const std::string& otherwise) const;

  /// Whether every expert's tensors have this dtype in the files.
  bool all_experts_are(const std::string& dtype) const;

  struct File {
    std::filesystem::path path;
    std::uintmax_t bytes = 0;
    std::size_t tensors = 0;
  };
  const std::vector<File>& files() const { return files_; }
  /// Tensors of the files that this model does not use (multi-token prediction).
  const std::vector<safetensors::Tensor>& unused() const { return unused_; }

 private:
  // Elements [offset, offset + count) of a tensor in a file.
  struct Piece {
    const safetensors::Tensor* tensor = nullptr;
    std::int64_t offset = 0;
    std::int64_t count = 0;
  };
  using Source = std::vector<Piece>;  // one after the other

  void open(const std::filesystem::path& folder);
  void open_file(const std::filesystem::path& path);
  void check_index(const std::filesystem::path& index,
                   const std::map<std::string, std::string>& map) const;
  void check_names();
  void check_left(std::set<std::string> left);
  const safetensors::Tensor& find(const HfTensor& wanted) const;
  Source source(const std::vector<HfTensor>& parts) const;
  Source expert_source(int layer, int expert) const;
  void read(const Source& source, std::int64_t begin, std::int64_t end,
            const at::Tensor& target) const;

  std::string where_;  // the file or the index, for messages
  HfConfig config_;
  std::vector<std::unique_ptr<safetensors::Reader>> readers_;
  std::vector<File> files_;
  struct Place {
    const safetensors::Tensor* tensor = nullptr;
    std::size_t file = 0;
  };
  std::map<std::string, Place, std::less<>> tensors_;
  std::vector<bool> fused_;  // per layer: all experts in two tensors
  std::vector<safetensors::Tensor> unused_;
};

}  // namespace lrmoe::model

#include "lrmoe/trace/writer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "lrmoe/base/error.h"
#include "lrmoe/base/names.h"
#include "lrmoe/trace/encoding.h"

namespace lrmoe::trace {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMostPending = std::size_t{64} << 20;

std::string metadata_of(const Info& info, int steps) {
  nlohmann::ordered_json metadata{{"format", "lrmoe-trace"},
                                  {"version", "1"},
                                  {"model", info.model},
                                  {"num_experts", std::to_string(info.experts)},
                                  {"top_k", std::to_string(info.top_k)},
                                  {"num_steps", std::to_string(steps)},
                                  {"num_layers", std::to_string(info.layers)},
                                  {"hidden", std::to_string(info.hidden)},
                                  {"expert_width", std::to_string(info.expert_width)},
                                  {"source", info.source}};
  if (info.ranks > 0) {
    metadata["ranks"] = std::to_string(info.ranks);
  }
  if (info.first != 1) {
    metadata["first_step"] = std::to_string(info.first);
  }
  using Json = nlohmann::ordered_json;
  return "\"__metadata__\":" + metadata.dump(-1, ' ', false, Json::error_handler_t::replace) + "}";
}

std::string entry(const std::string& name, const std::string& dtype,
                  const std::vector<std::int64_t>& shape, std::uint64_t begin, std::uint64_t end) {
  std::string extents;
  for (const std::int64_t extent : shape) {
    extents += (extents.empty() ? "" : ",") + std::to_string(extent);
  }
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + extents +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]},";
}

/// Bytes that the header takes at most.
std::uint64_t header_room(const Info& info, const WriterOptions& options) {
  const auto digits = [](std::int64_t x) { return std::to_string(x).size(); };
  // Names, dtypes and punctuation, the step, the layer, tokens, k and two offsets.
  const std::uint64_t each = 64 + digits(info.steps) + digits(info.layers) + 13 +
                             digits(info.top_k) + std::uint64_t{2} * 17;
  const std::uint64_t tensors = 2 + (options.sources ? 1U : 0U) + (options.scores ? 1U : 0U);
  const std::uint64_t layers =
      static_cast<std::uint64_t>(info.steps) * static_cast<std::uint64_t>(info.layers);
  const std::uint64_t room = metadata_of(info, info.steps).size() + layers * tensors * each + 16;
  return (room + 7) / 8 * 8;
}

void check_target(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    throw InputError("cannot write a trace to " + quote(path.string()) + ": it is no regular file");
  }
}

fs::path checked(const fs::path& path) {
  check_target(path);
  return path;
}

}  // namespace

Writer::Writer(const fs::path& path, const Info& info, const WriterOptions& options)
    : info_(info), options_(options), name_(quote(path.string())), file_(checked(path)) {
  check_info(info, name_);
  room_ = header_room(info, options);
  if (room_ > kLongestHeader) {
    throw InputError(name_ + ": " + std::to_string(info.steps) + " steps of " +
                     std::to_string(info.layers) + " layers need a header of " +
                     std::to_string(room_) + " bytes, and the format takes at most " +
                     std::to_string(kLongestHeader) + "; write fewer steps to a file");
  }
  std::string start(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    start[i] = static_cast<char>(room_ >> (8 * i) & 0xff);
  }
  start += "{" + std::string(room_ - 1, ' ');
  file_.write(start);
}

void Writer::add_tensor(const std::string& name, const std::string& dtype,
                        const std::vector<std::int64_t>& shape, std::uint64_t bytes) {
  entries_ += entry(name, dtype, shape, data_, data_ + bytes);
  data_ += bytes;
}

void Writer::append(const Routing& routing) {
  LRMOE_ASSERT(steps_ < info_.steps, "more steps than were announced to " + name_);
  const std::string prefix = "s" + std::to_string(steps_) + ".l" + std::to_string(layer_) + ".";
  check_routing(routing, info_, name_, prefix);
  LRMOE_ASSERT(options_.sources || routing.sources.empty(), "sources were not announced");
  LRMOE_ASSERT(options_.scores || routing.scores.empty(), "scores were not announced");
  const std::string ids = id_type(info_.experts);
  const std::vector<std::int64_t> pairs{routing.tokens, routing.top_k};
  const std::uint64_t count = routing.ids.size();
  add_tensor(prefix + "ids", ids, pairs, count * (ids == "U8" ? 1 : ids == "U16" ? 2 : 4));
  encode_ids(routing.ids, ids, pending_);
  add_tensor(prefix + "gates", "F32", pairs, count * 4);
  encode(routing.gates, pending_);
  if (!routing.sources.empty()) {
    add_tensor(prefix + "source", "I32", {routing.tokens}, routing.sources.size() * 4);
    encode(routing.sources, pending_);
  }
  if (!routing.scores.empty()) {
    add_tensor(prefix + "scores", "F32", pairs, count * 4);
    encode(routing.scores, pending_);
  }
  if (++layer_ == info_.layers) {
    layer_ = 0;
    ++steps_;
    if (options_.live) {
      write_data();
      write_header();
      file_.publish();
    }
  }
  // A live file takes whole steps alone, so that it is a trace all the time.
  if (!options_.live && pending_.size() >= kMostPending) {
    write_data();
  }
}

void Writer::write_data() {
  file_.write_at(kLengthBytes + room_ + spilled_, pending_);
  spilled_ += pending_.size();
  pending_.clear();
}

void Writer::write_header() {
  // Behind the entries that stand; the metadata that stood there is written over, and
  // what comes is never shorter.
  const std::string text = entries_ + metadata_of(info_, steps_);
  LRMOE_ASSERT(1 + header_ + text.size() <= room_, "the header outgrew its room");
  file_.write_at(kLengthBytes + 1 + header_, std::as_bytes(std::span(text)));
  header_ += entries_.size();
  entries_.clear();
}

void Writer::flush() {
  if (!options_.live && layer_ == 0) {
    write_data();
  }
  file_.sync();
}

void Writer::commit() {
  LRMOE_ASSERT(layer_ == 0, "a step of " + name_ + " lacks layers");
  if (steps_ == 0) {
    return;
  }
  write_data();
  write_header();
  file_.commit();
}

std::unique_ptr<Writer> resume(const fs::path& path, const Info& info, int steps,
                               const WriterOptions& options) {
  const Trace old = Trace::open(path);
  const Info& had = old.info();
  if (had.experts != info.experts || had.top_k != info.top_k || had.layers != info.layers ||
      had.first != info.first || had.ranks != info.ranks) {
    throw InputError(old.name() + " is not the trace of this run: it has " +
                     std::to_string(had.layers) + " layers of " + std::to_string(had.experts) +
                     " experts, top-" + std::to_string(had.top_k) + ", on " +
                     std::to_string(had.ranks) + " ranks, from step " + std::to_string(had.first) +
                     " on");
  }
  if (had.steps < steps) {
    throw InputError(old.name() + " holds " + std::to_string(had.steps) + " steps, and the run " +
                     "goes on after " + std::to_string(steps) + " of them");
  }
  // The old file stays until the first new step is there.
  WriterOptions all = options;
  all.live = false;
  for (int l = 0; l < info.layers && steps > 0; ++l) {
    all.sources = all.sources || old.has_sources(0, l);
    all.scores = all.scores || old.has_scores(0, l);
  }
  auto writer = std::make_unique<Writer>(path, info, all);
  for (int s = 0; s < steps; ++s) {
    for (int l = 0; l < info.layers; ++l) {
      writer->append(old.read(s, l));
    }
  }
  writer->options_.live = options.live;
  return writer;
}

void write(const fs::path& path, const Trace& trace) {
  Writer writer(path, trace.info());
  for (int s = 0; s < trace.info().steps; ++s) {
    for (int l = 0; l < trace.info().layers; ++l) {
      writer.append(trace.read(s, l));
    }
  }
  writer.commit();
}

}  // namespace lrmoe::trace

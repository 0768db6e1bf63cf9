#include "pack/reader/inspect.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

void AddTensors(const TensorFile& file, std::map<std::string, FormatShare>& shares) {
  for (const TensorInfo& t : file.tensors()) {
    FormatShare& share = shares[MatrixFormatName(t.format)];
    ++share.count;
    share.values += uint64_t{t.rows} * t.cols;
    share.bytes += t.bytes;
  }
}

void AddExperts(const ExpertFile& file, PackSummary& summary) {
  for (uint32_t layer = 0; layer < file.layer_count(); ++layer) {
    const ExpertLayout& layout = file.layout(LayerId(layer));
    const std::string name = ExpertLayoutName(layout);
    FormatShare& share = summary.experts[name];
    share.count += file.expert_count();
    share.values += uint64_t{layout.hidden} * layout.width * 3 * file.expert_count();
    share.bytes += layout.blob_bytes() * file.expert_count();
    summary.expert_layer_formats.push_back(name);
    summary.expert_bytes_max = std::max(summary.expert_bytes_max, layout.stride_bytes());
  }
}

uint64_t ValuesOf(const std::map<std::string, FormatShare>& shares) {
  uint64_t values = 0;
  for (const auto& [name, share] : shares) values += share.values;
  return values;
}

Json ShareJson(const std::map<std::string, FormatShare>& shares) {
  Json json = Json::object();
  for (const auto& [name, share] : shares) {
    json[name] = {{"count", share.count},
                  {"values", share.values},
                  {"bytes", share.bytes},
                  {"bits_per_value", BitsPerValue(share)}};
  }
  return json;
}

std::string ShareLines(std::string_view kind, std::string_view unit,
                       const std::map<std::string, FormatShare>& shares) {
  std::string text;
  for (const auto& [name, share] : shares) {
    absl::StrAppend(&text, absl::StrFormat("  %-10s %-6s %10d %-8s %10s  %6.3f bits per weight\n",
                                           ToAbsl(kind), name, share.count, ToAbsl(unit),
                                           FormatBytes(share.bytes), BitsPerValue(share)));
  }
  return text;
}

// "gdn x3, qsa, gdn x3, qsa" would be long for 48 layers: counts, and where the sparse layers are.
std::string LayersText(const ModelGeometry& g) {
  std::string qsa;
  for (uint32_t i = 0; i < g.layer_count(); ++i) {
    if (g.layers[i] == MixerKind::kQsa) absl::StrAppend(&qsa, qsa.empty() ? "" : " ", i);
  }
  return absl::StrCat(g.layer_count(), qsa.empty() ? "" : " (QSA at ", qsa,
                      qsa.empty() ? "" : ", the rest GDN)", g.has_mtp ? ", MTP head" : "");
}

}  // namespace

uint64_t PackSummary::parameters() const {
  return ValuesOf(dense) + ValuesOf(mtp) + ValuesOf(experts) + ngram.values;
}

double BitsPerValue(const FormatShare& share) {
  if (share.values == 0) return 0;
  return 8.0 * static_cast<double>(share.bytes) / static_cast<double>(share.values);
}

PackSummary SummarisePack(const Pack& pack) {
  PackSummary summary;
  summary.dir = pack.dir;
  summary.manifest = pack.manifest;
  summary.pack_bytes = pack.manifest.ToJson().size();
  for (const PackFile& file : pack.manifest.files) summary.pack_bytes += file.bytes;
  AddTensors(pack.dense, summary.dense);
  if (pack.mtp != nullptr) AddTensors(*pack.mtp, summary.mtp);
  AddExperts(pack.experts, summary);
  if (pack.ngram != nullptr) {
    summary.ngram_format = NgramRowFormatName(pack.ngram->format());
    summary.ngram = {.count = pack.ngram->row_count(),
                     .values = pack.ngram->row_count() * pack.ngram->row_dim(),
                     .bytes = pack.ngram->row_count() * pack.ngram->row_bytes()};
  }
  return summary;
}

std::string SummaryText(const PackSummary& s) {
  const ModelGeometry& g = s.manifest.geometry;
  std::string text =
      absl::StrCat(s.dir, ": pack version ", s.manifest.version, ", ", FormatBytes(s.pack_bytes),
                   ", made by ", s.manifest.made_by, " from ", s.manifest.source_dialect, "\n");
  absl::StrAppend(&text, "  layers     ", LayersText(g), "\n");
  absl::StrAppend(&text, "  shape      hidden ", g.hidden, " x ", g.stream_count,
                  " streams, vocabulary ", g.vocab_count, ", context ", g.context_tokens_max,
                  " tokens\n");
  absl::StrAppend(&text, "  experts    ", g.moe.expert_count, " per layer, ",
                  g.moe.experts_per_token, " per token, width ", g.moe.expert_width, ", ",
                  s.expert_bytes_max, " bytes each at most\n");
  text += absl::StrFormat("  parameters %d, %.3f bits each\n", s.parameters(),
                          8.0 * static_cast<double>(s.pack_bytes) /
                              static_cast<double>(std::max<uint64_t>(s.parameters(), 1)));
  text += "weights\n";
  text += ShareLines("dense", "tensors", s.dense);
  text += ShareLines("MTP", "tensors", s.mtp);
  text += ShareLines("experts", "experts", s.experts);
  if (!s.ngram_format.empty()) text += ShareLines("n-grams", "rows", {{s.ngram_format, s.ngram}});
  text += "files\n";
  for (const PackFile& file : s.manifest.files) {
    text += absl::StrFormat("  %-22s %16d  %s\n", file.name, file.bytes, file.xxh3_128);
  }
  return text;
}

std::string SummaryJson(const PackSummary& s) {
  const ModelGeometry& g = s.manifest.geometry;
  Json files = Json::array();
  for (const PackFile& file : s.manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  }
  Json json = {{"dir", s.dir},
               {"version", s.manifest.version},
               {"made_by", s.manifest.made_by},
               {"source_dialect", s.manifest.source_dialect},
               {"source_xxh3_128", s.manifest.source_xxh3_128},
               {"tokenizer_xxh3_128", s.manifest.tokenizer_xxh3_128},
               {"dense_format", s.manifest.dense},
               {"expert_format", s.manifest.experts},
               {"pack_bytes", s.pack_bytes},
               {"parameters", s.parameters()}};
  json["geometry"] = {{"layers", g.layer_count()},
                      {"hidden", g.hidden},
                      {"streams", g.stream_count},
                      {"vocab", g.vocab_count},
                      {"context_tokens_max", g.context_tokens_max},
                      {"experts_per_layer", g.moe.expert_count},
                      {"experts_per_token", g.moe.experts_per_token},
                      {"expert_width", g.moe.expert_width},
                      {"has_mtp", g.has_mtp}};
  json["dense"] = ShareJson(s.dense);
  json["mtp"] = ShareJson(s.mtp);
  json["experts"] = ShareJson(s.experts);
  json["expert_layer_formats"] = s.expert_layer_formats;
  json["expert_bytes_max"] = s.expert_bytes_max;
  json["ngram"] = s.ngram_format.empty() ? Json::object() : ShareJson({{s.ngram_format, s.ngram}});
  json["files"] = std::move(files);
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace hearth

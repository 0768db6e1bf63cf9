// manifest.json by hand-ordered keys: the text is a function of the manifest alone, so that builds
// are reproducible, and its last field is a hash of all the text before it.
#include "pack/format/manifest.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "pack/format/content_hash.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormatName = "hearth-pack";
constexpr std::string_view kHead = "{\n  \"format\": \"hearth-pack\",\n  \"manifest_bytes\": ";
constexpr std::string_view kHashKey = ",\n  \"manifest_xxh3_128\": \"";
constexpr std::string_view kTail = "\"\n}\n";
constexpr size_t kHashDigits = 32;
constexpr size_t kTailBytes = kHashKey.size() + kHashDigits + kTail.size();
constexpr size_t kLayersMax = 4096;
constexpr size_t kListMax = 65536;
constexpr int kDepthMax = 6;

Json GeometryToJson(const ModelGeometry& g) {
  Json layers = Json::array();
  for (const MixerKind kind : g.layers) layers.push_back(kind == MixerKind::kGdn ? "gdn" : "qsa");
  Json json = {{"vocab_count", g.vocab_count},
               {"hidden", g.hidden},
               {"layers", layers},
               {"stream_count", g.stream_count},
               {"hc_rank", g.hc_rank},
               {"norm_epsilon", static_cast<double>(g.norm_epsilon)},
               {"context_tokens_max", g.context_tokens_max}};
  json["attention"] = {{"head_count", g.attention.head_count},
                       {"kv_head_count", g.attention.kv_head_count},
                       {"head_dim", g.attention.head_dim},
                       {"rotary_dim", g.attention.rotary_dim},
                       {"rope_theta", g.attention.rope_theta},
                       {"indexer_head_count", g.attention.indexer_head_count},
                       {"indexer_head_dim", g.attention.indexer_head_dim},
                       {"block_tokens", g.attention.block_tokens},
                       {"block_count_max", g.attention.block_count_max}};
  json["gdn"] = {{"key_head_count", g.gdn.key_head_count},
                 {"value_head_count", g.gdn.value_head_count},
                 {"key_head_dim", g.gdn.key_head_dim},
                 {"value_head_dim", g.gdn.value_head_dim},
                 {"conv_taps", g.gdn.conv_taps},
                 {"output_gate", g.gdn.output_gate == OutputGate::kSilu ? "silu" : "sigmoid"}};
  json["moe"] = {{"expert_count", g.moe.expert_count},
                 {"experts_per_token", g.moe.experts_per_token},
                 {"expert_width", g.moe.expert_width},
                 {"shared_width", g.moe.shared_width},
                 {"renormalise", g.moe.renormalise}};
  json["ngram"] = {{"layer", g.ngram.layer},
                   {"ngram_size", g.ngram.ngram_size},
                   {"heads_per_ngram", g.ngram.heads_per_ngram},
                   {"row_dim", g.ngram.row_dim},
                   {"conv_taps", g.ngram.conv_taps},
                   {"eos_token", g.ngram.eos_token},
                   {"row_count", g.ngram.row_count},
                   {"multipliers", g.ngram.multipliers},
                   {"head_rows", g.ngram.head_rows},
                   {"head_offsets", g.ngram.head_offsets}};
  json["has_mtp"] = g.has_mtp;
  json["mtp_rope_theta"] = g.mtp_rope_theta;
  json["stop_tokens"] = g.stop_tokens;
  return json;
}

// Reads one object: every key must be asked for, every key asked for must be there. The first
// complaint is kept; nothing after it matters.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string where, absl::Status& status)
      : json_(json), where_(std::move(where)), status_(status) {
    if (!json_.is_object()) Complain(absl::StrCat(where_, ": an object is expected"));
  }

  template <class T>
  void Get(const char* key, T& out) {
    const Json* value = Take(key);
    if (value != nullptr) Convert(*value, absl::StrCat(where_, ".", key), out);
  }
  // A list of T.
  template <class T>
  void GetList(const char* key, std::vector<T>& out, size_t count_max) {
    const Json* value = Take(key);
    if (value == nullptr) return;
    const std::string where = absl::StrCat(where_, ".", key);
    if (!value->is_array() || value->size() > count_max) {
      Complain(absl::StrCat(where, ": a list of at most ", count_max, " items is expected"));
      return;
    }
    out.resize(value->size());
    for (size_t i = 0; i < out.size(); ++i) {
      Convert((*value)[i], absl::StrCat(where, "[", i, "]"), out[i]);
    }
  }
  // The names in order are the values 0, 1, ...
  template <class Enum>
  void GetEnum(const char* key, std::initializer_list<std::string_view> names, Enum& out) {
    std::string name;
    Get(key, name);
    ToEnum(name, absl::StrCat(where_, ".", key), names, out);
  }
  template <class Enum>
  void ToEnum(const std::string& name, const std::string& where,
              std::initializer_list<std::string_view> names, Enum& out) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      Complain(absl::StrCat(where, ": unknown value \"", name, "\""));
      return;
    }
    out = static_cast<Enum>(it - names.begin());
  }
  // A nested object or list, null after a complaint.
  const Json* Take(const char* key) {
    if (!status_.ok()) return nullptr;
    const auto it = json_.find(key);
    if (it == json_.end()) {
      Complain(absl::StrCat(where_, ": key \"", key, "\" is missing"));
      return nullptr;
    }
    taken_.insert(key);
    return &*it;
  }
  void Finish() {
    if (!status_.ok()) return;
    for (const auto& item : json_.items()) {
      if (!taken_.contains(item.key())) {
        Complain(absl::StrCat(where_, ": unknown key \"", item.key().substr(0, 64), "\""));
        return;
      }
    }
  }
  void Complain(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(what);
  }

 private:
  void Convert(const Json& value, const std::string& where, std::string& out) {
    if (!value.is_string()) return Complain(absl::StrCat(where, ": a string is expected"));
    out = value.get<std::string>();
  }
  void Convert(const Json& value, const std::string& where, bool& out) {
    if (!value.is_boolean()) return Complain(absl::StrCat(where, ": true or false is expected"));
    out = value.get<bool>();
  }
  template <class T>
  requires std::is_floating_point_v<T>
  void Convert(const Json& value, const std::string& where, T& out) {
    if (!value.is_number()) return Complain(absl::StrCat(where, ": a number is expected"));
    const double number = value.get<double>();
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<T>::max()))) {
      return Complain(absl::StrCat(where, ": ", number, " is out of range"));
    }
    out = static_cast<T>(number);
  }
  template <class T>
  requires std::is_integral_v<T>
  void Convert(const Json& value, const std::string& where, T& out) {
    const bool fits = value.is_number_unsigned()
                          ? std::in_range<T>(value.get<uint64_t>())
                          : (value.is_number_integer() && std::in_range<T>(value.get<int64_t>()));
    if (!fits) {
      return Complain(absl::StrCat(where, ": an integer from ", std::numeric_limits<T>::min(),
                                   " to ", std::numeric_limits<T>::max(), " is expected"));
    }
    out = value.is_number_unsigned() ? static_cast<T>(value.get<uint64_t>())
                                     : static_cast<T>(value.get<int64_t>());
  }

  const Json& json_;
  std::string where_;
  absl::Status& status_;
  std::set<std::string> taken_;
};

void ReadAttention(const Json& json, AttentionGeometry& a, absl::Status& status) {
  ObjectReader r(json, "geometry.attention", status);
  r.Get("head_count", a.head_count);
  r.Get("kv_head_count", a.kv_head_count);
  r.Get("head_dim", a.head_dim);
  r.Get("rotary_dim", a.rotary_dim);
  r.Get("rope_theta", a.rope_theta);
  r.Get("indexer_head_count", a.indexer_head_count);
  r.Get("indexer_head_dim", a.indexer_head_dim);
  r.Get("block_tokens", a.block_tokens);
  r.Get("block_count_max", a.block_count_max);
  r.Finish();
}

void ReadGdn(const Json& json, GdnGeometry& g, absl::Status& status) {
  ObjectReader r(json, "geometry.gdn", status);
  r.Get("key_head_count", g.key_head_count);
  r.Get("value_head_count", g.value_head_count);
  r.Get("key_head_dim", g.key_head_dim);
  r.Get("value_head_dim", g.value_head_dim);
  r.Get("conv_taps", g.conv_taps);
  r.GetEnum("output_gate", {"sigmoid", "silu"}, g.output_gate);
  r.Finish();
}

void ReadMoe(const Json& json, MoeGeometry& m, absl::Status& status) {
  ObjectReader r(json, "geometry.moe", status);
  r.Get("expert_count", m.expert_count);
  r.Get("experts_per_token", m.experts_per_token);
  r.Get("expert_width", m.expert_width);
  r.Get("shared_width", m.shared_width);
  r.Get("renormalise", m.renormalise);
  r.Finish();
}

void ReadNgram(const Json& json, NgramGeometry& n, absl::Status& status) {
  ObjectReader r(json, "geometry.ngram", status);
  r.Get("layer", n.layer);
  r.Get("ngram_size", n.ngram_size);
  r.Get("heads_per_ngram", n.heads_per_ngram);
  r.Get("row_dim", n.row_dim);
  r.Get("conv_taps", n.conv_taps);
  r.Get("eos_token", n.eos_token);
  r.Get("row_count", n.row_count);
  r.GetList("multipliers", n.multipliers, kListMax);
  r.GetList("head_rows", n.head_rows, kListMax);
  r.GetList("head_offsets", n.head_offsets, kListMax);
  r.Finish();
}

void ReadGeometry(const Json& json, ModelGeometry& g, absl::Status& status) {
  ObjectReader r(json, "geometry", status);
  r.Get("vocab_count", g.vocab_count);
  r.Get("hidden", g.hidden);
  std::vector<std::string> layers;
  r.GetList("layers", layers, kLayersMax);
  for (const std::string& name : layers) {
    r.ToEnum(name, "geometry.layers", {"gdn", "qsa"}, g.layers.emplace_back());
  }
  r.Get("stream_count", g.stream_count);
  r.Get("hc_rank", g.hc_rank);
  r.Get("norm_epsilon", g.norm_epsilon);
  r.Get("context_tokens_max", g.context_tokens_max);
  if (const Json* j = r.Take("attention")) ReadAttention(*j, g.attention, status);
  if (const Json* j = r.Take("gdn")) ReadGdn(*j, g.gdn, status);
  if (const Json* j = r.Take("moe")) ReadMoe(*j, g.moe, status);
  if (const Json* j = r.Take("ngram")) ReadNgram(*j, g.ngram, status);
  r.Get("has_mtp", g.has_mtp);
  r.Get("mtp_rope_theta", g.mtp_rope_theta);
  r.GetList("stop_tokens", g.stop_tokens, kListMax);
  r.Finish();
}

bool IsHash(const std::string& text) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kHashDigits && std::all_of(text.begin(), text.end(), digit);
}

// A plain file name: what a pack lists can only lie inside the pack.
bool IsFileName(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name != "manifest.json" &&
         std::all_of(name.begin(), name.end(), allowed);
}

void ReadFiles(const Json& json, std::vector<PackFile>& files, absl::Status& status) {
  if (!json.is_array() || json.size() > kListMax) {
    status = absl::InvalidArgumentError("files: a list is expected");
    return;
  }
  std::set<std::string> names;
  for (const Json& item : json) {
    PackFile file;
    ObjectReader r(item, absl::StrCat("files[", files.size(), "]"), status);
    r.Get("name", file.name);
    r.Get("bytes", file.bytes);
    r.Get("xxh3_128", file.xxh3_128);
    r.Finish();
    if (!status.ok()) return;
    if (!IsFileName(file.name) || !names.insert(file.name).second || !IsHash(file.xxh3_128)) {
      r.Complain(absl::StrCat("files[", files.size(), "]: name or hash is not valid"));
      return;
    }
    files.push_back(std::move(file));
  }
}

// Size and hash over the raw text, before any of it is trusted.
absl::Status CheckText(std::string_view text, const std::string& path) {
  uint64_t expected = 0;
  size_t digits = kHead.size();
  while (digits < text.size() && digits < kHead.size() + 9 && text[digits] >= '0' &&
         text[digits] <= '9') {
    expected = expected * 10 + static_cast<uint64_t>(text[digits++] - '0');
  }
  if (text.size() < kHead.size() || text.substr(0, kHead.size()) != kHead) {
    const size_t common = std::min(text.size(), kHead.size());
    if (text.size() < kHead.size() + kTailBytes &&
        text.substr(0, common) == kHead.substr(0, common)) {
      return absl::DataLossError(absl::StrCat(
          path, ": expected more than ", kHead.size() + kTailBytes, " bytes, found ", text.size()));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not the manifest of a Hearth pack (it does not begin as one)"));
  }
  if (digits == text.size()) {  // cut inside the number, or right after it
    return absl::DataLossError(absl::StrCat(
        path, ": expected more than ", kHead.size() + kTailBytes, " bytes, found ", text.size()));
  }
  if (expected != text.size() || text.size() < digits + kTailBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected ", expected, " bytes, found ", text.size()));
  }
  const std::string_view body = text.substr(0, text.size() - kTailBytes);
  const std::string want = absl::StrCat(ToAbsl(kHashKey), ContentHashHex(body), ToAbsl(kTail));
  if (text.substr(body.size()) != want) {
    return absl::DataLossError(absl::StrCat(path, ": damaged: its own checksum does not match"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> ParseStrictly(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string complaint;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDepthMax && complaint.empty()) complaint = "nested too deeply";
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty()) {
      const auto key = parsed.get<std::string>();
      if (!keys.back().insert(key).second && complaint.empty()) {
        complaint = absl::StrCat("key \"", key.substr(0, 64), "\" occurs twice");
      }
    }
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(path + ": not JSON");
  if (!complaint.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", complaint));
  return json;
}

absl::Status CheckVersion(const Json& json, const std::string& path) {
  const auto it = json.find("version");
  if (it == json.end() || !it->is_number_unsigned()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": key \"version\" is missing"));
  }
  if (it->get<uint64_t>() != kPackVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": pack version ", it->get<uint64_t>(),
                                                      ", this build reads ", kPackVersion));
  }
  return absl::OkStatus();
}

absl::Status ReadManifest(const Json& json, Manifest& m) {
  absl::Status status;
  ObjectReader r(json, "manifest", status);
  std::string format;
  std::string own_hash;
  uint64_t own_bytes = 0;
  r.Get("format", format);
  r.Get("manifest_bytes", own_bytes);
  r.Get("version", m.version);
  r.Get("made_by", m.made_by);
  r.Get("source_dialect", m.source_dialect);
  r.Get("source_xxh3_128", m.source_xxh3_128);
  r.Get("tokenizer_xxh3_128", m.tokenizer_xxh3_128);
  r.Get("dense", m.dense);
  r.Get("experts", m.experts);
  if (const Json* j = r.Take("geometry")) ReadGeometry(*j, m.geometry, status);
  if (const Json* j = r.Take("files")) ReadFiles(*j, m.files, status);
  r.Get("manifest_xxh3_128", own_hash);
  r.Finish();
  if (format != kFormatName) r.Complain("manifest.format: \"hearth-pack\" is expected");
  return status;
}

}  // namespace

std::string Manifest::ToJson() const {
  Json list = Json::array();
  for (const PackFile& file : files) {
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  }
  Json json = {{"version", version},
               {"made_by", made_by},
               {"source_dialect", source_dialect},
               {"source_xxh3_128", source_xxh3_128},
               {"tokenizer_xxh3_128", tokenizer_xxh3_128},
               {"dense", dense},
               {"experts", experts},
               {"geometry", GeometryToJson(geometry)},
               {"files", std::move(list)}};
  // Ours are ASCII; foreign strings that are not UTF-8 become replacement characters, not
  // exceptions.
  std::string fields = json.dump(2, ' ', true, Json::error_handler_t::replace);
  fields.erase(0, 1);                                              // "{": the head has it
  fields.resize(fields.size() - 2);                                // "\n}": the tail has it
  uint64_t bytes = kHead.size() + 1 + fields.size() + kTailBytes;  // 1: the comma after the number
  uint64_t total = bytes;
  while (total != bytes + absl::StrCat(total).size()) total = bytes + absl::StrCat(total).size();
  const std::string body = absl::StrCat(ToAbsl(kHead), total, ",", fields);
  return absl::StrCat(body, ToAbsl(kHashKey), ContentHashHex(body), ToAbsl(kTail));
}

absl::StatusOr<Manifest> Manifest::FromJson(std::string_view text, const std::string& path) {
  HEARTH_RETURN_IF_ERROR(CheckText(text, path));
  HEARTH_ASSIGN_OR_RETURN(const Json json, ParseStrictly(text, path));
  HEARTH_RETURN_IF_ERROR(CheckVersion(json, path));
  Manifest manifest;
  if (absl::Status status = ReadManifest(json, manifest); !status.ok()) {
    return Annotate(status, path);
  }
  if (absl::Status status = manifest.geometry.Validate(); !status.ok()) {
    return Annotate(status, path + ": geometry");
  }
  return manifest;
}

}  // namespace hearth

// manifest.json by hand-ordered keys: the text is a function of the manifest alone, so that builds
// are reproducible, and its last field is a hash of all the text before it.
#include "pack/format/manifest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/sealed_json.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormatName = "hearth-pack";
constexpr JsonSeal kSeal = {
    .format = kFormatName, .noun = "manifest", .article = "the manifest of a Hearth pack"};
constexpr size_t kHashDigits = 32;
constexpr size_t kListMax = 65536;

// The names of an enumeration's values 0, 1, ... in the text.
constexpr std::array<std::string_view, 2> NamesOf(MixerKind) { return {"gdn", "qsa"}; }
constexpr std::array<std::string_view, 2> NamesOf(OutputGate) { return {"sigmoid", "silu"}; }

// The fields of "geometry" and its objects in the order of the text, each listed once: the writer
// and the reader walk the same list. G is const for the writer.
template <class G, class T>
concept MaybeConst = std::is_same_v<std::remove_const_t<G>, T>;

template <class Visitor, MaybeConst<AttentionGeometry> G>
void VisitFields(Visitor& v, G& a) {
  v("head_count", a.head_count);
  v("kv_head_count", a.kv_head_count);
  v("head_dim", a.head_dim);
  v("rotary_dim", a.rotary_dim);
  v("rope_theta", a.rope_theta);
  v("indexer_head_count", a.indexer_head_count);
  v("indexer_head_dim", a.indexer_head_dim);
  v("block_tokens", a.block_tokens);
  v("block_count_max", a.block_count_max);
}

template <class Visitor, MaybeConst<GdnGeometry> G>
void VisitFields(Visitor& v, G& g) {
  v("key_head_count", g.key_head_count);
  v("value_head_count", g.value_head_count);
  v("key_head_dim", g.key_head_dim);
  v("value_head_dim", g.value_head_dim);
  v("conv_taps", g.conv_taps);
  v("output_gate", g.output_gate);
}

template <class Visitor, MaybeConst<MoeGeometry> G>
void VisitFields(Visitor& v, G& m) {
  v("expert_count", m.expert_count);
  v("experts_per_token", m.experts_per_token);
  v("expert_width", m.expert_width);
  v("shared_width", m.shared_width);
  v("renormalise", m.renormalise);
}

template <class Visitor, MaybeConst<NgramGeometry> G>
void VisitFields(Visitor& v, G& n) {
  v("layer", n.layer);
  v("ngram_size", n.ngram_size);
  v("heads_per_ngram", n.heads_per_ngram);
  v("row_dim", n.row_dim);
  v("conv_taps", n.conv_taps);
  v("eos_token", n.eos_token);
  v("row_count", n.row_count);
  v("multipliers", n.multipliers);
  v("head_rows", n.head_rows);
  v("head_offsets", n.head_offsets);
}

template <class Visitor, MaybeConst<ModelGeometry> G>
void VisitFields(Visitor& v, G& g) {
  v("vocab_count", g.vocab_count);
  v("hidden", g.hidden);
  v("layers", g.layers);
  v("stream_count", g.stream_count);
  v("hc_rank", g.hc_rank);
  v("norm_epsilon", g.norm_epsilon);
  v("context_tokens_max", g.context_tokens_max);
  v("attention", g.attention);
  v("gdn", g.gdn);
  v("moe", g.moe);
  v("ngram", g.ngram);
  v("has_mtp", g.has_mtp);
  v("mtp_rope_theta", g.mtp_rope_theta);
  v("stop_tokens", g.stop_tokens);
}

class ObjectWriter {
 public:
  template <class T>
  static Json Of(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return NamesOf(T{})[static_cast<size_t>(value)];
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return value;
    } else {
      ObjectWriter writer;
      VisitFields(writer, value);
      return std::move(writer.json_);
    }
  }
  template <class T>
  static Json Of(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(Of(value));
    return list;
  }
  template <class T>
  void operator()(const char* key, const T& value) {
    json_[key] = Of(value);
  }

 private:
  Json json_ = Json::object();
};

// Reads one object: every key must be asked for, every key asked for must be there. The first
// complaint is kept; nothing after it matters.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string where, absl::Status& status)
      : json_(json), where_(std::move(where)), status_(status) {
    if (!json_.is_object()) Complain(absl::StrCat(where_, ": an object is expected"));
  }

  template <class T>
  void operator()(const char* key, T& out) {
    const Json* value = Take(key);
    if (value != nullptr) Convert(*value, absl::StrCat(where_, ".", key), out);
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
  void Convert(const Json& value, const std::string& where, std::string& out) {
    if (!value.is_string()) return Complain(absl::StrCat(where, ": a string is expected"));
    out = value.get<std::string>();
  }
  void Convert(const Json& value, const std::string& where, bool& out) {
    if (!value.is_boolean()) return Complain(absl::StrCat(where, ": true or false is expected"));
    out = value.get<bool>();
  }
  template <class T>
  void Convert(const Json& value, const std::string& where, std::vector<T>& out) {
    if (!value.is_array() || value.size() > kListMax) {
      return Complain(absl::StrCat(where, ": a list of at most ", kListMax, " items is expected"));
    }
    out.resize(value.size());
    for (size_t i = 0; i < out.size(); ++i) {
      Convert(value[i], absl::StrCat(where, "[", i, "]"), out[i]);
    }
  }
  template <class T>
  requires std::is_enum_v<T>
  void Convert(const Json& value, const std::string& where, T& out) {
    std::string name;
    Convert(value, where, name);
    const auto names = NamesOf(T{});
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      return Complain(absl::StrCat(where, ": unknown value \"", name.substr(0, 64), "\""));
    }
    out = static_cast<T>(it - names.begin());
  }
  template <class T>
  requires std::is_class_v<T>
  void Convert(const Json& value, const std::string& where, T& out) {
    ObjectReader reader(value, where, status_);
    VisitFields(reader, out);
    reader.Finish();
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

 private:
  const Json& json_;
  std::string where_;
  absl::Status& status_;
  std::set<std::string> taken_;
};

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
    r("name", file.name);
    r("bytes", file.bytes);
    r("xxh3_128", file.xxh3_128);
    r.Finish();
    if (!status.ok()) return;
    if (!IsFileName(file.name) || !names.insert(file.name).second || !IsHash(file.xxh3_128)) {
      r.Complain(absl::StrCat("files[", files.size(), "]: name or hash is not valid"));
      return;
    }
    files.push_back(std::move(file));
  }
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
  r("format", format);
  r("manifest_bytes", own_bytes);
  r("version", m.version);
  r("made_by", m.made_by);
  r("source_dialect", m.source_dialect);
  r("source_xxh3_128", m.source_xxh3_128);
  r("tokenizer_xxh3_128", m.tokenizer_xxh3_128);
  r("dense", m.dense);
  r("experts", m.experts);
  if (const Json* j = r.Take("geometry")) r.Convert(*j, "geometry", m.geometry);
  if (const Json* j = r.Take("files")) ReadFiles(*j, m.files, status);
  r("manifest_xxh3_128", own_hash);
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
               {"geometry", ObjectWriter::Of(geometry)},
               {"files", std::move(list)}};
  // Ours are ASCII; foreign strings that are not UTF-8 become replacement characters, not
  // exceptions.
  std::string fields = json.dump(2, ' ', true, Json::error_handler_t::replace);
  fields.erase(0, 1);                // "{": the head has it
  fields.resize(fields.size() - 2);  // "\n}": the tail has it
  return SealJson(kSeal, fields);
}

absl::StatusOr<Manifest> Manifest::FromJson(std::string_view text, const std::string& path) {
  HEARTH_RETURN_IF_ERROR(CheckSealedJson(kSeal, text, path));
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
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

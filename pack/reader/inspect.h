// What a pack holds, for people and for programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pack/reader/pack.h"

namespace hearth {

struct FormatShare {   // of one format within one kind of weights
  uint64_t count = 0;  // tensors or experts
  uint64_t values = 0;
  uint64_t bytes = 0;  // without padding between tensors or blobs
};

struct PackSummary {
  std::string dir;
  Manifest manifest;
  uint64_t pack_bytes = 0;                   // files and manifest
  std::map<std::string, FormatShare> dense;  // by format name
  std::map<std::string, FormatShare> mtp;
  std::map<std::string, FormatShare> experts;
  std::vector<std::string> expert_layer_formats;  // one per layer, the MTP layer last
  uint64_t expert_bytes_max = 0;                  // of the largest blob, as stored
  FormatShare ngram;                              // of ngram_format
  std::string ngram_format;                       // "" when there is no table
  uint64_t parameters() const;                    // all values, the table's included
};

// Bits for each value, scales included; 0 for nothing.
double BitsPerValue(const FormatShare& share);

PackSummary SummarisePack(const Pack& pack);

std::string SummaryText(const PackSummary& summary);  // lines for a terminal
std::string SummaryJson(const PackSummary& summary);  // one object on one line

}  // namespace hearth

// The page of `hearth profile report`: one HTML file with everything in it, no network, for light
// and dark screens and for paper.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cache/policy/routing_profile.h"
#include "tools/hearth/profile_facts.h"

namespace hearth::cli {

inline constexpr size_t kPageDomainsMax = 10;  // of the charts and of the heat map: the largest

std::string ProfilePage(const RoutingProfile& profile, const ProfileFacts& facts);

// A heat map's cells, one character of kCellAlphabet each. The first stands for an expert that was
// never chosen, number n for traffic of 2^((n - 32) / 8) times an even share of the layer's.
inline constexpr std::string_view kCellAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
std::string HeatCells(const RoutingIdentity& identity, std::span<const uint64_t> counts);

}  // namespace hearth::cli

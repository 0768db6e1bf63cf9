#include "tests/runtime/serve/telemetry/metrics_parser.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>

namespace hearth {
namespace {

// The family of a sample: histograms have three kinds of lines.
std::string FamilyOf(const std::string& name, const std::map<std::string, MetricFamily>& all) {
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string base = name.substr(0, name.size() - suffix.size());
    const auto found = all.find(base);
    if (found != all.end() && found->second.type == "histogram") return base;
  }
  return name;
}

}  // namespace

std::map<std::string, MetricFamily> ParseMetrics(const std::string& text) {
  static const std::regex kHelp("# HELP ([a-z][a-z0-9_]*) ([^\\n]+)");
  static const std::regex kType("# TYPE ([a-z][a-z0-9_]*) (counter|gauge|histogram)");
  static const std::regex kSample(
      "([a-z][a-z0-9_]*)((?:\\{[a-z_]+=\"(?:[^\"\\\\\\n]|\\\\[\\\\\"n])*\""
      "(?:,[a-z_]+=\"(?:[^\"\\\\\\n]|\\\\[\\\\\"n])*\")*\\})?) "
      "(-?[0-9]+(?:\\.[0-9]+)?(?:e[+-]?[0-9]+)?)");
  std::map<std::string, MetricFamily> all;
  std::string family;
  std::istringstream lines(text);
  EXPECT_TRUE(text.ends_with("\n"));
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kHelp)) {
      family = match[1];
      EXPECT_FALSE(all.contains(family)) << family << " comes twice";
      all[family].help = match[2];
    } else if (std::regex_match(line, match, kType)) {
      EXPECT_EQ(match[1], family) << "TYPE does not follow its HELP";
      all[family].type = match[2];
    } else if (std::regex_match(line, match, kSample)) {
      EXPECT_EQ(FamilyOf(match[1], all), family) << line << " is not among its family";
      const std::string key = match[1].str() + match[2].str();
      EXPECT_TRUE(all[family].values.emplace(key, std::stod(match[3])).second) << key << " twice";
    } else {
      ADD_FAILURE() << "no line of Prometheus text: " << line;
    }
  }
  return all;
}

}  // namespace hearth

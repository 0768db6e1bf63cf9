// A strict reader of Prometheus text 0.0.4: HELP and TYPE before the lines of a family, each family
// once, legal names, labels and numbers, no line twice. Fails the running test where it is not so.
#pragma once

#include <map>
#include <string>

namespace hearth {

struct MetricFamily {
  std::string type;
  std::string help;
  std::map<std::string, double> values;  // by the whole name with its labels
};

std::map<std::string, MetricFamily> ParseMetrics(const std::string& text);

}  // namespace hearth

// For tests/oracle/grammar_oracle.py. Reads lines of JSON, {"schema": TEXT, "walks": N, "accept":
// [TEXT...], "seed": N}; writes one line each: {"error": TEXT} or {"walks": [TEXT...], "accepted":
// [true, ...]}, where walks are texts of random walks over allowed tokens.
#include <iostream>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/status.h"
#include "runtime/model/grammar/json_schema.h"
#include "tests/runtime/model/grammar/grammar_fixture.h"
#include "tests/runtime/model/grammar/test_random.h"

int main() {
  using hearth::grammar::GrammarFixture;
  const GrammarFixture fixture;
  std::string line;
  while (std::getline(std::cin, line)) {
    const nlohmann::json request = nlohmann::json::parse(line);
    nlohmann::json answer;
    const auto grammar = hearth::grammar::CompileJsonSchema(request.at("schema").get<std::string>(),
                                                            fixture.leaves(), {});
    if (!grammar.ok()) {
      answer["error"] = std::string(grammar.status().message());
    } else {
      hearth::grammar::Random random(request.value("seed", 1u));
      answer["walks"] = nlohmann::json::array();
      for (int i = 0; i < request.value("walks", 0); ++i) {
        const auto constraint = fixture.Constrain(*grammar);
        const std::optional<std::string> text =
            fixture.Walk(*constraint, random, 10 + random() % 60);
        answer["walks"].push_back(text.has_value() ? nlohmann::json(*text) : nlohmann::json());
      }
      answer["accepted"] = nlohmann::json::array();
      for (const auto& text : request.value("accept", nlohmann::json::array())) {
        answer["accepted"].push_back(fixture.Accepts(*grammar, text.get<std::string>(), random));
      }
    }
    std::cout << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
  return 0;
}

// The worked examples of pack/FORMAT.md are the bytes of a pack of the model that ships with the
// project.
#include <gtest/gtest.h>

#include <cstdint>
#include <regex>
#include <sstream>
#include <string>

#include "pack/convert/build_pack.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

TEST(FormatDocument, WorkedExamplesAreTheBytesOfThePack) {
  const FixtureDir dir;
  const std::string pack = dir.File("flashlet.pack");
  const auto report =
      BuildPack({.from = HEARTH_SOURCE_DIR "/profiles/flashlet", .out = pack}, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  std::istringstream document(ReadFixtureFile(HEARTH_SOURCE_DIR "/pack/FORMAT.md"));
  const std::regex heading(R"(^## \d\. (\w+\.bin).*)");
  const std::regex example(R"(^([0-9a-f]{8})  ((?:[0-9a-f]{2} ?)+).*)");
  std::string line, name, bytes;
  int lines = 0;
  while (std::getline(document, line)) {
    std::smatch m;
    if (std::regex_match(line, m, heading)) {
      name = m[1];
      bytes = ReadFixtureFile(pack + "/" + name);
    } else if (std::regex_match(line, m, example)) {
      ++lines;
      uint64_t offset = std::stoull(m[1], nullptr, 16);
      std::istringstream codes(m[2]);
      for (std::string code; codes >> code; ++offset) {
        ASSERT_LT(offset, bytes.size()) << line;
        EXPECT_EQ(static_cast<unsigned char>(bytes[offset]), std::stoul(code, nullptr, 16))
            << name << ": " << line;
      }
    }
  }
  EXPECT_GE(lines, 15) << "the examples were not found";
}

}  // namespace
}  // namespace hearth

// The worked examples of pack/FORMAT.md are the bytes of a pack of the model that ships with the
// project.
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>

#include "pack/convert/build_pack.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

// "## 3. dense.bin and mtp.bin" -> "dense.bin"; empty for other lines.
std::string FileOfHeading(const std::string& line) {
  if (!line.starts_with("## ")) return "";
  const size_t end = line.find(".bin");
  if (end == std::string::npos) return "";
  const size_t begin = line.rfind(' ', end) + 1;
  return line.substr(begin, end + 4 - begin);
}

// "00000010  36 e3 c0 00   12,641,078 bytes": an offset, two spaces, bytes, three spaces, remarks.
bool IsExample(const std::string& line) {
  return line.size() > 12 && line.find_first_not_of("0123456789abcdef") == 8 &&
         line.substr(8, 2) == "  " && line[10] != ' ';
}

TEST(FormatDocument, WorkedExamplesAreTheBytesOfThePack) {
  const FixtureDir dir;
  const std::string pack = dir.File("flashlet.pack");
  const auto report =
      BuildPack({.from = HEARTH_SOURCE_DIR "/profiles/flashlet", .out = pack}, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  std::istringstream document(ReadFixtureFile(HEARTH_SOURCE_DIR "/pack/FORMAT.md"));
  std::string line, name, bytes;
  int lines = 0;
  while (std::getline(document, line)) {
    if (const std::string file = FileOfHeading(line); !file.empty()) {
      name = file;
      bytes = ReadFixtureFile(pack + "/" + name);
    } else if (IsExample(line)) {
      ++lines;
      uint64_t offset = std::stoull(line.substr(0, 8), nullptr, 16);
      std::istringstream codes(line.substr(10, line.find("   ", 10) - 10));
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

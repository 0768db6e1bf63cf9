// The list of fields: every type parses, prints and refuses; the list checks itself.
#include "runtime/config/field.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Fruit { kApple, kPear };
constexpr std::array<EnumEntry<Fruit>, 2> EnumEntriesOf(Fruit) {
  return {{{Fruit::kApple, "apple"}, {Fruit::kPear, "pear"}}};
}

struct SampleConfig {
  bool loud = false;
  std::string path;
  std::vector<std::string> stop;
  uint32_t rows = 4;
  uint64_t ram_bytes_max = 16_GiB;
  uint64_t seed = 0;
  float share = 0.5f;
  Fruit fruit = Fruit::kPear;
  std::optional<uint64_t> limit;
  template <class Visitor>
  void Visit(Visitor&& v) {
    v("loud", loud, "says more");
    v("path", path, "where", {.metavar = "FILE"});
    v("stop", stop, "ends");
    v("rows", rows, "rows", {.minimum = 1, .maximum = 8});
    v("ram_bytes_max", ram_bytes_max, "RAM tier size");
    v("seed", seed, "of the random numbers");
    v("share", share, "part", {.minimum = 0});
    v("fruit", fruit, "which");
    v("limit", limit, "most");
  }
};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(Field, EveryTypeTakesItsText) {
  SampleConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  for (const auto& [name, text] :
       std::vector<std::pair<const char*, const char*>>{{"loud", "true"},
                                                        {"path", "/a b"},
                                                        {"stop", "x"},
                                                        {"stop", "y"},
                                                        {"rows", "8"},
                                                        {"ram_bytes_max", "1.5 GiB"},
                                                        {"seed", "18446744073709551615"},
                                                        {"share", "1e-3"},
                                                        {"fruit", "apple"},
                                                        {"limit", "0"}}) {
    EXPECT_TRUE(SetField(fields, name, text).ok()) << SetField(fields, name, text);
  }
  EXPECT_TRUE(config.loud);
  EXPECT_EQ(config.path, "/a b");
  EXPECT_THAT(config.stop, ElementsAre("x", "y"));
  EXPECT_EQ(config.rows, 8u);
  EXPECT_EQ(config.ram_bytes_max, 1536_MiB);
  EXPECT_EQ(config.seed, UINT64_MAX);
  EXPECT_EQ(config.share, 1e-3f);
  EXPECT_EQ(config.fruit, Fruit::kApple);
  EXPECT_EQ(config.limit, std::optional<uint64_t>(0));
}

TEST(Field, RefusesWithNameFindingAndAcceptedForms) {
  SampleConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  const std::vector<std::array<const char*, 3>> cases = {
      {"loud", "yes", "loud: found 'yes', expected true or false"},
      {"rows", "0", "rows: found '0', expected a whole number from 1 to 8"},
      {"rows", "9", "from 1 to 8"},
      {"rows", "-1", "from 1 to 8"},
      {"rows", "4294967300", "from 1 to 8"},
      {"rows", "3x", "found '3x'"},
      {"rows", "", "found ''"},
      {"rows", " 3", "found ' 3'"},
      {"rows", "2.5", "a whole number"},
      {"ram_bytes_max", "8", "found '8', expected a size with a unit, such as 24GiB"},
      {"ram_bytes_max", "-8GiB", "a size with a unit"},
      {"seed", "18446744073709551616", "a whole number"},
      {"share", "nan", "a number of at least 0"},
      {"share", "inf", "a number of at least 0"},
      {"share", "-0.5", "a number of at least 0"},
      {"fruit", "Apple", "fruit: found 'Apple', expected one of apple|pear"},
      {"limit", "many", "a whole number"},
      {"stop", "", "not empty"}};
  for (const auto& [name, text, message] : cases) {
    const absl::Status status = SetField(fields, name, text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << " " << text;
    EXPECT_THAT(Message(status), HasSubstr(message));
  }
  SampleConfig untouched;
  EXPECT_EQ(PrintFields(fields), PrintFields(FieldsOf(untouched))) << "a refusal changes nothing";
}

TEST(Field, LongRefusedValuesAreCutInTheMessage) {
  SampleConfig config;
  const absl::Status status = SetField(FieldsOf(config), "rows", std::string(100000, '7'));
  EXPECT_LT(status.message().size(), 200u);
}

TEST(Field, UnknownKeyNamesTheNearest) {
  SampleConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  EXPECT_EQ(Message(SetField(fields, "fruits", "pear")),
            "unknown key 'fruits'; did you mean 'fruit'?");
  EXPECT_EQ(Message(SetField(fields, "entirely_other", "1")), "unknown key 'entirely_other'");
}

TEST(Field, PrintShowsDefaultsInOrderOfTheList) {
  SampleConfig config;
  EXPECT_EQ(PrintFields(FieldsOf(config)),
            "loud = false\npath = \nstop = \nrows = 4\nram_bytes_max = 16GiB\nseed = 0\n"
            "share = 0.5\nfruit = pear\nlimit = \n");
}

TEST(Field, PrintedSizesReadBackExactly) {
  SampleConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, 1_KiB + 1, 3_MiB, 1_GiB - 1_KiB}) {
    config.ram_bytes_max = bytes;
    const std::string text = FindField(fields, "ram_bytes_max")->print();
    config.ram_bytes_max = 7;
    EXPECT_TRUE(SetField(fields, "ram_bytes_max", text).ok()) << text;
    EXPECT_EQ(config.ram_bytes_max, bytes) << text;
  }
}

template <class Add>
std::string CheckWith(Add add) {
  std::vector<Field> fields;
  add(FieldCollector{fields});
  return Message(CheckFields(fields));
}

TEST(Field, CheckFieldsFindsWhatIsWrongWithAList) {
  uint32_t n = 4;
  EXPECT_EQ(CheckWith([&](auto v) { v("rows", n, "rows"); }), "");
  EXPECT_THAT(CheckWith([&](auto v) { v("rows", n, ""); }), HasSubstr("help text"));
  EXPECT_THAT(CheckWith([&](auto v) { v("Rows", n, "rows"); }), HasSubstr("snake_case"));
  EXPECT_THAT(CheckWith([&](auto v) { v("rows", n, "a"), v("rows", n, "b"); }),
              HasSubstr("listed twice"));
  EXPECT_THAT(CheckWith([&](auto v) { v("rows", n, "a", {.minimum = 5}); }),
              HasSubstr("outside its own bounds"));
}

TEST(Field, GivenFieldsRemembersNames) {
  GivenFields given;
  given.Add("rows");
  EXPECT_TRUE(given.Has("rows"));
  EXPECT_FALSE(given.Has("row"));
}

}  // namespace
}  // namespace hearth

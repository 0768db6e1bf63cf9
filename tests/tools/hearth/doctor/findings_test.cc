// Each trouble of a made-up machine has its finding, and a healthy one has none.
#include "tools/hearth/doctor/findings.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/units.h"
#include "tools/hearth/doctor/doctor_config.h"
#include "tools/hearth/doctor/doctor_facts.h"

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GpuInfo Card() {
  GpuInfo card;
  card.id = GpuId(0);
  card.name = "A card";
  card.sm = 90;
  card.memory_bytes = 24_GiB;
  return card;
}

// A machine on which all is well.
DoctorFacts Healthy() {
  DoctorFacts facts;
  facts.cpu = {.isa = "avx512vbmi",
               .allowed_cpu_count = 16,
               .core_count = 8,
               .worker_count = 8,
               .pinned = true};
  facts.memory = {.available = MemoryLimit{.available_bytes = 64_GiB, .source = "/proc/meminfo"},
                  .huge_pages = "madvise",
                  .shared_huge_pages = "advise",
                  .locked = {.soft = 8_MiB, .hard = UINT64_MAX},
                  .descriptors = {.soft = 1024, .hard = 1 << 20}};
  facts.gpu = {
      .in_build = true, .driver_version = 13000, .runtime_version = 12080, .gpus = {Card()}};
  facts.pack = PackFacts{.dir = "m.pack",
                         .bytes = 40_GiB,
                         .experts_bytes = 36_GiB,
                         .file_system = "ext4",
                         .reads_directly = true,
                         .read_bytes_per_sec = 3.5e9};
  return facts;
}

const Finding& Find(const std::vector<Finding>& findings, const std::string& id) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& finding) { return finding.id == id; });
  EXPECT_NE(found, findings.end()) << id;
  static const Finding kNone;
  return found == findings.end() ? kNone : *found;
}

TEST(Doctor, AHealthyMachineHasNothingToDo) {
  const std::vector<Finding> findings = Diagnose(Healthy());
  EXPECT_EQ(Worst(findings), Severity::kOk) << FindingsText(findings);
  EXPECT_TRUE(VerdictOf(findings, Severity::kWarning).ok());
  EXPECT_THAT(FindingsText(findings), Not(HasSubstr("->")));
  EXPECT_THAT(Find(findings, "pack.direct").found, HasSubstr("3.50 GB/s"));
}

// One thing wrong at a time: exactly the finding for it turns, and it has a remedy.
TEST(Doctor, EachTroubleHasItsFindingAndARemedy) {
  struct Case {
    const char* id;
    Severity severity;
    const char* says;
    void (*spoil)(DoctorFacts&);
  };
  const Case cases[] = {
      {"cpu.isa", Severity::kWarning, "AVX2", [](DoctorFacts& f) { f.cpu.isa = "scalar"; }},
      {"cpu.isa", Severity::kAdvice, "avx2", [](DoctorFacts& f) { f.cpu.isa = "avx2"; }},
      {"cpu.quota", Severity::kAdvice, "2.5 CPUs",
       [](DoctorFacts& f) { f.cpu.quota = CpuQuota{.cpus = 2.5, .source = "cpu.max"}; }},
      {"cpu.pinning", Severity::kAdvice, "not permitted",
       [](DoctorFacts& f) {
         f.cpu.pinned = false;
         f.cpu.pin_trouble = "not permitted";
       }},
      {"memory.available", Severity::kWarning, "/proc/meminfo",
       [](DoctorFacts& f) { f.memory.available.reset(); }},
      {"memory.huge_pages", Severity::kAdvice, "off",
       [](DoctorFacts& f) { f.memory.huge_pages = "never"; }},
      {"memory.huge_pages", Severity::kAdvice, "does not tell",
       [](DoctorFacts& f) { f.memory.huge_pages = ""; }},
      {"memory.shared_huge_pages", Severity::kAdvice, "never",
       [](DoctorFacts& f) { f.memory.shared_huge_pages = "never"; }},
      {"memory.locked", Severity::kWarning, "8.00 MiB",
       [](DoctorFacts& f) { f.memory.locked = {.soft = 8_MiB, .hard = 8_MiB}; }},
      {"files.limit", Severity::kWarning, "256",
       [](DoctorFacts& f) { f.memory.descriptors = {.soft = 256, .hard = 256}; }},
      {"gpu.driver", Severity::kAdvice, "no driver",
       [](DoctorFacts& f) {
         f.gpu.gpus.clear();
         f.gpu.no_gpus = "no driver";
       }},
      {"gpu.driver", Severity::kFailure, "11.8",
       [](DoctorFacts& f) { f.gpu.driver_version = 11080; }},
      {"gpu.kernels", Severity::kFailure, "no kernels",
       [](DoctorFacts& f) { f.gpu.gpus[0].has_kernels = false; }},
      {"gpu.pinning", Severity::kWarning, "refused",
       [](DoctorFacts& f) { f.gpu.pinning = absl::ResourceExhaustedError("refused"); }},
      {"io.uring", Severity::kAdvice, "not permitted",
       [](DoctorFacts& f) { f.io.uring = absl::FailedPreconditionError("not permitted"); }},
      {"io.uring", Severity::kAdvice, "16 MiB must be locked",
       [](DoctorFacts& f) { f.io.uring_note = "16 MiB must be locked"; }},
      {"pack.open", Severity::kFailure, "no manifest",
       [](DoctorFacts& f) { f.pack->open = absl::NotFoundError("no manifest"); }},
      {"pack.open", Severity::kDamage, "header",
       [](DoctorFacts& f) { f.pack->open = absl::DataLossError("header"); }},
      {"pack.integrity", Severity::kDamage, "layer 3 expert 17",
       [](DoctorFacts& f) {
         f.pack->deep = PackFacts::Deep{.fault_count = 2, .first_fault = "layer 3 expert 17"};
       }},
      {"pack.file_system", Severity::kWarning, "nfs",
       [](DoctorFacts& f) { f.pack->file_system = "nfs"; }},
      {"pack.direct", Severity::kAdvice, "tmpfs",
       [](DoctorFacts& f) {
         f.pack->reads_directly = false;
         f.pack->not_direct = "tmpfs has none";
       }},
      {"pack.fits", Severity::kAdvice, "36.0 GiB",
       [](DoctorFacts& f) { f.memory.available->available_bytes = 16_GiB; }},
  };
  const std::vector<Finding> healthy = Diagnose(Healthy());
  for (const Case& c : cases) {
    DoctorFacts facts = Healthy();
    c.spoil(facts);
    const std::vector<Finding> findings = Diagnose(facts);
    const Finding& finding = Find(findings, c.id);
    EXPECT_EQ(finding.severity, c.severity) << c.id << ": " << finding.found;
    EXPECT_THAT(finding.found, HasSubstr(c.says)) << c.id;
    EXPECT_NE(finding.remedy, "") << c.id;
    EXPECT_EQ(Worst(findings), c.severity) << c.id << "\n" << FindingsText(findings);
    EXPECT_THAT(FindingsText(findings), HasSubstr("-> "));
  }
}

TEST(Doctor, WithoutACardLockedMemoryIsAdviceOnly) {
  DoctorFacts facts = Healthy();
  facts.gpu = {.in_build = false};
  facts.memory.locked = {.soft = 64_KiB, .hard = 64_KiB};
  const std::vector<Finding> findings = Diagnose(facts);
  EXPECT_EQ(Find(findings, "memory.locked").severity, Severity::kAdvice);
  EXPECT_EQ(Find(findings, "gpu.driver").severity, Severity::kOk);
}

TEST(Doctor, TheVerdictIsThatOfTheWorst) {
  const auto verdict = [](Severity severity, Severity fails_from) {
    return VerdictOf({{"a", Severity::kOk, "fine", ""}, {"b", severity, "bad", "do"}}, fails_from)
        .code();
  };
  EXPECT_EQ(verdict(Severity::kAdvice, Severity::kWarning), absl::StatusCode::kOk);
  EXPECT_EQ(verdict(Severity::kWarning, Severity::kFailure), absl::StatusCode::kOk);
  EXPECT_EQ(verdict(Severity::kWarning, Severity::kWarning), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(verdict(Severity::kFailure, Severity::kFailure), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(verdict(Severity::kDamage, Severity::kFailure), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(VerdictOf({}, Severity::kWarning).ok());
}

TEST(Doctor, JsonHasEveryFinding) {
  DoctorFacts facts = Healthy();
  facts.pack->dir = "bad \xFF name";
  const std::vector<Finding> findings = Diagnose(facts);
  const auto json = nlohmann::json::parse(FindingsJson(findings));
  EXPECT_EQ(json["worst"], "ok");
  ASSERT_EQ(json["findings"].size(), findings.size());
  for (size_t i = 0; i < findings.size(); ++i) {
    EXPECT_EQ(json["findings"][i]["id"], findings[i].id);
    EXPECT_EQ(json["findings"][i]["severity"], SeverityName(findings[i].severity));
  }
}

TEST(DoctorConfig, RefusesFieldsWithoutEffect) {
  EXPECT_TRUE(DoctorConfig().Validate({}).ok());
  DoctorConfig deep;
  deep.deep = true;
  EXPECT_FALSE(deep.Validate({}).ok());
  deep.pack = "p";
  EXPECT_TRUE(deep.Validate({}).ok());
  DoctorConfig key;
  key.key_file = "k";
  EXPECT_FALSE(key.Validate({}).ok());
}

}  // namespace
}  // namespace hearth::cli

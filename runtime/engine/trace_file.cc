#include "runtime/engine/trace_file.h"

#include <span>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<RouteTrace> ReadTrace(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kTraceBytesMax));
  return RouteTrace::Parse(std::as_bytes(std::span(bytes)), path);
}

absl::Status WriteTrace(const std::string& path, const RouteTrace& trace) {
  const std::vector<std::byte> bytes = trace.Serialise();
  return ReplaceFile(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace hearth

// From the flags of `hearth serve` and a loaded model to the options of its server.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/config/serve_config.h"
#include "runtime/serve/model_server.h"
#include "tools/hearth/command.h"
#include "tools/hearth/model_session.h"

namespace hearth::cli {

// What can be said of the flags before a model is loaded: keys and certificate are read, and the
// address is listened on for a moment. Errors are those that the server itself would end with.
absl::Status CheckServing(const ServeConfig& config, const CommandIo& io);

// Reads keys, templates and the pack's generation_config.json. Errors name the flag or the file.
// What a flag cannot have here (drafts without an MTP head) is told on io.talk.
absl::StatusOr<ModelServerOptions> ServeOptionsOf(const ServeConfig& config,
                                                  const ModelSession& session,
                                                  const ModelSession::Needs& needs,
                                                  const CommandIo& io, int64_t now_unix_sec);

}  // namespace hearth::cli

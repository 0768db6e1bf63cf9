// One connection from its first byte to its last: reads requests, checks them, hands them on,
// writes answers, and ends it in every way that a client or the server may.
#pragma once

#include <memory>

#include "runtime/serve/http/byte_stream.h"
#include "runtime/serve/http/server_state.h"

namespace hearth {

// `admission` is what ServerState::Admit said of this peer (not kDrop). Adds itself to the state's
// list at once and removes itself at its end.
std::shared_ptr<Connection> MakeConnection(std::shared_ptr<ServerState> state,
                                           std::unique_ptr<ByteStream> stream, PeerName peer,
                                           ServerState::Admission admission);

}  // namespace hearth

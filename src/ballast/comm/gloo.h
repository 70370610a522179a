#pragma once
// Processes that talk over TCP: c10d's Gloo process group behind Communicator, with heartbeats and failures through the
// rendezvous store.
#include "ballast/comm/bootstrap.h"
#include "ballast/comm/communicator.h"

namespace ballast {

struct GlooOptions {
  CommunicatorOptions common;
  std::string interface;  // network interface; "" takes GLOO_SOCKET_IFNAME, else loopback on one host, else the one
                          // that routes to the master
};

// Meets the others at membership.master:port; every rank calls it. One world-wide group serves all levels: messages are
// tagged, so a group per level would add connections (n - 1 per rank and level) and nothing else. Throws
// Error(PeerLost) naming the ranks that did not come in time, Error(Environment) if rank 0's port is in use,
// Error(Usage) for an unknown interface.
std::unique_ptr<Communicator> make_gloo(const Topology& topology, const Membership& membership,
                                        const GlooOptions& options = {});

}  // namespace ballast

#pragma once
// Communicators between processes: ranks of one host talk through shared memory, ranks of different hosts over TCP
// (c10d's Gloo process group); heartbeats and failures go through the rendezvous store.
#include "ballast/comm/bootstrap.h"
#include "ballast/comm/communicator.h"

namespace ballast {

// What messages between two ranks of one host go through; between hosts it is always TCP.
enum class ProcessRoutes : uint8_t {
  Auto,  // shared memory, or TCP where the system refuses it, with a warning
  Gloo,  // TCP
  Shm,   // shared memory; ranks on several hosts, or a system that refuses, are an error
};

struct ProcessOptions {
  CommunicatorOptions common;
  std::string interface;  // network interface; "" takes GLOO_SOCKET_IFNAME, else loopback on one host, else the one
                          // that routes to the master
  ProcessRoutes routes = ProcessRoutes::Auto;
  int64_t ring_bytes = 1 << 20;  // of shared memory, for each ordered pair of ranks of one host; a power of two
  std::string host;              // ranks that give the same share a host; "": host_identity()
};

// Meets the others at membership.master:port; every rank calls it. Its name is "shm", "gloo" or "shm+gloo", the same on
// all ranks. One world-wide group serves all levels: messages are tagged, so a group per level would add connections
// (n - 1 per rank and level) and nothing else. Throws
// Error(PeerLost) naming the ranks that did not come in time, Error(Environment) if rank 0's port is in use,
// Error(Usage) for an unknown interface or ProcessRoutes::Shm across hosts.
std::unique_ptr<Communicator> make_processes(const Topology& topology, const Membership& membership,
                                             const ProcessOptions& options = {});

}  // namespace ballast

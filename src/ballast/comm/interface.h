#pragma once
// Which address of this machine the others shall reach it at, and whether all ranks stand on one host.
#include <string>
#include <vector>

namespace ballast {

// Equal for processes of one host and network namespace, different otherwise.
std::string host_identity();
// Names of the interfaces that have an address.
std::vector<std::string> interface_names();
// The local address that packets to host:port leave from. Throws Error(Environment).
std::string address_towards(const std::string& host, int port);

}  // namespace ballast

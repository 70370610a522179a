#include "ballast/comm/interface.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "ballast/base/error.h"

namespace ballast {

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char name[256] = {}, network[256] = {};
  gethostname(name, sizeof name - 1);
  if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = 0;
  return std::string(name) + " " + boot + " " + network;
}

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    throw Error(ErrorKind::Environment, "cannot list the network interfaces").found(errno_text(errno));
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool has_address =
        entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6);
    if (has_address && std::find(names.begin(), names.end(), entry->ifa_name) == names.end())
      names.push_back(entry->ifa_name);
  }
  freeifaddrs(list);
  return names;
}

std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw Error(ErrorKind::Environment, fmt::format("cannot resolve the host of rank 0, '{}'", printable(host)))
        .found(gai_strerror(error))
        .cure("set MASTER_ADDR to a name or address that every host knows");
  }
  std::string address;
  int problem = 0;
  for (const addrinfo* entry = found; entry != nullptr && address.empty(); entry = entry->ai_next) {
    const int fd = socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    char text[NI_MAXHOST];
    // Connecting a datagram socket sends nothing: it only chooses the route.
    if (connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      address = text;
    } else {
      problem = errno;
    }
    close(fd);
  }
  freeaddrinfo(found);
  if (address.empty())
    throw Error(ErrorKind::Environment, fmt::format("no route to rank 0's host '{}'", printable(host)))
        .found(errno_text(problem));
  return address;
}

}  // namespace ballast

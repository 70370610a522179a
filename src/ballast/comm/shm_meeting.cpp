#include "ballast/comm/shm_meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "ballast/base/check.h"
#include "ballast/base/error.h"

namespace ballast {

namespace {

using Clock = std::chrono::steady_clock;

// The name of the listener, said back to it: a stranger does not know it.
using Name = std::string;
constexpr size_t kNameBytes = 40;

struct Hello {
  char name[kNameBytes];
  int64_t rank;
};

[[noreturn]] void refuse(const char* what, int error) {
  throw Error(ErrorKind::Environment, fmt::format("cannot {} a local socket: {}", what, errno_text(error)))
      .cure("comm.backend=gloo does without");
}

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Socket open_socket() {
  Socket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (made.fd() < 0) refuse("open", errno);
  return made;
}

// An abstract address begins with a zero byte; its length ends it.
socklen_t address_of(const Name& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Name random_name() {
  uint64_t random[2] = {};
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) refuse("name", errno);
  return fmt::format("ballast-{:016x}{:016x}", random[0], random[1]);
}

void send_hello(int socket, const Hello& hello, int memory) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{const_cast<Hello*>(&hello), sizeof hello};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) refuse("write to", errno);
}

// The descriptor that came with it, -1 if it is no hello.
Socket receive_hello(int socket, Hello& hello) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&hello, sizeof hello};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  Socket memory;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); length >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    memory = Socket(fd);
  }
  return length == static_cast<ssize_t>(sizeof hello) ? std::move(memory) : Socket();
}

bool same_user(int socket) {
  ucred who{};
  socklen_t length = sizeof who;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == geteuid();
}

class Meeting {
 public:
  Meeting(const FailureChannel& watch, const std::vector<int64_t>& local, int64_t rank,
          std::chrono::milliseconds deadline)
      : watch_(watch), local_(local), rank_(rank), deadline_(deadline), until_(Clock::now() + deadline) {}

  void run(const Name& mine, int listener, const std::vector<Name>& names, ShmNeighbours& out) {
    // Everybody connects to the lower ranks and says hello, which waits in the socket, before anybody reads: no circle.
    std::map<int64_t, Socket> sockets;
    for (const int64_t peer : local_) {
      if (peer >= rank_) continue;
      const Name& theirs = names[static_cast<size_t>(peer)];
      Socket socket = open_socket();
      sockaddr_un address;
      const socklen_t length = address_of(theirs, address);
      if (connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
        if (errno != ECONNREFUSED) refuse("connect to", errno);
        throw Error(ErrorKind::PeerLost, fmt::format("rank {} is lost to rank {} while meeting", peer, rank_))
            .found("its local socket is closed");
      }
      send_hello(socket.fd(), hello_to(theirs), out.mine->fd());
      sockets.emplace(peer, std::move(socket));
    }
    const auto higher = std::count_if(local_.begin(), local_.end(), [&](int64_t peer) { return peer > rank_; });
    for (auto accepted = decltype(higher){0}; accepted < higher;) {
      wait_for(listener, [&] { return missing(sockets); });
      Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.fd() < 0 || !same_user(socket.fd())) continue;  // a stranger
      wait_for(socket.fd(), [&] { return missing(sockets); });
      Hello hello{};
      Socket memory = receive_hello(socket.fd(), hello);
      const bool known = memory.fd() >= 0 && std::memcmp(hello.name, hello_to(mine).name, kNameBytes) == 0 &&
                         hello.rank > rank_ && std::binary_search(local_.begin(), local_.end(), hello.rank) &&
                         !sockets.contains(hello.rank);
      if (!known) continue;
      send_hello(socket.fd(), hello_to(mine), out.mine->fd());
      keep(out, hello.rank, memory);
      sockets.emplace(hello.rank, std::move(socket));
      ++accepted;
    }
    for (auto& [peer, socket] : sockets) {
      if (peer < rank_) {
        wait_for(socket.fd(), [peer = peer] { return peer; });
        Hello hello{};
        const Socket memory = receive_hello(socket.fd(), hello);
        if (memory.fd() < 0 || hello.rank != peer) {
          throw Error(ErrorKind::PeerLost, fmt::format("rank {} is lost to rank {} while meeting", peer, rank_))
              .found("its local socket is closed");
        }
        keep(out, peer, memory);
      }
    }
    std::sort(out.peers.begin(), out.peers.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    for (ShmPeer& peer : out.peers) peer.socket = sockets.at(peer.rank).release();
  }

 private:
  Hello hello_to(const Name& name) const {
    Hello hello{};
    std::copy_n(name.begin(), std::min(name.size(), kNameBytes), hello.name);
    hello.rank = rank_;
    return hello;
  }

  void keep(ShmNeighbours& out, int64_t peer, const Socket& memory) {
    auto segment = std::make_unique<ShmSegment>(memory.fd());
    if (segment->rings() != out.mine->rings() || segment->ring_bytes() != out.mine->ring_bytes()) {
      throw Error(ErrorKind::Usage, fmt::format("rank {} and rank {} have different rings", rank_, peer))
          .found(fmt::format("{} of {} bytes, {} of {} bytes", out.mine->rings(), out.mine->ring_bytes(),
                             segment->rings(), segment->ring_bytes()));
    }
    out.peers.push_back({peer, std::move(segment), -1});
  }

  int64_t missing(const std::map<int64_t, Socket>& sockets) const {
    for (const int64_t peer : local_) {
      if (peer > rank_ && !sockets.contains(peer)) return peer;
    }
    return rank_;
  }

  void check_time(int64_t peer) const {
    if (const auto failure = watch_.known()) {
      throw Error(ErrorKind::PeerLost, fmt::format("rank {} is lost to rank {} while meeting", failure->rank, rank_))
          .found(failure->reason);
    }
    if (Clock::now() < until_) return;
    throw Error(ErrorKind::PeerLost, fmt::format("rank {} is lost to rank {} while meeting", peer, rank_))
        .found(fmt::format("no shared memory from it within {} s", static_cast<double>(deadline_.count()) * 1e-3))
        .cure("see the messages of that rank; if it was only slow, raise the deadline, train.timeout");
  }

  template <class Peer>
  void wait_for(int socket, Peer&& peer) const {
    for (pollfd entry{socket, POLLIN, 0}; poll(&entry, 1, 50) <= 0;) check_time(peer());
  }

  const FailureChannel& watch_;
  const std::vector<int64_t>& local_;
  const int64_t rank_;
  const std::chrono::milliseconds deadline_;
  const Clock::time_point until_;
};

}  // namespace

ShmNeighbours::~ShmNeighbours() {
  for (const ShmPeer& peer : peers) {
    if (peer.socket >= 0) close(peer.socket);
  }
}

ShmOffer::~ShmOffer() {
  if (listener >= 0) close(listener);
}

ShmOffer offer_memory(size_t ranks, int64_t ring_bytes) {
  ShmOffer offer;
  offer.segment = std::make_unique<ShmSegment>(static_cast<int64_t>(ranks) - 1, ring_bytes);
  offer.name = random_name();
  offer.listener = open_socket().release();
  sockaddr_un address;
  const socklen_t length = address_of(offer.name, address);
  if (bind(offer.listener, reinterpret_cast<sockaddr*>(&address), length) != 0) refuse("bind", errno);
  if (listen(offer.listener, static_cast<int>(ranks)) != 0) refuse("listen at", errno);
  return offer;
}

ShmNeighbours meet_neighbours(ShmOffer offer, const std::vector<std::string>& names, const FailureChannel& watch,
                              const std::vector<int64_t>& local, int64_t rank, std::chrono::milliseconds deadline) {
  ShmNeighbours out;
  out.mine = std::move(offer.segment);
  Meeting(watch, local, rank, deadline).run(offer.name, offer.listener, names, out);
  out.mine->close_fd();
  return out;
}

}  // namespace ballast

#include "ballast/comm/processes.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "ballast/base/check.h"
#include "ballast/base/log.h"
#include "ballast/comm/c10d_communicator.h"
#include "ballast/comm/host_fit.h"
#include "ballast/comm/interface.h"
#include "ballast/comm/shm_backend.h"
#include "ballast/comm/store_watch.h"

C10_DECLARE_int(caffe2_log_level);

namespace ballast {

namespace {

using Clock = std::chrono::steady_clock;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Ends exchanges whose deadline passed, in a thread that waits for nobody. Says goodbye to the others when it goes.
class ProcessCommunicator final : public C10dCommunicator {
 public:
  ProcessCommunicator(const Topology& topology, Routes routes, std::string name, c10::intrusive_ptr<c10d::Store> store,
                      std::shared_ptr<StoreWatch> watch, const CommunicatorOptions& options)
      : C10dCommunicator(topology, std::move(routes), watch, options, /*interruptible=*/true),
        name_(std::move(name)),
        store_(std::move(store)),
        watch_(std::move(watch)),
        patience_(std::min(options.deadline, std::chrono::milliseconds(10000))) {
    keeper_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!wake_.wait_for(lock, std::chrono::milliseconds(50), [this] { return stop_; })) expire();
    });
  }
  ~ProcessCommunicator() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    keeper_.join();
    watch_->leave(patience_);
  }
  std::string name() const override { return name_; }

 private:
  std::string name_;
  c10::intrusive_ptr<c10d::Store> store_;  // rank 0's serves the others until they have left
  std::shared_ptr<StoreWatch> watch_;
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread keeper_;
};

c10::intrusive_ptr<c10d::Store> connect(const Membership& membership, std::chrono::milliseconds deadline, bool server) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(membership.port);
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = std::max(deadline, std::chrono::milliseconds(1000));  // it counts whole seconds
  if (server && membership.listen_fd >= 0) options.masterListenFd = membership.listen_fd;
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(membership.master, options);
  } catch (const std::exception& error) {
    const std::string place = fmt::format("{}:{}", membership.master, membership.port);
    if (server) {
      throw Error(ErrorKind::Environment, fmt::format("rank 0 cannot listen on port {}", membership.port))
          .at(place)
          .found(first_line(error.what()))
          .cure("the port is in use or not allowed: choose another one (MASTER_PORT), or end what uses it");
    }
    throw Error(ErrorKind::PeerLost, fmt::format("rank {} cannot reach {}", membership.rank,
                                                 membership.store_hosted ? "the launcher's store" : "rank 0"))
        .at(place)
        .found(first_line(error.what()))
        .cure("see that rank 0 runs, and that MASTER_ADDR and MASTER_PORT are right and not blocked");
  }
  return c10::make_intrusive<c10d::PrefixStore>("ballast/" + membership.run_id, store);
}

// Publishes this rank's word on `subject` and waits for everybody's; by rank. Once per subject.
std::vector<std::string> hear_all(c10d::Store& store, const FailureChannel& watch, const Membership& membership,
                                  const std::string& subject, const std::string& mine,
                                  std::chrono::milliseconds deadline) {
  const auto key = [&](int64_t rank) { return fmt::format("{}/{}", subject, rank); };
  store.set(key(membership.rank), std::vector<uint8_t>(mine.begin(), mine.end()));
  const std::string count = subject + "/count";
  const int64_t arrived = store.add(count, 1);
  if (arrived > membership.ranks) {
    throw Error(ErrorKind::Usage,
                fmt::format("more than {} ranks came to {}:{}", membership.ranks, membership.master, membership.port))
        .cure("is another run using this port? choose another MASTER_PORT, and start each rank once");
  }
  const auto until = Clock::now() + deadline;
  while (store.add(count, 0) < membership.ranks) {
    if (const auto failure = watch.known()) {
      throw Error(ErrorKind::PeerLost,
                  fmt::format("rank {} is lost to rank {} while meeting", failure->rank, membership.rank))
          .found(failure->reason);
    }
    if (Clock::now() >= until) {
      std::vector<int64_t> missing;
      for (int64_t rank = 0; rank < membership.ranks; ++rank) {
        if (!store.check({key(rank)})) missing.push_back(rank);
      }
      throw Error(ErrorKind::PeerLost, fmt::format("rank {} did not come within {} s", fmt::join(missing, ", "),
                                                   static_cast<double>(deadline.count()) * 1e-3))
          .at(fmt::format("rank {} of {}, rendezvous at {}:{}", membership.rank, membership.ranks, membership.master,
                          membership.port))
          .cure("see the messages of the missing rank; if it only starts slowly, raise the deadline, train.timeout");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::vector<std::string> words;
  for (int64_t rank = 0; rank < membership.ranks; ++rank) {
    const std::vector<uint8_t> word = store.get(key(rank));
    words.emplace_back(word.begin(), word.end());
  }
  return words;
}

// How long a waiting thread looks for messages before it sleeps: not at all where ranks share cores.
std::chrono::microseconds spin_time(const Membership& membership) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return std::chrono::microseconds(0);
  const int64_t sharing = membership.bound ? 1 : membership.local_ranks;
  return std::chrono::microseconds(CPU_COUNT(&cores) >= sharing ? 20 : 0);
}

// Where every rank stands; the same on all.
struct Hosts {
  std::vector<int64_t> local;  // ranks of this host, ascending
  bool one = false;            // all ranks stand on one
  bool shared = false;         // some ranks share one
};

Hosts hosts_of(const std::vector<std::string>& names, int64_t rank) {
  Hosts hosts;
  for (size_t peer = 0; peer < names.size(); ++peer) {
    if (names[peer] == names[static_cast<size_t>(rank)]) hosts.local.push_back(static_cast<int64_t>(peer));
  }
  const size_t different = std::set<std::string>(names.begin(), names.end()).size();
  hosts.one = different == 1;
  hosts.shared = different < names.size();
  return hosts;
}

// Fills `routes` with shared memory between the ranks of a host, if every rank of the world can offer it. Else it
// answers false on all of them, which rank 0 says, or throws.
bool share_memory(C10dCommunicator::Routes& routes, c10d::Store& store, const FailureChannel& watch,
                  const Membership& membership, const Hosts& hosts, const ProcessOptions& options) {
  constexpr char kProblem = '!';  // begins a word that is no name
  std::optional<ShmOffer> offer;
  std::string mine;
  try {
    if (hosts.local.size() > 1) mine = offer.emplace(offer_memory(hosts.local.size(), options.ring_bytes)).name;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Environment) throw;
    mine = kProblem + error.summary();
  }
  const std::chrono::milliseconds deadline = options.common.deadline;
  const std::vector<std::string> names = hear_all(store, watch, membership, "shm", mine, deadline);
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (names[rank].empty() || names[rank].front() != kProblem) continue;
    const std::string problem = fmt::format("rank {}: {}", rank, names[rank].substr(1));
    if (options.routes == ProcessRoutes::Shm)
      throw Error(ErrorKind::Environment, "no shared memory between the ranks of one host")
          .found(problem)
          .cure("free memory or raise the container's limit; comm.backend=gloo does without");
    if (membership.rank == 0) {
      log_warning("no shared memory between the ranks of one host: they talk over TCP, which is slower ({})", problem);
    }
    return false;
  }
  if (!offer) return true;  // alone on its host
  auto neighbours = meet_neighbours(std::move(*offer), names, watch, hosts.local, membership.rank, deadline);
  for (const ShmPeer& peer : neighbours.peers) routes.is_near[static_cast<size_t>(peer.rank)] = true;
  routes.near = c10::make_intrusive<ShmBackend>(static_cast<int>(membership.rank), static_cast<int>(membership.ranks),
                                                std::move(neighbours), spin_time(membership));
  return true;
}

std::shared_ptr<gloo::transport::Device> device_for(const Membership& membership, std::string interface,
                                                    bool one_host) {
  if (interface.empty()) {
    const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
    if (wanted != nullptr) interface = wanted;
  }
  if (!interface.empty()) {
    const std::vector<std::string> names = interface_names();
    if (std::find(names.begin(), names.end(), interface) == names.end()) {
      throw Error(ErrorKind::Usage, fmt::format("no network interface '{}'", printable(interface)))
          .at("GLOO_SOCKET_IFNAME")
          .expected(fmt::format("one of {}", fmt::join(names, ", ")));
    }
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  return c10d::ProcessGroupGloo::createDeviceForHostname(
      one_host ? "127.0.0.1" : address_towards(membership.master, membership.port));
}

c10::intrusive_ptr<c10d::Backend> gloo_group(const c10::intrusive_ptr<c10d::Store>& store, const Membership& membership,
                                             const ProcessOptions& options, bool one_host) {
  const auto gloo = c10d::ProcessGroupGloo::Options::create(options.common.deadline);
  gloo->threads = 1;  // they run c10d's collectives, which nobody calls
  gloo->devices.push_back(device_for(membership, options.interface, one_host));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                                                     static_cast<int>(membership.rank),
                                                     static_cast<int>(membership.ranks), gloo);
}

}  // namespace

std::unique_ptr<Communicator> make_processes(const Topology& topology, const Membership& membership,
                                             const ProcessOptions& options) {
  BALLAST_CHECK(topology.ranks() == membership.ranks, "topology of {} ranks, {} ranks started", topology.ranks(),
                membership.ranks);
  BALLAST_CHECK(!options.common.limit_links, "links between processes are as fast as they are; only make_in_process limits them");
  // The store's own warnings and errors are stack traces of what is reported here in one message: nothing below fatal.
  // TORCH_CPP_LOG_LEVEL brings them back.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, 3);
  const bool keeps = membership.rank == 0 && !membership.store_hosted;
  const std::chrono::milliseconds deadline = options.common.deadline;
  const auto store = connect(membership, deadline, keeps);
  // The watch talks to the store while others wait on it: a connection of its own.
  const auto watch = std::make_shared<StoreWatch>(connect(membership, deadline, false), membership.rank,
                                                  membership.ranks, membership.store_hosted ? -1 : 0);
  std::string problem;
  try {
    const std::string host = options.host.empty() ? host_identity() : options.host;
    const std::vector<std::string> names = hear_all(*store, *watch, membership, "host", host, deadline);
    const Hosts hosts = hosts_of(names, membership.rank);
    if (const std::string misfit = membership.rank == 0 ? host_misfit(topology, names) : ""; !misfit.empty()) log_warning("{}", misfit);
    if (options.routes == ProcessRoutes::Shm && !hosts.one) {
      throw Error(ErrorKind::Usage, "ranks on several hosts have no shared memory")
          .at("comm.backend")
          .found(fmt::format("{} of {} ranks on the host of rank {}", hosts.local.size(), membership.ranks,
                             membership.rank))
          .cure("comm.backend=auto takes shared memory within a host and TCP between hosts");
    }
    C10dCommunicator::Routes routes;
    routes.is_near.resize(static_cast<size_t>(membership.ranks), false);
    const bool shared = options.routes != ProcessRoutes::Gloo && hosts.shared &&
                        share_memory(routes, *store, *watch, membership, hosts, options);
    if (!hosts.one || !shared) routes.far = gloo_group(store, membership, options, hosts.one);
    std::string name = !shared ? "gloo" : hosts.one ? "shm" : "shm+gloo";
    return std::make_unique<ProcessCommunicator>(topology, std::move(routes), std::move(name), store, watch,
                                                 options.common);
  } catch (const Error& error) {
    watch->announce({membership.rank, membership.rank, error.summary()});
    watch->leave(std::chrono::milliseconds(2000));  // so that the others can read it
    throw;
  } catch (const std::exception& error) {
    problem = first_line(error.what());
  }
  const auto failure = watch->await(std::chrono::milliseconds(1000));
  watch->leave(std::chrono::milliseconds(2000));
  if (failure) {
    throw Error(ErrorKind::PeerLost,
                fmt::format("rank {} is lost to rank {} while connecting", failure->rank, membership.rank))
        .found(failure->reason);
  }
  throw Error(ErrorKind::PeerLost, fmt::format("rank {} cannot connect to the other ranks", membership.rank))
      .found(problem)
      .cure("see that the hosts can reach each other, and name the network interface in GLOO_SOCKET_IFNAME");
}

}  // namespace ballast

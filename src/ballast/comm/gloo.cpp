#include "ballast/comm/gloo.h"

#include <fmt/ranges.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <condition_variable>
#include <cstdlib>
#include <thread>

#include "ballast/base/check.h"
#include "ballast/comm/c10d_communicator.h"
#include "ballast/comm/interface.h"
#include "ballast/comm/store_watch.h"

C10_DECLARE_int(caffe2_log_level);

namespace ballast {

namespace {

using Clock = std::chrono::steady_clock;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Ends exchanges whose deadline passed, in a thread that waits for nobody. Says goodbye to the others when it goes.
class GlooCommunicator final : public C10dCommunicator {
 public:
  GlooCommunicator(const Topology& topology, c10::intrusive_ptr<c10d::ProcessGroupGloo> group,
                   std::shared_ptr<StoreWatch> watch, const CommunicatorOptions& options)
      : C10dCommunicator(topology, group, watch, options, /*interruptible=*/true),
        watch_(std::move(watch)),
        patience_(std::min(options.deadline, std::chrono::milliseconds(10000))) {
    keeper_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!wake_.wait_for(lock, std::chrono::milliseconds(50), [this] { return stop_; })) expire();
    });
  }
  ~GlooCommunicator() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    keeper_.join();
    watch_->leave(patience_);
  }

 private:
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

// Waits until all ranks have come; true if all stand on one host.
bool meet(c10d::Store& store, const FailureChannel& watch, const Membership& membership,
          std::chrono::milliseconds deadline) {
  const auto key = [](int64_t rank) { return fmt::format("host/{}", rank); };
  const std::string mine = host_identity();
  store.set(key(membership.rank), std::vector<uint8_t>(mine.begin(), mine.end()));
  const int64_t arrived = store.add("arrived", 1);
  if (arrived > membership.ranks) {
    throw Error(ErrorKind::Usage,
                fmt::format("more than {} ranks came to {}:{}", membership.ranks, membership.master, membership.port))
        .cure("is another run using this port? choose another MASTER_PORT, and start each rank once");
  }
  const auto until = Clock::now() + deadline;
  while (store.add("arrived", 0) < membership.ranks) {
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
          .cure("see the messages of the missing rank; if it only starts slowly, raise the deadline");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  bool one_host = true;
  for (int64_t rank = 0; rank < membership.ranks; ++rank) {
    const std::vector<uint8_t> host = store.get(key(rank));
    one_host = one_host && std::string(host.begin(), host.end()) == mine;
  }
  return one_host;
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

}  // namespace

std::unique_ptr<Communicator> make_gloo(const Topology& topology, const Membership& membership,
                                        const GlooOptions& options) {
  BALLAST_CHECK(topology.ranks() == membership.ranks, "topology of {} ranks, {} ranks started", topology.ranks(),
                membership.ranks);
  // The store's own warnings are stack traces of what is reported here in one message. TORCH_CPP_LOG_LEVEL brings them
  // back.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, 2);
  const bool keeps = membership.rank == 0 && !membership.store_hosted;
  const std::chrono::milliseconds deadline = options.common.deadline;
  const auto store = connect(membership, deadline, keeps);
  // The watch talks to the store while others wait on it: a connection of its own.
  const auto watch = std::make_shared<StoreWatch>(connect(membership, deadline, false), membership.rank,
                                                  membership.ranks, membership.store_hosted ? -1 : 0);
  const auto gloo = c10d::ProcessGroupGloo::Options::create(deadline);
  gloo->threads = 1;  // they run c10d's collectives, which nobody calls
  std::string problem;
  try {
    const bool one_host = meet(*store, *watch, membership, deadline);
    gloo->devices.push_back(device_for(membership, options.interface, one_host));
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                                                             static_cast<int>(membership.rank),
                                                             static_cast<int>(membership.ranks), gloo);
    return std::make_unique<GlooCommunicator>(topology, std::move(group), watch, options.common);
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

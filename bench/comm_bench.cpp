// Exchange rates by back end, ranks and message size: every rank sends to the next and receives from the one before.
// Also collectives, the control plane and codecs. A thread of the benchmark is a rank; Gloo's ranks talk over loopback
// TCP as processes do, those of shared memory map it as processes do.
#include <benchmark/benchmark.h>

#include <numeric>
#include <thread>

#include "ballast/comm/collectives.h"
#include "ballast/comm/processes.h"

namespace ballast {
namespace {

std::vector<std::unique_ptr<Communicator>> communicators;

void set_up_in_process(const benchmark::State& state) {
  communicators = make_in_process(Topology::flat(state.threads()));
}

void set_up_processes(const benchmark::State& state, ProcessRoutes routes) {
  const int ranks = state.threads();
  static int port = 21000;
  ++port;
  communicators.clear();
  communicators.resize(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([=] {
      Membership me;
      me.rank = me.local_rank = rank;
      me.ranks = me.local_ranks = ranks;
      me.master = "127.0.0.1";
      me.port = port;
      ProcessOptions options;
      options.routes = routes;
      communicators[static_cast<size_t>(rank)] = make_processes(Topology::flat(ranks), me, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void set_up_gloo(const benchmark::State& state) { set_up_processes(state, ProcessRoutes::Gloo); }
void set_up_shm(const benchmark::State& state) { set_up_processes(state, ProcessRoutes::Shm); }

void tear_down(const benchmark::State&) {
  // At once, as processes do: rank 0 waits for the goodbyes of the others.
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) threads.emplace_back([&communicator] { communicator.reset(); });
  for (std::thread& thread : threads) thread.join();
  communicators.clear();
}

void exchange(benchmark::State& state) {
  Communicator& communicator = *communicators[static_cast<size_t>(state.thread_index())];
  const int64_t bytes = state.range(0), rank = communicator.rank(), ranks = communicator.size();
  std::vector<char> out(static_cast<size_t>(bytes), 1), in(static_cast<size_t>(bytes));
  const Send send{(rank + 1) % ranks, out.data(), bytes};
  const Receive receive{(rank + ranks - 1) % ranks, in.data(), bytes};
  for (auto _ : state) communicator.exchange({&send, 1}, {&receive, 1}, 1, {"bench", 0});
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

void reduce(benchmark::State& state) {
  Communicator& communicator = *communicators[static_cast<size_t>(state.thread_index())];
  const int64_t part = state.range(0) / 4, rank = communicator.rank(), ranks = communicator.size();
  const Codec& codec = codec_for(parse_codec("bf16"));
  std::vector<int64_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<float> source(static_cast<size_t>(part * ranks), 1.f), result(static_cast<size_t>(part));
  std::vector<char> wire(static_cast<size_t>(reduce_wire_bytes(codec, ranks, part)));
  for (auto _ : state)
    reduce_scatter(communicator, {members, rank, 1, {"bench", 0}}, codec, source.data(), part, result.data(), false,
                   wire.data());
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * part * 4 * ranks);
}

void gather_all(benchmark::State& state) {
  Communicator& communicator = *communicators[static_cast<size_t>(state.thread_index())];
  const int64_t rank = communicator.rank(), ranks = communicator.size(), part = state.range(0) / ranks;
  std::vector<int64_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<char> whole(static_cast<size_t>(part * ranks), 1);
  for (auto _ : state) gather(communicator, {members, rank, 1, {"bench", 0}}, whole.data(), part);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * part * ranks);
}

void sum(benchmark::State& state) {
  Communicator& communicator = *communicators[static_cast<size_t>(state.thread_index())];
  const std::vector<int64_t> mine{1, 2, 3};
  for (auto _ : state) benchmark::DoNotOptimize(all_sum(communicator, mine, "bench"));
}

void codec(benchmark::State& state, const char* name) {
  const Codec& codec = codec_for(parse_codec(name));
  const int64_t elements = state.range(0);
  std::vector<float> source(static_cast<size_t>(elements), 1.25f), result(source.size());
  std::vector<char> wire(static_cast<size_t>(codec.encoded_bytes(elements)));
  for (auto _ : state) {
    codec.encode(source.data(), elements, wire.data());
    codec.decode_add(wire.data(), elements, result.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * elements * 4);
}

#define BALLAST_BENCH(function, backend) \
  BENCHMARK(function)                    \
      ->Name(#function "/" #backend)     \
      ->Setup(set_up_##backend)          \
      ->Teardown(tear_down)              \
      ->Threads(2)                       \
      ->Threads(4)                       \
      ->UseRealTime()
BALLAST_BENCH(exchange, in_process)->Arg(8)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(16 << 20);
BALLAST_BENCH(exchange, gloo)->Arg(8)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(16 << 20);
BALLAST_BENCH(exchange, shm)->Arg(8)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20)->Arg(16 << 20);
BALLAST_BENCH(reduce, in_process)->Arg(64 << 10)->Arg(4 << 20)->Arg(32 << 20);
BALLAST_BENCH(reduce, gloo)->Arg(64 << 10)->Arg(4 << 20)->Arg(32 << 20);
BALLAST_BENCH(reduce, shm)->Arg(64 << 10)->Arg(4 << 20)->Arg(32 << 20);
BALLAST_BENCH(gather_all, in_process)->Arg(64 << 10)->Arg(32 << 20);
BALLAST_BENCH(gather_all, gloo)->Arg(64 << 10)->Arg(32 << 20);
BALLAST_BENCH(gather_all, shm)->Arg(64 << 10)->Arg(32 << 20);
BALLAST_BENCH(sum, in_process);
BALLAST_BENCH(sum, gloo);
BALLAST_BENCH(sum, shm);
BENCHMARK_CAPTURE(codec, fp32, "fp32")->Arg(1 << 12)->Arg(1 << 22);
BENCHMARK_CAPTURE(codec, bf16, "bf16")->Arg(1 << 12)->Arg(1 << 22);
BENCHMARK_CAPTURE(codec, fp16, "fp16")->Arg(1 << 12)->Arg(1 << 22);

}  // namespace
}  // namespace ballast

// Runs a program's benchmarks as the ballast program runs: with the same heap.
#include <benchmark/benchmark.h>

#include "ballast/base/heap.h"

int main(int argc, char** argv) {
  ballast::keep_freed_pages();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

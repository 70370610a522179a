// Any bytes as a token store, an llm.c file or a Megatron pair: a store that can be read to its end, or a typed error.
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "ballast/base/error.h"
#include "ballast/data/foreign_store.h"
#include "ballast/data/sample_windows.h"

namespace {

using namespace ballast;

const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    auto made = std::filesystem::temp_directory_path() / ("ballast-fuzz-store-" + std::to_string(::getpid()));
    std::filesystem::create_directories(made);
    return made;
  }();
  return path;
}

std::string write(const char* name, const uint8_t* data, size_t size) {
  const std::string path = (folder() / name).string();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return path;
}

void use(std::shared_ptr<const TokenStore> store) {
  const SampleWindows windows(store, {.max_tokens = 7, .overlong = Overlong::Split});
  int64_t ids[8];
  const int64_t samples = std::min<int64_t>(windows.samples(), 100);
  for (int64_t s = 0; s < samples; ++s) {
    const Window w = windows.window(s);
    store->read(windows.position_of(w), w.length + 1, ids);
    if (windows.window_at(windows.position_of(w)).record != w.record) __builtin_trap();
    store->spans_of(w.record);
  }
  store->verify();
}

template <class Call>
void tolerate(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Internal) __builtin_trap();  // our own broken invariant is a finding
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  tolerate([&] { use(open_store(write("a.store", data, size))); });
  if (size > sizeof(StoreFooter)) {
    // The same with right checksums, or nothing behind them is ever reached.
    std::string bytes(reinterpret_cast<const char*>(data), size);
    StoreFooter footer;
    const size_t at = size - sizeof footer;
    std::memcpy(&footer, bytes.data() + at, sizeof footer);
    const auto inside = [&](const StoreRegion& region) {
      return region.offset < size && region.bytes <= size - region.offset;
    };
    if (inside(footer.token_region) && inside(footer.sum_region))
      for (uint64_t begin = 0, i = 0; begin < footer.token_region.bytes && i < footer.sum_region.bytes / 8;
           begin += kTokenChunkBytes, ++i) {
        const uint64_t bytes_here = std::min<uint64_t>(kTokenChunkBytes, footer.token_region.bytes - begin);
        const uint64_t sum = XXH3_64bits(bytes.data() + footer.token_region.offset + begin, bytes_here);
        std::memcpy(bytes.data() + footer.sum_region.offset + i * 8, &sum, 8);
      }
    for (StoreRegion* region : {&footer.offset_region, &footer.span_index_region, &footer.span_region,
                                &footer.sum_region, &footer.source_region})
      if (inside(*region)) region->checksum = XXH3_64bits(bytes.data() + region->offset, region->bytes);
    footer.file_bytes = size;
    footer.checksum = XXH3_64bits(&footer, offsetof(StoreFooter, checksum));
    std::memcpy(bytes.data() + at, &footer, sizeof footer);
    tolerate([&] { use(open_store(write("b.store", reinterpret_cast<const uint8_t*>(bytes.data()), size))); });
  }
  tolerate([&] { use(open_foreign(write("llmc.bin", data, size))); });
  const size_t half = size / 2;
  if (half > 0) {
    write("m.bin", data, half);
    tolerate([&] { use(open_foreign(write("m.idx", data + half, size - half))); });
  }
  return 0;
}

// The caching, counting allocator: exact counts, bounded waste, reuse, threads, limit and poison.
#include "ballast/kernel/allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "ballast/base/error.h"
#include "ballast/kernel/block_store.h"

namespace ballast {
namespace {

class Allocator : public testing::Test {
 protected:
  void SetUp() override {
    install_allocator();
    before_ = current_bytes();
    reset_peak();
  }
  int64_t before_ = 0;
};

uintptr_t address(const at::Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data_ptr()); }

TEST_F(Allocator, CountsWhatTensorsAskForAndItsPeak) {
  {
    const at::Tensor a = at::empty({1000}, at::kFloat);
    EXPECT_EQ(current_bytes() - before_, 4000);
    {
      const at::Tensor b = at::empty({3, 5}, at::kDouble);
      EXPECT_EQ(current_bytes() - before_, 4120);
    }
    EXPECT_EQ(current_bytes() - before_, 4000);
    EXPECT_EQ(peak_bytes() - before_, 4120);
    reset_peak();
    EXPECT_EQ(peak_bytes() - before_, 4000);
    const at::Tensor nothing = at::empty({0}, at::kFloat);
    EXPECT_EQ(current_bytes() - before_, 4000);
    const at::Tensor copy = a.clone();
    EXPECT_EQ(current_bytes() - before_, 8000);
  }
  EXPECT_EQ(current_bytes(), before_);
  EXPECT_EQ(peak_bytes() - before_, 8000);
}

TEST_F(Allocator, FreedStorageIsCountedAtOnce) {
  // What the engine does with gathered weights: the storage shrinks to nothing under its views and grows again.
  at::Tensor whole = at::zeros({1 << 20});
  const at::Tensor view = whole.slice(0, 10, 20);
  EXPECT_EQ(current_bytes() - before_, 4 << 20);
  whole.storage().unsafeGetStorageImpl()->set_nbytes(0);
  whole.storage().set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(0));
  EXPECT_EQ(current_bytes(), before_);
}

TEST(BlockSizes, WasteAtMostAnEighth) {
  for (int64_t bytes = 1; bytes < 200'000; ++bytes) {
    const int64_t block = rounded_block_bytes(bytes);
    ASSERT_GE(block, bytes);
    ASSERT_EQ(block % kBlockAlignment, 0);
    ASSERT_TRUE(block - bytes < 64 || (block - bytes) * 8 <= bytes) << bytes << " in " << block;
  }
  EXPECT_EQ(small_class(kLargestSmall), 55);
  for (int index = 0; index <= small_class(kLargestSmall); ++index)
    EXPECT_EQ(small_class(small_class_bytes(index)), index);
  EXPECT_EQ(block_bytes(0), 0);
  EXPECT_EQ(block_bytes(1), 128);
  EXPECT_EQ(block_bytes(1 << 20), (1 << 20) + 4096);
}

TEST_F(Allocator, BlocksAreAlignedAndNeverOverlap) {
  std::mt19937 random(1);
  std::vector<at::Tensor> live;
  for (int step = 0; step < 4000; ++step) {
    const int64_t bytes = std::uniform_int_distribution<int64_t>(1, int64_t{1} << (random() % 21))(random);
    at::Tensor tensor = at::empty({bytes}, at::kByte);
    ASSERT_EQ(address(tensor) % 64, 0u);
    tensor.fill_(step % 251);
    live.push_back(tensor);
    if (live.size() > 60) {
      const size_t victim = random() % live.size();
      // Its bytes are all as written: nobody else was given them.
      ASSERT_EQ(live[victim].min().item<int64_t>(), live[victim].max().item<int64_t>());
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
  for (const at::Tensor& tensor : live) ASSERT_EQ(tensor.min().item<int64_t>(), tensor.max().item<int64_t>());
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_F(Allocator, ReusesPagesAndMergesNeighbours) {
  const auto step = [] {
    std::vector<at::Tensor> tensors;
    for (int64_t n : {100, 5000, 70'000, 3'000'000, 8'000'000, 12'345'678}) tensors.push_back(at::empty({n}));
  };
  step();
  const int64_t reserved = reserved_bytes();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(reserved_bytes(), reserved);
  // Blocks of other sizes fit into what neighbours left together.
  BlockStore store;
  std::vector<void*> parts;
  for (int i = 0; i < 16; ++i) parts.push_back(store.take(4 << 20));
  const int64_t mapped = store.reserved();
  EXPECT_EQ(mapped, 64 << 20);
  for (int i : {1, 0, 3, 2, 15, 14, 7, 6, 5, 4, 9, 8, 13, 12, 11, 10}) store.give(parts[i], 4 << 20);
  void* whole = store.take(64 << 20);
  EXPECT_NE(whole, nullptr);
  EXPECT_EQ(store.reserved(), mapped);
  EXPECT_EQ(store.release(), 0);
  store.give(whole, 64 << 20);
  EXPECT_EQ(store.release(), mapped);
}

TEST_F(Allocator, ReleasedPagesComeBackEmpty) {
  uintptr_t at_first = 0;
  {
    const at::Tensor a = at::full({1 << 20}, 5.0f);
    at_first = address(a);
  }
  EXPECT_GE(release_cached(), 4 << 20);
  const at::Tensor b = at::zeros({1 << 20});
  EXPECT_EQ(address(b), at_first);
  EXPECT_EQ(b.sum().item<float>(), 0);
}
#endif

TEST_F(Allocator, ThreadsShareItAndCountsStayExact) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t, &wrong] {
      std::mt19937 random(t);
      std::vector<at::Tensor> live;
      for (int i = 0; i < 3000; ++i) {
        at::Tensor tensor = at::empty({static_cast<int64_t>(1 + random() % (1u << (random() % 18)))}, at::kByte);
        std::memset(tensor.data_ptr(), t, tensor.nbytes());
        live.push_back(std::move(tensor));
        if (live.size() > 20) {
          const at::Tensor victim = live[random() % live.size()];
          const uint8_t* bytes = victim.data_ptr<uint8_t>();
          for (size_t k = 0; k < victim.nbytes(); ++k) wrong += bytes[k] != t;
          live.erase(live.begin());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(current_bytes(), before_);
}

TEST_F(Allocator, FailureIsATypedErrorWithTheSize) {
  for (const int64_t bytes : {int64_t{1} << 60, int64_t{1} << 55}) {
    try {
      (void)c10::GetCPUAllocator()->allocate(static_cast<size_t>(bytes));
      ADD_FAILURE() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::OutOfMemory);
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW((void)c10::GetCPUAllocator()->allocate(std::numeric_limits<size_t>::max()), Error);
  EXPECT_EQ(current_bytes(), before_);
}

TEST_F(Allocator, LimitIsExact) {
  set_allocation_limit(before_ + 4096);
  {
    const at::Tensor fits = at::empty({1024});
    EXPECT_THROW(at::empty({1}), Error);
  }
  const at::Tensor again = at::empty({1024});
  set_allocation_limit(0);
  const at::Tensor more = at::empty({4096});
  EXPECT_EQ(current_bytes() - before_, 4096 + 4 * 4096);
}

TEST(Poison, IsNotANumberInEveryFloatType) {
  const std::vector<uint32_t> words(4, kPoison);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor tensor =
        at::from_blob(const_cast<uint32_t*>(words.data()), {16 / static_cast<int64_t>(c10::elementSize(type))}, type);
    EXPECT_TRUE(tensor.isnan().all().item<bool>()) << type;
  }
}

#if defined(BALLAST_POISON)
TEST_F(Allocator, FreshMemoryIsPoisoned) {
  for (int64_t n : {1, 100, 100'000}) {
    EXPECT_TRUE(at::empty({n}).isnan().all().item<bool>());
    at::ones({n});
    EXPECT_TRUE(at::empty({n}).isnan().all().item<bool>());
  }
}
#endif

}  // namespace
}  // namespace ballast

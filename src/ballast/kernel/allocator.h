#pragma once
// The CPU allocator of the process: serves every ATen CPU tensor, counts bytes exactly, and keeps its pages, so that a
// training step in steady state causes no page fault. What is allocated, and when, is the callers'.
#include <cstdint>

namespace ballast {

// Makes c10 use this allocator for CPU tensors from now on; repeatable. Tensors made before keep their old one.
void install_allocator();
bool allocator_installed();

// Bytes that live tensors asked for, now and at most since the last reset. Exact; every thread counts.
int64_t current_bytes();
int64_t peak_bytes();
void reset_peak();  // the peak becomes the current bytes

// Bytes of address space taken from the system: live blocks, rounding, and free blocks kept for reuse.
int64_t reserved_bytes();
// Gives the pages of free blocks back to the system; returns how many bytes of blocks that concerned.
int64_t release_cached();

// An allocation that would bring current_bytes() above the limit throws Error(OutOfMemory); 0 means no limit.
void set_allocation_limit(int64_t bytes);

// Bytes a request occupies, rounding and 64-byte header included: for the memory model and tests.
// Rounding is at most 1/8 of the request and header, or less than 64 bytes.
int64_t block_bytes(int64_t requested);

// The word that fresh and freed memory holds in builds with BALLAST_POISON. Repeated, it is NaN in fp16, bf16, fp32 and
// fp64.
constexpr uint32_t kPoison = 0x7ffb7ffb;

}  // namespace ballast

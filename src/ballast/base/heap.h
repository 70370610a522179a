#pragma once
// The C library's heap, for a program that asks for the same memory again in every step.

namespace ballast {

// Freed memory stays with the process up to 64 MiB, and blocks below 32 MiB come from the heap: where glibc's own adaption ends, from the start. By
// default the heap shrinks by what is free above 128 KiB and each step faults its pages in anew. Call once, before other threads; elsewhere nothing.
void keep_freed_pages();

}  // namespace ballast

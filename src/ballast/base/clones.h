#pragma once
// BALLAST_CLONES: compile a function once per x86 vector width and choose by the CPU at load time.
// Every clone must give the same bits: where a fused multiply-add would round differently, the file is built with
// -ffp-contract=off (CMakeLists.txt).

// Sanitizers start after the loader has resolved the clones, and Clang 14 has no stable support: one version there.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define BALLAST_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BALLAST_CLONES
#endif

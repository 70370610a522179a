#pragma once
// Quantities as people write them: bytes, rates, times and counts, parsed exactly and printed shortly.
// Decimal prefixes are powers of 1000 (kB, MB), binary ones powers of 1024 (KiB, MiB); ambiguous forms are refused.
#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

// Each throws Error(Usage) without a place, with what was found and examples of what is expected; callers add the
// place.
int64_t parse_bytes(std::string_view text);  // "4GiB", "200MB", "64KB", "512": bytes, a whole number >= 0
double parse_rate(std::string_view text);    // "200MB/s", "200Mbit", "1Gbit/s", "25e6": bytes/s, >= 0
double parse_time(std::string_view text);    // "3ms", "250us", "2h", "1.5": seconds, >= 0
int64_t parse_count(std::string_view text);  // "2M", "10k", "1e6", "42": a whole number; a sign is allowed
double parse_number(std::string_view text);  // "6e-4", "0.95": a finite number without unit

std::string format_bytes(int64_t bytes);      // "1.5 GiB", "512 B"
std::string format_rate(double bytes_per_s);  // "200 MB/s"
std::string format_time(double seconds);      // "3 ms", "2.5 s", "2 h 05 min"
std::string format_count(int64_t count);      // "2.1M", "12.3k", "999"

}  // namespace ballast

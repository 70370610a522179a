#include "ballast/comm/collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ballast/base/check.h"
#include "ballast/codec/half.h"

namespace ballast {

namespace {

constexpr int64_t kBlock = 4096;  // elements summed at a time: 16 KiB stay in the first-level cache over all members

void check_hop(const Communicator& communicator, const Hop& hop) {
  const int64_t members = static_cast<int64_t>(hop.members.size());
  BALLAST_CHECK(
      hop.index >= 0 && hop.index < members && hop.members[static_cast<size_t>(hop.index)] == communicator.rank(),
      "member {} of {} is not rank {} in '{}'", hop.index, members, communicator.rank(), hop.purpose.what);
}

// Calls each(member to send to, member to receive from) for the n - 1 others, beginning after this one so that no
// member is everybody's first.
template <class Each>
void for_others(const Hop& hop, Each&& each) {
  const int64_t members = static_cast<int64_t>(hop.members.size());
  for (int64_t k = 1; k < members; ++k) each((hop.index + k) % members, (hop.index + members - k) % members);
}

std::vector<int64_t> equal_bounds(const Hop& hop, int64_t part_bytes) {
  std::vector<int64_t> bounds;
  for (size_t j = 0; j <= hop.members.size(); ++j) bounds.push_back(static_cast<int64_t>(j) * part_bytes);
  return bounds;
}

}  // namespace

void gather(Communicator& communicator, const Hop& hop, void* buffer, int64_t part_bytes) {
  gather(communicator, hop, buffer, equal_bounds(hop, part_bytes));
}

void gather(Communicator& communicator, const Hop& hop, void* buffer, std::span<const int64_t> bounds) {
  check_hop(communicator, hop);
  BALLAST_CHECK(bounds.size() == hop.members.size() + 1, "{} bounds for {} parts in '{}'", bounds.size(), hop.members.size(), hop.purpose.what);
  char* const parts = static_cast<char*>(buffer);
  const auto begin = [&](int64_t member) { return parts + bounds[static_cast<size_t>(member)]; };
  const auto bytes = [&](int64_t member) { return bounds[static_cast<size_t>(member) + 1] - bounds[static_cast<size_t>(member)]; };
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for_others(hop, [&](int64_t to, int64_t from) {
    sends.push_back({hop.members[static_cast<size_t>(to)], begin(hop.index), bytes(hop.index)});
    receives.push_back({hop.members[static_cast<size_t>(from)], begin(from), bytes(from)});
  });
  communicator.exchange(sends, receives, hop.tag, hop.purpose);
}

int64_t swap_slot(int64_t member, int64_t index, int64_t members) { return (index - member + members) % members - 1; }

void swap(Communicator& communicator, const Hop& hop, const void* parts, int64_t part_bytes, void* arrived) {
  swap(communicator, hop, parts, equal_bounds(hop, part_bytes), arrived);
}

void swap(Communicator& communicator, const Hop& hop, const void* parts, std::span<const int64_t> bounds, void* arrived) {
  check_hop(communicator, hop);
  BALLAST_CHECK(bounds.size() == hop.members.size() + 1, "{} bounds for {} parts in '{}'", bounds.size(), hop.members.size(), hop.purpose.what);
  const auto bytes = [&](int64_t member) { return bounds[static_cast<size_t>(member) + 1] - bounds[static_cast<size_t>(member)]; };
  const int64_t own = bytes(hop.index);
  const auto members = static_cast<int64_t>(hop.members.size());
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for_others(hop, [&](int64_t to, int64_t from) {
    sends.push_back({hop.members[static_cast<size_t>(to)], static_cast<const char*>(parts) + bounds[static_cast<size_t>(to)], bytes(to)});
    receives.push_back({hop.members[static_cast<size_t>(from)], static_cast<char*>(arrived) + swap_slot(from, hop.index, members) * own, own});
  });
  communicator.exchange(sends, receives, hop.tag, hop.purpose);
}

// Wire: n - 1 received parts, then, unless the codec is fp32 (which sends from `source`), n encoded parts with this
// rank's own last.
int64_t reduce_wire_bytes(const Codec& codec, int64_t members, int64_t part) {
  const int64_t bytes = codec.encoded_bytes(part);
  return (members - 1) * bytes + (codec.spec().lossless() ? 0 : members * bytes);
}

void reduce_scatter(Communicator& communicator, const Hop& hop, const Codec& codec, const float* source, int64_t part,
                    float* result, bool accumulate, void* wire) {
  check_hop(communicator, hop);
  const int64_t members = static_cast<int64_t>(hop.members.size());
  const int64_t bytes = codec.encoded_bytes(part);
  const bool direct = codec.spec().lossless();
  char* const arrived = static_cast<char*>(wire);
  char* const encoded = arrived + (members - 1) * bytes;
  std::vector<const char*> of_member(static_cast<size_t>(members));
  std::vector<Send> sends;
  std::vector<Receive> receives;
  int64_t slot = 0;
  const auto outgoing = [&](int64_t member) -> const char* {
    if (direct) return reinterpret_cast<const char*>(source + member * part);
    char* const place = encoded + (member == hop.index ? members - 1 : slot) * bytes;
    codec.encode(source + member * part, part, place);
    return place;
  };
  for_others(hop, [&](int64_t to, int64_t from) {
    sends.push_back({hop.members[static_cast<size_t>(to)], outgoing(to), bytes});
    receives.push_back({hop.members[static_cast<size_t>(from)], arrived + slot * bytes, bytes});
    of_member[static_cast<size_t>(from)] = arrived + slot * bytes;
    ++slot;
  });
  of_member[static_cast<size_t>(hop.index)] = outgoing(hop.index);
  communicator.exchange(sends, receives, hop.tag, hop.purpose);

  // Block by block, because `result` may be the very memory of the own part: a block of it is written only after it was
  // read.
  const int64_t unit = codec.spec().block;
  const int64_t step = std::max<int64_t>(1, kBlock / unit) * unit;
  std::array<float, kBlock> on_stack;
  std::vector<float> on_heap(step > kBlock ? static_cast<size_t>(step) : 0);
  float* const sum = step > kBlock ? on_heap.data() : on_stack.data();
  for (int64_t begin = 0; begin < part; begin += step) {
    const int64_t count = std::min(step, part - begin);
    const int64_t offset = codec.encoded_bytes(begin);
    codec.decode(of_member[0] + offset, count, sum);
    for (int64_t member = 1; member < members; ++member)
      codec.decode_add(of_member[static_cast<size_t>(member)] + offset, count, sum);
    if (accumulate) {
      add_fp32(sum, count, result + begin);
    } else {
      std::memcpy(result + begin, sum, static_cast<size_t>(count) * sizeof(float));
    }
  }
}

std::vector<int64_t> all_sum(Communicator& communicator, std::span<const int64_t> mine, const std::string& what) {
  const size_t count = mine.size();
  std::vector<int64_t> all(count * static_cast<size_t>(communicator.size()));
  communicator.all_gather_fixed(mine.data(), static_cast<int64_t>(count * sizeof(int64_t)), all.data(), what);
  std::vector<uint64_t> sum(count, 0);
  for (size_t i = 0; i < all.size(); ++i) sum[i % count] += static_cast<uint64_t>(all[i]);
  return {sum.begin(), sum.end()};
}

}  // namespace ballast

#include "ballast/layout/cut_role.h"

#include <fmt/format.h>

#include <numeric>

#include "ballast/base/error.h"

namespace ballast {

int64_t next_in_ring(const CutSequence& cut, int64_t member) {
  const int64_t ring = cut.members() / cut.team / cut.team;
  if (cut.sharing != Sharing::Ring || ring < 2) return -1;
  const int64_t team = member / cut.team, place = team % ring;
  return (team - place + (place + 1) % ring) * cut.team + member % cut.team;
}

namespace {

// The numbers that peers and stations are reckoned from.
struct Rings {
  int64_t team_size, teams, ring;   // members of a team, teams, teams of a set
  int64_t team, number, set, place;
  Rings(const CutSequence& cut, int64_t member)
      : team_size(cut.team), teams(cut.members() / cut.team), ring(teams / cut.team), team(member / cut.team), number(member % cut.team), set(team / ring), place(team % ring) {}
  int64_t member_of(int64_t t) const { return t * team_size + number; }
  int64_t shifted(int64_t t) const { return (t + number * ring) % teams; }
};

std::vector<int64_t> all_members(const CutSequence& cut) {
  std::vector<int64_t> all(static_cast<size_t>(cut.members()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

}  // namespace

CutPeers peers_of(const CutSequence& cut, int64_t member) {
  CutPeers peers;
  if (cut.sharing != Sharing::Ring) {
    peers.queries = {member};
    peers.keys = all_members(cut);
    return peers;
  }
  if (cut.team < 1 || cut.members() % (cut.team * cut.team) != 0) {
    throw Error(ErrorKind::Usage, "the square of the team size does not divide the ranks that share a sequence")
        .at("data.sequence.team")
        .found(fmt::format("teams of {}, {} ranks", cut.team, cut.members()))
        .cure("set data.sequence.team to 1, or to a number whose square divides the ranks");
  }
  const Rings at(cut, member);
  for (int64_t c = 0; c < cut.team; ++c) peers.queries.push_back(at.team * cut.team + c);
  if (cut.keys_across) {
    for (int64_t s = 0; s < cut.team; ++s) peers.keys.push_back(at.member_of(s * at.ring + at.place));
  } else {
    peers.keys = peers.queries;
    if (at.number > 0) {
      peers.shift_from = at.member_of(at.shifted(at.team));
      peers.shift_to = at.member_of((at.team - at.number * at.ring + at.teams) % at.teams);
    }
  }
  if (at.ring > 1) {
    peers.next = next_in_ring(cut, member);
    peers.previous = at.member_of(at.set * at.ring + (at.place + at.ring - 1) % at.ring);
  }
  return peers;
}

CutRole role_of(const CutSequence& cut, int64_t member) {
  CutRole role{peers_of(cut, member), {}};
  if (cut.sharing != Sharing::Ring) {
    role.stations = {role.keys};
    return role;
  }
  const Rings at(cut, member);
  for (int64_t step = 0; step < at.ring; ++step) {
    const int64_t place = (at.place - step + at.ring) % at.ring;
    std::vector<int64_t> station;
    for (int64_t i = 0; i < cut.team; ++i) {
      station.push_back(cut.keys_across ? at.member_of(i * at.ring + place) : at.shifted(at.set * at.ring + place) * cut.team + i);
    }
    role.stations.push_back(std::move(station));
  }
  return role;
}

}  // namespace ballast

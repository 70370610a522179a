#include "ballast/plan/cut_role.h"

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

CutRole role_of(const CutSequence& cut, int64_t member) {
  const int64_t members = cut.members();
  CutRole role;
  if (cut.sharing != Sharing::Ring) {
    role.queries = {member};
    role.keys.resize(static_cast<size_t>(members));
    std::iota(role.keys.begin(), role.keys.end(), int64_t{0});
    role.stations = {role.keys};
    return role;
  }
  const int64_t team_size = cut.team;
  if (team_size < 1 || members % (team_size * team_size) != 0) {
    throw Error(ErrorKind::Usage, "the square of the team size does not divide the ranks that share a sequence")
        .at("data.sequence.team")
        .found(fmt::format("teams of {}, {} ranks", team_size, members))
        .cure("set data.sequence.team to 1, or to a number whose square divides the ranks");
  }
  const int64_t teams = members / team_size, ring = teams / team_size;
  const int64_t team = member / team_size, number = member % team_size;
  const int64_t set = team / ring, place = team % ring;
  const auto member_of = [&](int64_t t) { return t * team_size + number; };
  const auto shifted = [&](int64_t t) { return ((t + number * ring) % teams + teams) % teams; };
  for (int64_t c = 0; c < team_size; ++c) role.queries.push_back(team * team_size + c);
  if (cut.keys_across) {
    for (int64_t s = 0; s < team_size; ++s) role.keys.push_back(member_of(s * ring + place));
  } else {
    role.keys = role.queries;
    if (number > 0) {
      role.shift_from = member_of(shifted(team));
      role.shift_to = member_of(((team - number * ring) % teams + teams) % teams);
    }
  }
  if (ring > 1) {
    role.next = next_in_ring(cut, member);
    role.previous = member_of(set * ring + (place + ring - 1) % ring);
  }
  for (int64_t step = 0; step < ring; ++step) {
    const int64_t at = (place - step + ring) % ring;
    std::vector<int64_t> station;
    for (int64_t i = 0; i < team_size; ++i) {
      station.push_back(cut.keys_across ? member_of(i * ring + at) : shifted(set * ring + at) * team_size + i);
    }
    role.stations.push_back(std::move(station));
  }
  return role;
}

}  // namespace ballast

// Lists of placement tables must fit the model: every group has a row, every row takes a group.
#include "ballast/plan/placement_groups.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "ballast/base/error.h"

namespace ballast {
namespace {

std::string refusal(const char* placement) {
  const Topology topology({{"pair", 2, {}, {}}, {"node", 2, {}, {}}});
  try {
    check_groups(parse_placement(YAML::Load(placement), topology), {"embedding", "block.0", "block.1", "head"});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "";
}

TEST(PlacementGroups, EveryGroupHasARowAndEveryRowAGroup) {
  EXPECT_EQ(refusal("zero3"), "");
  EXPECT_EQ(refusal("{optimizer: node}"), "");
  EXPECT_EQ(refusal("[{groups: 'block.*', optimizer: node}, {groups: '*', optimizer: pair}]"), "");
  const std::string uncovered = refusal("[{groups: 'block.*', optimizer: node}]");
  EXPECT_NE(uncovered.find("no placement row covers the parameter group 'embedding'"), std::string::npos) << uncovered;
  const std::string nothing = refusal("[{groups: 'blocks.*', optimizer: node}, {groups: '*'}]");
  EXPECT_NE(nothing.find("a placement row matches no parameter group"), std::string::npos) << nothing;
  EXPECT_NE(nothing.find("groups blocks.*"), std::string::npos) << nothing;
  EXPECT_NE(nothing.find("embedding, block.0"), std::string::npos) << nothing;
  const std::string late = refusal("[{groups: '*'}, {groups: 'block.*', optimizer: node}]");
  EXPECT_NE(late.find("earlier rows take every parameter group"), std::string::npos) << late;
}

}  // namespace
}  // namespace ballast

// What a recipe's notes say of its flat buffers.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "ballast/graph/shards.h"

namespace ballast {
namespace {

TEST(RecipeNotes, PaddingOfMoreThanAFewPercentIsNoted) {
  const auto notes = [](int64_t ranks, const char* block) {
    Recipe recipe;
    recipe.model = describe(preset("gpt2-10m"));
    recipe.topology = Topology::flat(ranks);
    recipe.placement = parse_placement(YAML::Load(std::string("{weights: node, gradients: node, optimizer: node, wire: {reduce: {codec: int4, block: ") + block + "}}}"), recipe.topology);
    std::string all;
    for (const std::string& note : recipe_notes(recipe)) all += note + "\n";
    return all;
  };
  EXPECT_EQ(notes(4, "256").find("padding adds"), std::string::npos);
  const std::string much = notes(64, "65536");
  EXPECT_NE(much.find("padding adds"), std::string::npos) << much;
  EXPECT_NE(much.find("64 ranks x 65536 elements"), std::string::npos) << much;
}

}  // namespace
}  // namespace ballast

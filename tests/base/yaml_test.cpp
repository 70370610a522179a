// The YAML tree: order, places, and a typed error for every text that is not one small plain document.
#include "ballast/base/yaml.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace ballast {
namespace {

std::string message_of(const std::string& text, const YamlLimits& limits = {}) {
  try {
    parse_yaml(text, "a.yaml", false, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Yaml, KeepsOrderQuotesAndPlaces) {
  const YamlNode root = parse_yaml("# first\nzeta: {b: 1, a: '2'}\nalpha:\n  - x\n  - ~\nempty:\n", "a.yaml");
  ASSERT_TRUE(root.is_map());
  ASSERT_EQ(root.entries.size(), 3u);
  EXPECT_EQ(root.entries[0].key, "zeta");
  EXPECT_EQ(root.entries[0].mark.text(), "a.yaml:2:1");
  const YamlNode& zeta = root.entries[0].value;
  EXPECT_EQ(zeta.entries[0].key, "b");
  EXPECT_FALSE(zeta.entries[0].value.quoted);
  EXPECT_EQ(zeta.entries[0].value.mark.text(), "a.yaml:2:11");
  EXPECT_EQ(zeta.entries[1].value.scalar, "2");
  EXPECT_TRUE(zeta.entries[1].value.quoted);
  ASSERT_TRUE(root.find("alpha")->is_list());
  EXPECT_EQ(root.find("alpha")->items[0].mark.line_text(), "a.yaml:4");
  EXPECT_TRUE(root.find("alpha")->items[1].is_null());
  EXPECT_TRUE(root.find("empty")->is_null());
  EXPECT_EQ(root.find("beta"), nullptr);
}

TEST(Yaml, EmptyTextIsNothing) {
  EXPECT_TRUE(parse_yaml("", "a.yaml").is_null());
  EXPECT_TRUE(parse_yaml("# only a comment\n", "a.yaml").is_null());
}

TEST(Yaml, AnchorsAreCopied) {
  const YamlNode root = parse_yaml("a: &x [1, 2]\nb: *x\n", "a.yaml");
  EXPECT_EQ(flow_text(root), "{a: [1, 2], b: [1, 2]}");
}

TEST(Yaml, FlowTextReadsBack) {
  for (const char* text :
       {"{pair: 2, node: 4}", "[a, [b, {c: d}], []]", "{}", "'null'", "~",
        "{a: ' x: y # z', b: \"tab\\there\", 'k: 1': \"\\\"\\\\\"}", "hsdp(pair)", "topo(pair, node, secondary=pair)",
        "[10:12, -1, 6e-4, '', \xc3\xa9, '- x', '*y', '%', '@', true]", "'a\n\n  b'"}) {
    const YamlNode tree = parse_yaml(text, "a");
    const std::string once = flow_text(tree);
    EXPECT_EQ(flow_text(parse_yaml(once, "b")), once) << text;
    EXPECT_EQ(parse_yaml(once, "b").kind, tree.kind) << text;
    EXPECT_EQ(parse_yaml(once, "b").scalar, tree.scalar) << text;
  }
}

TEST(Yaml, WrongTextsNameTheirPlace) {
  using std::string;
  const std::vector<std::tuple<string, string, string>> table{
      {"a: 1\na: 2\n", "a.yaml:2:1", "written twice"},
      {"a: {b: 1, c: 2, b: 3}\n", "a.yaml:1:17", "the first is at a.yaml:1"},
      {"a: [1, 2\n", "a.yaml:2:1", "not valid YAML"},
      {"a: 'x\n", "a.yaml:1:4", "a quote that is not closed"},
      {"a: 1\nb: \"x\n\n", "a.yaml:2:4", "a quote that is not closed"},
      {"a: \"x\\", "a.yaml:1", "not valid YAML"},
      {"a: 'x", "a.yaml:1:4", "a quote that is not closed"},
      {"a: b: c\n", "a.yaml:1:5", "not valid YAML"},
      {"\tx: 1\n", "a.yaml:1", "not valid YAML"},
      {"a: *nobody\n", "a.yaml:1", "not valid YAML"},
      {"a: &x [1, *x]\n", "a.yaml:1:11", "alias inside"},
      {"a: !!binary aGk=\n", "a.yaml:1", "has no meaning"},
      {"a: !mine 3\n", "a.yaml:1", "has no meaning"},
      {"? [1, 2]\n: x\n", "a.yaml:1", "a key must be a plain word"},
      {"~: x\n", "a.yaml:1:1", "a key must be a plain word"},
      {"a: 1\n---\nb: 2\n", "a.yaml:3:1", "a second YAML document"},
      {"a: 1\nb: \xff\n", "a.yaml:2:4", "not valid UTF-8"},
      {"a: \xc0\x80\n", "a.yaml:1:4", "not valid UTF-8"},
      {"a: \xed\xa0\x80\n", "a.yaml:1:4", "not valid UTF-8"},
      {"a: \xe2\x82", "a.yaml:1:4", "not valid UTF-8"},
      {string("a: \0b\n", 6), "a.yaml:1:4", "control character"},
      {"a: 1\n\x04hidden: 2\n", "a.yaml:2:1", "control character"},
      {"a: \x1b[31m\n", "a.yaml:1:4", "control character"},
  };
  for (const auto& [text, place, what] : table) {
    const string message = message_of(text);
    EXPECT_NE(message.find("where:    " + place), string::npos) << text << "\n" << message;
    EXPECT_NE(message.find(what), string::npos) << text << "\n" << message;
  }
}

TEST(Yaml, LimitsHold) {
  EXPECT_NE(message_of(std::string(40, '[') + std::string(40, ']')).find("nested deeper than 32"), std::string::npos);
  EXPECT_NE(message_of(std::string(100'000, '[')).find("nested deeper than 32"), std::string::npos);
  EXPECT_NE(message_of(std::string(2000, 'a'), YamlLimits{.bytes = 1000}).find("2000 bytes"), std::string::npos);
  EXPECT_NE(message_of("[1, 2, 3, 4]", YamlLimits{.nodes = 4}).find("more than 4 values"), std::string::npos);
  // Nine tenfold aliases would be a billion nodes.
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += (k ? ", *a" : "*a") + std::to_string(i - 1);
    bomb += "]\n";
  }
  EXPECT_NE(message_of(bomb).find("more than 50000 values"), std::string::npos);
}

TEST(Yaml, OneLineTextsAreNamedBySource) {
  try {
    parse_yaml("[1", "command line 'a=[1'", true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.place(), "command line 'a=[1'");
  }
}

}  // namespace
}  // namespace ballast

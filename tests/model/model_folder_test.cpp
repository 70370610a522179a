// Reading and writing model folders: values, tolerated oddities, and what is refused.
#include "ballast/model/model_folder.h"

#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "ballast/base/error.h"
#include "ballast/base/files.h"
#include "ballast/model/model_writer.h"
#include "model/golden_case.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// All groups of a folder, one after another.
std::vector<std::vector<float>> load(const ModelFolder& folder) {
  std::vector<std::vector<float>> groups;
  for (const ParameterGroup& group : describe(folder.config()).groups) {
    groups.emplace_back(static_cast<size_t>(group.numel), -7.0f);
    folder.load_group(group, groups.back().data());
  }
  return groups;
}

class ModelFolders : public testing::Test {
 protected:
  void SetUp() override {
    root = fs::temp_directory_path() / ("ballast_folder_" + std::to_string(::getpid()) + "_" +
                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root);
    fs::create_directories(root);
  }
  void TearDown() override { fs::remove_all(root); }

  // The weights of a golden model with changes, in a new folder.
  fs::path changed(const std::string& name, const std::function<void(std::map<std::string, StoredTensor>&)>& change,
                   const std::string& config_patch = "{}") {
    const SafetensorsSet set = SafetensorsSet::open_file(golden::folder(name) + "/model.safetensors");
    std::map<std::string, StoredTensor> tensors = set.tensors();
    change(tensors);
    const fs::path folder = root / ("changed" + std::to_string(count_++));
    fs::create_directories(folder);
    std::vector<TensorToWrite> list;
    for (const auto& [key, tensor] : tensors) list.push_back({key, tensor.dtype, tensor.shape});
    SafetensorsWriter writer(folder / "model.safetensors", list);
    for (const auto& [key, tensor] : tensors) writer.write(key, tensor.data, tensor.bytes);
    writer.finish();
    std::ifstream in(golden::folder(name) + "/config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config.merge_patch(nlohmann::json::parse(config_patch));
    std::ofstream(folder / "config.json") << config.dump();
    return folder;
  }
  std::string refusal(const fs::path& folder, ErrorKind kind) {
    try {
      ModelFolder::open(folder);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "accepted";
  }
  fs::path root;

 private:
  int count_ = 0;
};

TEST_F(ModelFolders, EveryTensorLandsAtItsPlaceAndGapsAreZero) {
  const golden::Case golden("llama-yarn");
  const SafetensorsSet set = SafetensorsSet::open_file(golden::folder("llama-yarn") + "/model.safetensors");
  int64_t compared = 0;
  for (const ParameterGroup& group : describe(golden.model.config()).groups) {
    std::vector<float> flat(static_cast<size_t>(group.numel), -7.0f), expected(flat.size(), 0.0f);
    golden.model.load_group(group, flat.data());
    for (const ParameterTensor& tensor : group.tensors) {
      const StoredTensor& stored = *set.find(tensor.name);
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        c10::BFloat16 value;
        std::memcpy(&value, stored.data + 2 * i, 2);
        expected[static_cast<size_t>(tensor.offset + i)] = value;
        ++compared;
      }
    }
    EXPECT_EQ(flat, expected) << group.name;
    for (const auto& [begin, end] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 2}, {63, 200}, {group.numel - 5, group.numel}}) {
      std::vector<float> part(static_cast<size_t>(end - begin), -7.0f);
      golden.model.load_range(group, begin, end, part.data());
      EXPECT_EQ(part, std::vector<float>(expected.begin() + begin, expected.begin() + end))
          << group.name << " [" << begin << ", " << end;
    }
  }
  EXPECT_EQ(compared, describe(golden.model.config()).parameters());
}

TEST_F(ModelFolders, NamesWithoutTheBaseAndKnownBuffersAreFine) {
  const std::vector<std::vector<float>> expected = load(ModelFolder::open(golden::folder("gpt2")));
  const fs::path folder = changed("gpt2", [](auto& tensors) {
    std::map<std::string, StoredTensor> renamed;
    for (const auto& [key, tensor] : tensors) renamed[key.substr(std::string("transformer.").size())] = tensor;
    const StoredTensor some = renamed.at("ln_f.bias");
    renamed["h.0.attn.bias"] = renamed["h.1.attn.bias"] = renamed["h.0.attn.masked_bias"] = some;
    renamed["lm_head.weight"] = renamed.at("wte.weight");
    tensors = renamed;
  });
  EXPECT_EQ(load(ModelFolder::open(folder)), expected);
}

TEST_F(ModelFolders, ATiedHeadThatDiffersIsRefused) {
  const fs::path folder = changed("qwen2", [](auto& tensors) {
    static std::vector<std::byte> other;
    StoredTensor head = tensors.at("model.embed_tokens.weight");
    other.assign(head.data, head.data + head.bytes);
    other.back() ^= std::byte{1};  // one bit differs
    head.data = other.data();
    tensors["lm_head.weight"] = head;
  });
  EXPECT_NE(refusal(folder, ErrorKind::CorruptFile).find("tied"), std::string::npos);
}

// One of them makes every loss NaN, and nothing would say which: refused when it is read, by whatever reads it.
TEST_F(ModelFolders, AWeightThatIsNotFiniteIsNamed) {
  for (const uint16_t bits : {uint16_t{0x7fc0}, uint16_t{0x7f80}, uint16_t{0xff80}}) {  // bf16: NaN and the infinities
    const fs::path folder = changed("llama3", [&](auto& tensors) {
      static std::vector<std::byte> other;
      StoredTensor& norm = tensors.at("model.layers.1.input_layernorm.weight");
      ASSERT_EQ(norm.dtype, "BF16");
      other.assign(norm.data, norm.data + norm.bytes);
      std::memcpy(other.data() + 2 * 5, &bits, 2);
      norm.data = other.data();
    });
    const ModelFolder model = ModelFolder::open(folder);
    try {
      load(model);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CorruptFile);
      const std::string message = error.what();
      EXPECT_NE(message.find("a weight of tensor 'model.layers.1.input_layernorm.weight' is not finite"), std::string::npos) << message;
      EXPECT_NE(message.find("element 5"), std::string::npos) << message;
    }
  }
}

TEST_F(ModelFolders, MissingExtraAndMisshapenTensorsAreListed) {
  const fs::path folder = changed("llama3", [](auto& tensors) {
    tensors["model.layers.7.surplus"] = tensors.at("model.norm.weight");
    tensors.erase("model.layers.1.self_attn.k_proj.weight");
    StoredTensor& table = tensors.at("model.embed_tokens.weight");
    std::swap(table.shape[0], table.shape[1]);
  });
  const std::string message = refusal(folder, ErrorKind::CorruptFile);
  EXPECT_NE(message.find("missing: model.layers.1.self_attn.k_proj.weight"), std::string::npos) << message;
  EXPECT_NE(message.find("model.embed_tokens.weight [32, 97] instead of [97, 32]"), std::string::npos) << message;
  EXPECT_NE(message.find("not of this architecture: model.layers.7.surplus"), std::string::npos) << message;
  // A configuration of another depth lists what lacks, and no more than a few.
  const std::string deeper = refusal(changed(
                                         "llama3", [](auto&) {}, R"({"num_hidden_layers": 40})"),
                                     ErrorKind::CorruptFile);
  EXPECT_NE(deeper.find("more"), std::string::npos);
  EXPECT_LT(deeper.size(), 1500u);
}

TEST_F(ModelFolders, WhatIsNoModelFolderSaysWhy) {
  EXPECT_NE(refusal(root / "none", ErrorKind::Data).find("config.json"), std::string::npos);
  fs::create_directories(root / "empty");
  fs::copy(golden::folder("gpt2") + "/config.json", root / "empty");
  EXPECT_NE(refusal(root / "empty", ErrorKind::Data).find("no safetensors weights"), std::string::npos);
  const fs::path integers = changed("llama3", [](auto& tensors) {
    StoredTensor& norm = tensors.at("model.norm.weight");
    norm.dtype = "I16";
  });
  try {
    load(ModelFolder::open(integers));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("I16"), std::string::npos);
  }
}

TEST_F(ModelFolders, WhatIsWrittenReadsBackBitForBit) {
  for (const std::string& name : golden::names()) {
    const ModelFolder source = ModelFolder::open(golden::folder(name));
    const std::vector<std::vector<float>> expected = load(source);
    const ModelShape shape = describe(source.config());
    // A shard of 8 KB forces an index; the other writes one file.
    for (const int64_t largest : {int64_t{8192}, int64_t{4} << 30}) {
      const fs::path folder = root / (name + std::to_string(largest));
      ModelWriter writer(folder, shape, {.largest_shard = largest, .token_ids = source.token_ids()});
      for (size_t g = shape.groups.size(); g-- > 0;) {  // any order
        const int64_t middle = shape.groups[g].numel / 2 + 1;
        writer.write_range(shape.groups[g], middle, shape.groups[g].numel - middle, expected[g].data() + middle);
        writer.write_range(shape.groups[g], 0, middle, expected[g].data());
      }
      EXPECT_FALSE(fs::exists(folder));
      writer.finish();
      EXPECT_EQ(fs::exists(folder / "model.safetensors.index.json"), largest == 8192) << name;
      const ModelFolder copy = ModelFolder::open(folder);
      EXPECT_EQ(load(copy), expected) << name;
      EXPECT_EQ(copy.token_ids().eos, source.token_ids().eos);
      EXPECT_EQ(copy.config().window, source.config().window);
      EXPECT_FALSE(fs::exists(folder.string() + ".partial"));
    }
  }
}

TEST_F(ModelFolders, Bf16StorageRoundsToNearestEven) {
  const ModelFolder source = ModelFolder::open(golden::folder("gpt2"));
  const ModelShape shape = describe(source.config());
  ModelWriter writer(root / "bf16", shape, {.storage = DType::BFloat16});
  std::vector<std::vector<float>> expected = load(source);
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    writer.write_group(shape.groups[g], expected[g].data());
    for (float& value : expected[g]) value = static_cast<float>(c10::BFloat16(value));
  }
  writer.finish();
  EXPECT_EQ(load(ModelFolder::open(root / "bf16")), expected);
}

TEST_F(ModelFolders, TokenizerFilesComeAlong) {
  const ModelFolder source = ModelFolder::open(golden::folder("gpt2"));
  const ModelShape shape = describe(source.config());
  const std::vector<std::vector<float>> values = load(source);
  fs::create_directories(root / "tokenizer");
  std::ofstream(root / "tokenizer" / "mine.json") << "{}";
  std::ofstream(root / "tokenizer" / "notes.txt") << "not copied";
  {
    ModelWriter writer(root / "out/", shape, {.tokenizer = {{"tokenizer.json", root / "tokenizer" / "mine.json"}}});
    for (size_t g = 0; g < shape.groups.size(); ++g) writer.write_group(shape.groups[g], values[g].data());
    writer.finish();
  }
  EXPECT_EQ(read_file(root / "out" / "tokenizer.json"), "{}");
  EXPECT_TRUE(fs::exists(root / "out" / "generation_config.json"));
  EXPECT_FALSE(fs::exists(root / "out" / "notes.txt"));
}

TEST_F(ModelFolders, NothingIsOverwrittenAndNothingHalfWritten) {
  const ModelFolder source = ModelFolder::open(golden::folder("gpt2"));
  const ModelShape shape = describe(source.config());
  fs::create_directories(root / "full");
  std::ofstream(root / "full" / "precious") << "x";
  try {
    ModelWriter writer(root / "full", shape);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
  }
  const std::vector<std::vector<float>> values = load(source);
  {
    ModelWriter writer(root / "half", shape);
    writer.write_group(shape.groups[0], values[0].data());
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_FALSE(fs::exists(root / "half"));
  EXPECT_FALSE(fs::exists(root / "half.partial"));
}

}  // namespace
}  // namespace ballast

#pragma once
// A run that takes a second: a tiny GPT-2 over bytes, 100 records to train on, six steps. What tests of whole runs start from.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/program.h"

namespace ballast::testing {

// c.yaml, model.json, tokenizer/, train.jsonl, eval.jsonl.
void write_tiny_run(const Workplace& place);

// The lines of metrics.jsonl that are steps, and their losses.
std::vector<nlohmann::json> steps_of(const Workplace& place, const std::string& run);
std::vector<double> losses_of(const Workplace& place, const std::string& run);

class TinyRun : public ::testing::Test {
 protected:
  void SetUp() override { write_tiny_run(place_); }
  // ballast train c.yaml run.dir=RUN and `more`.
  Printed train(const std::string& run, const std::vector<std::string>& more = {}) const;
  Workplace place_;
};

}  // namespace ballast::testing

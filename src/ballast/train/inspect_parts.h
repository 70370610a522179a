#pragma once
// What inspect says of tokenizers and of token files: the parts of inspect.cpp that need the data module.
#include "ballast/train/inspect.h"

namespace ballast {

Inspection begin_inspection(const char* kind, const std::filesystem::path& path);

// A folder or file of a tokenizer, read whole. Throws as load_tokenizer does.
Inspection inspect_tokenizer(const std::filesystem::path& path);
// A file of llm.c or Megatron-LM: structure always, with `verify` every token.
Inspection inspect_foreign(const std::filesystem::path& path, bool verify);
// Ballast's own store.
Inspection inspect_store(const std::filesystem::path& path, bool verify);

}  // namespace ballast

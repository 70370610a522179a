#pragma once
// Token files of other trainers, read where they lie and as they are: no end-of-text is added and every target is trained. Their
// tokenizer is not recorded, so only the ids can be checked (check_vocabulary), and they carry no checksums.
#include <memory>
#include <string>

#include "ballast/data/token_store.h"

namespace ballast {

// llm.c: 256 int32 of header (magic 20240520, version 1: uint16 tokens; magic 20240801, version 7: uint32), then the tokens: one
// stream, one record, whose documents each start with their end-of-text.
// Megatron-LM: NAME.bin with the tokens and NAME.idx beside it (magic MMIDIDX, version 1; uint16 or int32): one record per sequence.
// `path` ends in .bin (which of the two is seen by an .idx beside it) or .idx.
// Throws Error(CorruptFile) for wrong magic, sizes and counts; Error(Data) for missing or empty files.
std::shared_ptr<const TokenStore> open_foreign(const std::string& path);

// What such a file says of itself beside its tokens. Opens and checks as open_foreign does.
struct ForeignFacts {
  bool megatron = false;
  const char* dtype = "";   // of the tokens: uint16, uint32, int32
  int64_t documents = 0;    // of Megatron-LM's index; llm.c counts none
};
ForeignFacts foreign_facts(const std::string& path);
bool is_foreign(const std::string& path);   // by extension

}  // namespace ballast

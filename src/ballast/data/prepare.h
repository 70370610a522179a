#pragma once
// Data files to a token store, once: parallel over chunks, written in order, so the store's bytes do not depend on the threads.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ballast/data/record.h"

namespace ballast {

struct PrepareProgress {
  int64_t bytes_done = 0, bytes_total = 0;   // of the files on disk
  int64_t records = 0, tokens = 0;
  bool waiting = false;                      // another process makes this store; this one waits for it
};

struct PrepareOptions {
  std::filesystem::path cache;   // folder of the stores, made if missing
  int threads = 0;               // 0 = as many as the process may run on
  // Called from one thread at a time, about once per MiB of text and ten times a second while waiting. What it throws ends
  // the preparation with nothing left behind: the way to stop it.
  std::function<void(const PrepareProgress&)> progress;
};

struct PrepareReport {
  std::string store;        // path of the file
  bool made = false;        // false: it stood there already
  int64_t records = 0, tokens = 0, trained = 0, bytes = 0;   // bytes of the store
  int64_t short_records = 0;   // fewer than two tokens: no sample
};

// The store's path: CACHE/NAME-KEY.store, where the key is a hash of each file's path, size and time of change, of the format
// with its fields, and of the tokenizer. Throws Error(Data) for missing or empty files.
std::filesystem::path store_path(const std::vector<std::string>& files, const RecordFormat& format, const Tokenizer& tokenizer,
                                 const std::filesystem::path& cache);

// Makes the store of these files unless it stands. Two processes may do so at once: the second waits and uses the first one's.
// Memory: some MiB per thread and the longest record. Throws Error(Data) for bad records (the first in file order, whatever the
// threads) and for data without records; Error(CorruptFile) for damaged input and for a damaged store that stands already.
PrepareReport prepare_store(const std::vector<std::string>& files, const RecordFormat& format, const Tokenizer& tokenizer,
                            const PrepareOptions& options);

}  // namespace ballast

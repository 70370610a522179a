#pragma once
// Files as records. A reader hands out raw chunks one after another, which is cheap; a chunk is decoded into records by any thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ballast/data/record.h"

namespace ballast {

class RecordChunk {
 public:
  virtual ~RecordChunk() = default;
  // Calls `sink` for each record in order. Throws Error(Data) naming file and line or row for a record that lacks a field, has one
  // of the wrong type, is not valid JSON, or is not valid UTF-8: no record is skipped and no byte replaced.
  virtual void decode(const RecordFormat& format, const std::function<void(const Record&)>& sink) const = 0;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual std::unique_ptr<RecordChunk> next() = 0;   // nullptr at the end; not for several threads at once
  virtual int64_t consumed() const = 0;              // bytes of the file on disk used so far
};

// Chunks hold about this many bytes of text; a longer record makes a longer chunk.
constexpr int64_t kChunkBytes = 1 << 20;
// A longer record is refused: a file without line ends must not take all memory.
constexpr int64_t kLongestRecord = int64_t{1} << 30;

// By extension, .gz and .zst taken off for the first two: .txt .text .md -> one record per file; .jsonl .ndjson .json -> one JSON
// object per line, empty lines are no records; .parquet -> one record per row.
// Throws Error(Data) for missing or empty files and other extensions.
std::unique_ptr<RecordReader> open_records(const std::string& path, const RecordFormat& format);

std::unique_ptr<RecordReader> open_text(const std::string& path, const RecordFormat& format);
std::unique_ptr<RecordReader> open_jsonl(const std::string& path, int64_t chunk_bytes = kChunkBytes);
std::unique_ptr<RecordReader> open_parquet(const std::string& path, const RecordFormat& format);

// Decodes lines [JSON objects separated by '\n'] of a file; `first_line` counts from 1. What a JSONL chunk does.
void decode_jsonl(const std::string& lines, const std::string& path, int64_t first_line, const RecordFormat& format,
                  const std::function<void(const Record&)>& sink);

// The error of a record without a field, with the fields it has and the nearest name.
[[noreturn]] void throw_missing_field(const std::string& path, const std::string& place, const std::string& field,
                                      const std::string& what, const std::vector<std::string>& present);

}  // namespace ballast

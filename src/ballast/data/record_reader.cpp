#include "ballast/data/record_reader.h"

#include <filesystem>

#include "ballast/base/error.h"
#include "ballast/data/byte_stream.h"

namespace ballast {

std::unique_ptr<RecordReader> open_records(const std::string& path, const RecordFormat& format) {
  const std::string bare = without_compression(path);
  const std::string extension = std::filesystem::path(bare).extension().string();
  if (extension == ".txt" || extension == ".text" || extension == ".md") return open_text(path, format);
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json") return open_jsonl(path);
  if (extension == ".parquet" && bare == path) return open_parquet(path, format);
  throw Error(ErrorKind::Data, "unknown kind of data file")
      .at(path)
      .found("the extension '" + printable(std::filesystem::path(path).extension().string()) + "'")
      .expected(".txt .text .md .jsonl .ndjson .json (each also with .gz or .zst), .parquet, .bin (llm.c, Megatron)")
      .cure("rename or convert the file");
}

void throw_missing_field(const std::string& path, const std::string& place, const std::string& field,
                         const std::string& what, const std::vector<std::string>& present) {
  std::string names;
  for (size_t i = 0; i < present.size() && i < 20; ++i) names += (i ? ", " : "fields: ") + printable(present[i], 40);
  if (present.size() > 20) names += ", ...";
  const std::string near = nearest(field, present);
  std::string cure = "name the field that holds the " + what + " by data.fields: {" + what + ": NAME}";
  if (!near.empty())
    cure =
        "did you mean '" + printable(near, 40) + "'? Then set data.fields: {" + what + ": " + printable(near, 40) + "}";
  throw Error(ErrorKind::Data, "a record has no field '" + printable(field, 40) + "'")
      .at(path, place)
      .found(names.empty() ? "no fields" : names)
      .expected("the field '" + printable(field, 40) + "'")
      .cure(cure);
}

}  // namespace ballast

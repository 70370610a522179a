// Parquet through Arrow: only the columns of the format are read, a few thousand rows at a time.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "ballast/base/error.h"
#include "ballast/data/byte_stream.h"
#include "ballast/data/record_reader.h"

namespace ballast {

namespace {

constexpr int64_t kRows = 1024;  // of one chunk

Error corrupt(const std::string& path, const std::string& reason) {
  return Error(ErrorKind::CorruptFile, "cannot read the Parquet file")
      .at(path)
      .found(printable(reason, 300))
      .cure("copy or download the file again");
}

void check(const std::string& path, const arrow::Status& status) {
  if (status.IsOutOfMemory()) throw Error(ErrorKind::OutOfMemory, "no memory to read the Parquet file").at(path);
  if (!status.ok()) throw corrupt(path, status.ToString());
}

// The strings of a column, whichever of Arrow's two string types holds them, as they are or as indices into a dictionary.
class Strings {
 public:
  Strings(const arrow::Array& array, const std::string& path, const std::string& field)
      : array_(array),
        indices_(array.type_id() == arrow::Type::DICTIONARY ? static_cast<const arrow::DictionaryArray*>(&array) : nullptr),
        path_(path),
        field_(field) {
    const arrow::Array& values = indices_ ? *indices_->dictionary() : array;
    if (values.type_id() == arrow::Type::STRING) small_ = static_cast<const arrow::StringArray*>(&values);
    if (values.type_id() == arrow::Type::LARGE_STRING) large_ = static_cast<const arrow::LargeStringArray*>(&values);
    if (!small_ && !large_)
      throw Error(ErrorKind::Data, "a column has the wrong type")
          .at(path, "column '" + printable(field, 40) + "'")
          .found(array.type()->ToString())
          .expected("string")
          .cure("name a column of text in data.fields, or write this one as text");
  }
  std::string at(int64_t index, int64_t row) const {
    const auto place = [&] { return "row " + std::to_string(row) + ", field '" + printable(field_, 40) + "'"; };
    const auto null = [&] { return Error(ErrorKind::Data, "a record's field is null").at(path_, place()); };
    if (array_.IsNull(index)) throw null();
    if (indices_) {
      index = indices_->GetValueIndex(index);
      if (small_ ? small_->IsNull(index) : large_->IsNull(index)) throw null();
    }
    const std::string_view view = small_ ? small_->GetView(index) : large_->GetView(index);
    if (!simdjson::validate_utf8(view))
      throw Error(ErrorKind::Data, "a record is not valid UTF-8").at(path_, place());
    return std::string(view);
  }

 private:
  const arrow::Array& array_;
  const arrow::DictionaryArray* indices_;   // absent: the values stand in the column
  const arrow::StringArray* small_ = nullptr;
  const arrow::LargeStringArray* large_ = nullptr;
  const std::string& path_;
  const std::string& field_;
};

class ParquetChunk : public RecordChunk {
 public:
  ParquetChunk(std::string path, std::shared_ptr<arrow::RecordBatch> batch, int64_t first_row)
      : path_(std::move(path)), batch_(std::move(batch)), first_row_(first_row) {}

  void decode(const RecordFormat& format, const std::function<void(const Record&)>& sink) const override {
    Record record;
    if (format.kind == RecordKind::Chat) return decode_chat(format, sink);
    const bool pair = format.kind == RecordKind::PromptCompletion;
    const Strings first(column(pair ? format.prompt : format.text), path_, pair ? format.prompt : format.text);
    if (!pair) {
      for (int64_t i = 0; i < batch_->num_rows(); ++i) {
        record.text = first.at(i, first_row_ + i);
        record.place = "row " + std::to_string(first_row_ + i);
        sink(record);
      }
      return;
    }
    const Strings second(column(format.completion), path_, format.completion);
    for (int64_t i = 0; i < batch_->num_rows(); ++i) {
      record.place = "row " + std::to_string(first_row_ + i);
      record.text = first.at(i, first_row_ + i);
      record.completion = second.at(i, first_row_ + i);
      sink(record);
    }
  }

 private:
  const arrow::Array& column(const std::string& name) const {
    const std::shared_ptr<arrow::Array> array = batch_->GetColumnByName(name);
    if (!array) throw Error(ErrorKind::Internal, "a Parquet column that was opened is gone").at(path_, name);
    return *array;  // the batch keeps it
  }

  void decode_chat(const RecordFormat& format, const std::function<void(const Record&)>& sink) const {
    const auto wrong = [&](const arrow::Array& array) {
      return Error(ErrorKind::Data, "a column has the wrong type")
          .at(path_, "column '" + printable(format.messages, 40) + "'")
          .found(array.type()->ToString())
          .expected("list<struct<" + format.role + ": string, " + format.content + ": string>>");
    };
    const arrow::Array& array = column(format.messages);
    if (array.type_id() != arrow::Type::LIST) throw wrong(array);
    const auto& lists = static_cast<const arrow::ListArray&>(array);
    const std::shared_ptr<arrow::Array> values = lists.values();
    if (values->type_id() != arrow::Type::STRUCT) throw wrong(array);
    const auto& items = static_cast<const arrow::StructArray&>(*values);
    const std::shared_ptr<arrow::Array> roles = items.GetFieldByName(format.role),
                                        contents = items.GetFieldByName(format.content);
    if (!roles || !contents) throw wrong(array);
    const Strings role(*roles, path_, format.role), content(*contents, path_, format.content);
    Record record;
    for (int64_t i = 0; i < batch_->num_rows(); ++i) {
      const int64_t row = first_row_ + i;
      if (lists.IsNull(i) || lists.value_length(i) == 0)
        throw Error(ErrorKind::Data, "a record has no messages").at(path_, "row " + std::to_string(row));
      record.place = "row " + std::to_string(row);
      record.messages.clear();
      for (int64_t j = lists.value_offset(i); j < lists.value_offset(i) + lists.value_length(i); ++j) {
        if (items.IsNull(j)) throw Error(ErrorKind::Data, "a message is null").at(path_, "row " + std::to_string(row));
        record.messages.push_back({role.at(j, row), content.at(j, row)});
      }
      sink(record);
    }
  }

  std::string path_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t first_row_;
};

class ParquetReader : public RecordReader {
 public:
  ParquetReader(const std::string& path, const RecordFormat& format) : path_(path), bytes_(input_file_bytes(path)) {
    const auto file = arrow::io::ReadableFile::Open(path);
    if (!file.ok())
      throw Error(ErrorKind::Environment, "cannot open the data file").at(path).found(file.status().ToString());
    try {
      parquet::arrow::FileReaderBuilder builder;
      check(path, builder.Open(*file));
      parquet::ArrowReaderProperties properties;
      properties.set_batch_size(kRows);
      builder.properties(properties);
      check(path, builder.Build(&reader_));
      const parquet::FileMetaData& meta = *reader_->parquet_reader()->metadata();
      rows_ = meta.num_rows();
      if (rows_ == 0) throw Error(ErrorKind::Data, "the Parquet file has no rows").at(path);
      std::vector<std::string> names;
      for (int c = 0; c < meta.num_columns(); ++c) {
        const std::string root = meta.schema()->GetColumnRoot(c)->name();
        if (names.empty() || names.back() != root) names.push_back(root);
      }
      // Nested columns are several leaves of one root; all of a wanted root's are read.
      const std::vector<std::string> wanted = format.fields();
      const std::vector<std::string> roles = format.kind == RecordKind::Text ? std::vector<std::string>{"text"}
                                             : format.kind == RecordKind::PromptCompletion
                                                 ? std::vector<std::string>{"prompt", "completion"}
                                                 : std::vector<std::string>{"messages"};
      for (size_t i = 0; i < wanted.size(); ++i) {
        const auto found = std::count(names.begin(), names.end(), wanted[i]);
        if (found == 0) throw_missing_field(path, "schema", wanted[i], roles[i], names);
        if (found > 1)
          throw Error(ErrorKind::Data, "two columns have the name '" + printable(wanted[i], 40) + "'")
              .at(path, "schema");
      }
      std::vector<int> columns, groups;
      for (int c = 0; c < meta.num_columns(); ++c)
        if (std::count(wanted.begin(), wanted.end(), meta.schema()->GetColumnRoot(c)->name())) columns.push_back(c);
      for (int g = 0; g < meta.num_row_groups(); ++g) groups.push_back(g);
      auto batches = reader_->GetRecordBatchReader(groups, columns);
      check(path, batches.status());
      batches_ = std::move(*batches);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw corrupt(path, error.what());
    }
  }

  std::unique_ptr<RecordChunk> next() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    try {
      check(path_, batches_->ReadNext(&batch));
      if (batch) check(path_, batch->Validate());
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw corrupt(path_, error.what());
    }
    if (!batch) {
      if (row_ != rows_)
        throw corrupt(path_, std::to_string(row_) + " rows of the " + std::to_string(rows_) + " that the footer names");
      return nullptr;
    }
    const int64_t first = row_ + 1;
    row_ += batch->num_rows();
    return std::make_unique<ParquetChunk>(path_, std::move(batch), first);
  }
  int64_t consumed() const override {
    return static_cast<int64_t>(static_cast<double>(bytes_) * static_cast<double>(row_) /
                                static_cast<double>(std::max<int64_t>(rows_, 1)));
  }

 private:
  std::string path_;
  int64_t bytes_, rows_ = 0, row_ = 0;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
};

}  // namespace

std::unique_ptr<RecordReader> open_parquet(const std::string& path, const RecordFormat& format) {
  return std::make_unique<ParquetReader>(path, format);
}

}  // namespace ballast

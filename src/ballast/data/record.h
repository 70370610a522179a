#pragma once
// What one record of training data is, before and after tokenization, in the three formats: text, prompt-completion, chat.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/data/chat_template.h"
#include "ballast/data/tokenizer.h"

namespace ballast {

enum class RecordKind { Text, PromptCompletion, Chat };

// How files are read as records: the format and the names of its fields.
struct RecordFormat {
  RecordKind kind = RecordKind::Text;
  std::string text = "text", prompt = "prompt", completion = "completion", messages = "messages", role = "role", content = "content";
  ChatTemplate chat_template = ChatTemplate::ChatMl;   // chat only

  std::vector<std::string> fields() const;   // the fields of a record that are read
  std::string name() const;                  // "text", "prompt-completion", "chat"
  std::string description() const;           // all that changes the tokens, as one line: part of a store's key
};

// name: text | prompt-completion | chat. `fields` renames: {prompt: question}. Throws Error(Usage) for unknown names (did you
// mean), for a field that the format has not, for chat with an unknown template or none.
RecordFormat parse_format(const std::string& name, const std::map<std::string, std::string>& fields = {},
                          const std::string& chat_template = "");

// A record as read. All text is valid UTF-8.
struct Record {
  std::string text;         // text, or the prompt
  std::string completion;   // prompt-completion
  std::vector<ChatMessage> messages;
  std::string place;        // "line 3", "row 3" or "": where it stands in its file, for messages
};

// A run [begin, end) of a record's token indices whose tokens are trained when they are targets.
struct Span {
  int64_t begin, end;
  bool operator==(const Span&) const = default;
};

struct TokenizedRecord {
  std::vector<int32_t> tokens;   // with the end-of-text that every record ends in
  std::vector<Span> trained;     // ascending, disjoint, not touching
};

// Nothing is put between prompt and completion; each is encoded by itself, so that the completion's tokens do not depend on the
// prompt's last letters. The end-of-text is appended to every record and trained.
TokenizedRecord encode_record(const Record& record, const RecordFormat& format, const Tokenizer& tokenizer);

}  // namespace ballast

#include "ballast/data/record.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/base/error.h"

namespace ballast {

namespace {

void add_span(std::vector<Span>& spans, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (!spans.empty() && spans.back().end == begin)
    spans.back().end = end;
  else
    spans.push_back({begin, end});
}

}  // namespace

std::vector<std::string> RecordFormat::fields() const {
  switch (kind) {
    case RecordKind::Text:
      return {text};
    case RecordKind::PromptCompletion:
      return {prompt, completion};
    case RecordKind::Chat:
      return {messages};
  }
  return {};
}

std::string RecordFormat::name() const {
  switch (kind) {
    case RecordKind::Text:
      return "text";
    case RecordKind::PromptCompletion:
      return "prompt-completion";
    case RecordKind::Chat:
      return "chat";
  }
  return "";
}

std::string RecordFormat::description() const {
  switch (kind) {
    case RecordKind::Text:
      return fmt::format("text {{text: {}}}", text);
    case RecordKind::PromptCompletion:
      return fmt::format("prompt-completion {{prompt: {}, completion: {}}}", prompt, completion);
    case RecordKind::Chat:
      return fmt::format("chat {{messages: {}, role: {}, content: {}}} template {}", messages, role, content,
                         name_of(chat_template));
  }
  return "";
}

RecordFormat parse_format(const std::string& name, const std::map<std::string, std::string>& fields,
                          const std::string& chat_template) {
  RecordFormat format;
  std::map<std::string, std::string*> known;
  if (name == "text") {
    known = {{"text", &format.text}};
  } else if (name == "prompt-completion") {
    format.kind = RecordKind::PromptCompletion;
    known = {{"prompt", &format.prompt}, {"completion", &format.completion}};
  } else if (name == "chat") {
    format.kind = RecordKind::Chat;
    known = {{"messages", &format.messages}, {"role", &format.role}, {"content", &format.content}};
    format.chat_template = parse_chat_template(chat_template);
  } else {
    const std::vector<std::string> names{"text", "prompt-completion", "chat"};
    const std::string near = nearest(name, names);
    throw Error(ErrorKind::Usage, "unknown data format '" + printable(name) + "'")
        .at("data.format")
        .expected("text, prompt-completion or chat")
        .cure(near.empty() ? "choose one of them" : "did you mean '" + near + "'?");
  }
  std::vector<std::string> names;
  for (const auto& [key, target] : known) names.push_back(key);
  for (const auto& [key, value] : fields) {
    const auto at = known.find(key);
    if (at == known.end()) {
      const std::string near = nearest(key, names);
      throw Error(ErrorKind::Usage, "the format " + name + " has no field '" + printable(key) + "'")
          .at("data.fields")
          .expected(fmt::format("{}", fmt::join(names, ", ")))
          .cure(near.empty() ? "data.fields maps the format's field to the file's: {prompt: question}"
                             : "did you mean '" + near + "'?");
    }
    if (value.empty()) throw Error(ErrorKind::Usage, "an empty field name").at("data.fields." + key);
    *at->second = value;
  }
  return format;
}

TokenizedRecord encode_record(const Record& record, const RecordFormat& format, const Tokenizer& tokenizer) {
  TokenizedRecord result;
  std::vector<int32_t>& tokens = result.tokens;
  const auto count = [&] { return static_cast<int64_t>(tokens.size()); };
  switch (format.kind) {
    case RecordKind::Text:
      tokenizer.append(record.text, tokens);
      add_span(result.trained, 0, count());
      break;
    case RecordKind::PromptCompletion: {
      tokenizer.append(record.text, tokens);
      const int64_t prompt = count();
      tokenizer.append(record.completion, tokens);
      add_span(result.trained, prompt, count());
      break;
    }
    case RecordKind::Chat: {
      ChatTokens chat = encode_chat(tokenizer, format.chat_template, record.messages);
      tokens = std::move(chat.ids);
      for (int64_t i = 0; i < count(); ++i)
        if (chat.trained[static_cast<size_t>(i)]) add_span(result.trained, i, i + 1);
      break;
    }
  }
  const int64_t before = count();
  tokens.push_back(tokenizer.end_of_text());
  add_span(result.trained, before, before + 1);
  return result;
}

}  // namespace ballast

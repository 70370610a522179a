#include "ballast/data/chat_template.h"

#include <fmt/format.h>

#include "ballast/base/error.h"
#include "ballast/data/pretokenizer_unicode.h"

namespace ballast {
namespace {

constexpr const char* kNames = "chatml, llama-3, mistral";

class Conversation {
 public:
  void special(const char* token, bool trained = false) { segments_.push_back({token, trained, true}); }
  void text(std::string text, bool trained = false) {
    if (!text.empty()) segments_.push_back({std::move(text), trained, false});
  }
  std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  std::vector<ChatSegment> segments_;
};

[[noreturn]] void refuse(const std::string& what, size_t message, const std::string& expected) {
  throw Error(ErrorKind::Data, what).at(fmt::format("message {} of the conversation", message + 1)).expected(expected);
}

// What Jinja's trim takes off: Python's white space, which is \s and the four separators U+001C to U+001F.
std::string trimmed(const std::string& content) {
  if (valid_utf8_prefix(content) != content.size()) {
    throw Error(ErrorKind::Data, "a message is not valid UTF-8").found(printable(content, 60));
  }
  const auto is_space = [&](size_t at) {
    const Character c = decode_character(reinterpret_cast<const unsigned char*>(content.data()) + at);
    return (classes_of(unicode_table(), c.code_point) & kSpace) || (c.code_point >= 0x1C && c.code_point <= 0x1F);
  };
  size_t begin = 0, end = content.size();
  while (begin < end && is_space(begin)) begin += decode_character(reinterpret_cast<const unsigned char*>(content.data()) + begin).bytes;
  while (end > begin) {
    size_t last = end - 1;
    while ((static_cast<unsigned char>(content[last]) & 0xC0) == 0x80) --last;
    if (!is_space(last)) break;
    end = last;
  }
  return content.substr(begin, end - begin);
}

void check_role(const ChatMessage& message, size_t index) {
  if (message.role != "system" && message.role != "user" && message.role != "assistant") {
    refuse(fmt::format("the role '{}' is unknown", printable(message.role)), index, "system, user or assistant");
  }
  if (message.role == "system" && index != 0) refuse("a system message is not the first", index, "user or assistant");
}

std::vector<ChatSegment> render_chatml(std::span<const ChatMessage> messages, bool reply) {
  Conversation out;
  for (const ChatMessage& message : messages) {
    const bool trained = message.role == "assistant";
    out.special("<|im_start|>");
    out.text(message.role + "\n");
    out.text(message.content, trained);
    out.special("<|im_end|>", trained);
    out.text("\n");
  }
  if (reply) {
    out.special("<|im_start|>");
    out.text("assistant\n");
  }
  return out.take();
}

std::vector<ChatSegment> render_llama3(std::span<const ChatMessage> messages, bool reply) {
  Conversation out;
  const auto header = [&](const std::string& role) {
    out.special("<|start_header_id|>");
    out.text(role);
    out.special("<|end_header_id|>");
    out.text("\n\n");
  };
  out.special("<|begin_of_text|>");
  for (const ChatMessage& message : messages) {
    const bool trained = message.role == "assistant";
    header(message.role);
    out.text(trimmed(message.content), trained);
    out.special("<|eot_id|>", trained);
  }
  if (reply) header("assistant");
  return out.take();
}

// The system message goes before the first user's words. There is no opening of a reply: [/INST] is one.
std::vector<ChatSegment> render_mistral(std::span<const ChatMessage> messages) {
  Conversation out;
  out.special("<s>");
  const size_t first = messages[0].role == "system" ? 1 : 0;
  if (first == messages.size()) refuse("a conversation of only a system message has no place in this template", 0, "a user message after it");
  for (size_t i = first; i < messages.size(); ++i) {
    const bool user = (i - first) % 2 == 0;
    if (messages[i].role != (user ? "user" : "assistant")) {
      refuse(fmt::format("the role '{}' is out of turn", messages[i].role), i, user ? "user" : "assistant");
    }
    if (user) {
      const std::string system = first == 1 && i == first ? messages[0].content + "\n\n" : "";
      out.text(" ");
      out.text("[INST]");
      out.text(" " + system + messages[i].content + " ");
      out.text("[/INST]");
    } else {
      out.text(" " + messages[i].content, true);
      out.special("</s>", true);
    }
  }
  return out.take();
}

std::vector<const char*> special_tokens(ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::ChatMl: return {"<|im_start|>", "<|im_end|>"};
    case ChatTemplate::Llama3: return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case ChatTemplate::Mistral: return {"<s>", "</s>"};
  }
  return {};
}

}  // namespace

std::string name_of(ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::ChatMl: return "chatml";
    case ChatTemplate::Llama3: return "llama-3";
    case ChatTemplate::Mistral: return "mistral";
  }
  return "";
}

ChatTemplate parse_chat_template(const std::string& name) {
  std::vector<std::string> names;
  for (const ChatTemplate candidate : {ChatTemplate::ChatMl, ChatTemplate::Llama3, ChatTemplate::Mistral}) {
    if (name_of(candidate) == name) return candidate;
    names.push_back(name_of(candidate));
  }
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::Usage, fmt::format("there is no chat template '{}'", printable(name)))
      .expected(kNames)
      .cure(near.empty() ? "use one of these; templates written in Jinja are not run" : "did you mean '" + near + "'?");
}

std::vector<ChatSegment> render(ChatTemplate chat_template, std::span<const ChatMessage> messages, bool reply) {
  if (messages.empty()) throw Error(ErrorKind::Data, "a conversation has no messages").expected("at least one");
  for (size_t i = 0; i < messages.size(); ++i) check_role(messages[i], i);
  switch (chat_template) {
    case ChatTemplate::ChatMl: return render_chatml(messages, reply);
    case ChatTemplate::Llama3: return render_llama3(messages, reply);
    case ChatTemplate::Mistral: return render_mistral(messages);
  }
  return {};
}

void check_chat_template(const Tokenizer& tokenizer, ChatTemplate chat_template) {
  for (const char* token : special_tokens(chat_template)) {
    if (!tokenizer.find(token)) {
      throw Error(ErrorKind::Data, fmt::format("the tokenizer has no special token '{}', which the chat template {} needs", token, name_of(chat_template)))
          .cure("use the template that the tokenizer was made for, or add the token to the tokenizer as a special one");
    }
  }
}

ChatTokens encode_chat(const Tokenizer& tokenizer, ChatTemplate chat_template, std::span<const ChatMessage> messages, bool reply) {
  check_chat_template(tokenizer, chat_template);
  ChatTokens out;
  std::string run;
  bool run_trained = false;
  const auto flush = [&] {
    if (run.empty()) return;
    tokenizer.append_ordinary(run, out.ids);
    out.trained.resize(out.ids.size(), run_trained);
    run.clear();
  };
  for (const ChatSegment& segment : render(chat_template, messages, reply)) {
    // Mistral's markers are special tokens in its later vocabularies; a message that spells one is text all the same.
    const bool marker = chat_template == ChatTemplate::Mistral && (segment.text == "[INST]" || segment.text == "[/INST]") &&
                        !segment.trained && tokenizer.find(segment.text).has_value();
    if (segment.special || marker) {
      flush();
      out.ids.push_back(*tokenizer.find(segment.text));
      out.trained.push_back(segment.trained);
      continue;
    }
    if (segment.trained != run_trained) flush();
    run_trained = segment.trained;
    run += segment.text;
  }
  flush();
  return out;
}

}  // namespace ballast

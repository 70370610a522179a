#pragma once
// Conversations as text with special tokens, by named templates. What is trained: the assistant's words and the token that ends
// its turn. Special tokens are encoded as such only where the template puts them: no message can bring one in.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ballast/data/tokenizer.h"

namespace ballast {

struct ChatMessage {
  std::string role;      // system, user, assistant
  std::string content;
  bool operator==(const ChatMessage&) const = default;
};

enum class ChatTemplate { ChatMl, Llama3, Mistral };

// chatml, llama-3, mistral. Throws Error(Usage) naming these for any other name.
ChatTemplate parse_chat_template(const std::string& name);
std::string name_of(ChatTemplate chat_template);

struct ChatSegment {
  std::string text;
  bool trained = false;
  bool special = false;   // the text is one special token
  bool operator==(const ChatSegment&) const = default;
};

// The texts of all segments after one another are what the template's published Jinja form gives. `reply` appends the opening of
// the assistant's turn. Throws Error(Data) for an empty conversation and for roles that the template does not take or not there.
std::vector<ChatSegment> render(ChatTemplate chat_template, std::span<const ChatMessage> messages, bool reply = false);

struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<bool> trained;   // one per id: this token is learned when it is the target
};

// Ordinary segments in a row with the same `trained` are encoded as one text, as Hugging Face does; between prompt and answer the
// text is cut, as it is when the model generates. A tokenizer without one of the template's special tokens is refused: Error(Data).
// (Mistral's [INST] and [/INST] are special tokens in some vocabularies and plain text in others; both are taken.)
ChatTokens encode_chat(const Tokenizer& tokenizer, ChatTemplate chat_template, std::span<const ChatMessage> messages,
                       bool reply = false);

// The same refusal before any conversation is read.
void check_chat_template(const Tokenizer& tokenizer, ChatTemplate chat_template);

}  // namespace ballast

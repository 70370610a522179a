#pragma once
// Where a value that is not finite stands: in which element of a buffer, and so in which tensor.
#include <string>
#include <vector>

#include "ballast/graph/shards.h"

namespace ballast {

// The last of `elements` encoded numbers that is not finite, or the block that holds it; counted from the first one. A count of 0: all are finite.
Range last_nonfinite(const CodecSpec& codec, const void* encoded, int64_t elements);
// "h.1.mlp.c_fc.bias", or "one of a, b" where the elements (of the group's flat buffer) lie in several tensors.
std::string tensors_of(const ParameterGroup& group, const Range& elements);

// What a rank met first, nearest to the cause first; ranks that met something further from it than others do not speak.
enum class Blame : char { Weights = '0', Loss = '1', Message = '2', Gradient = '3' };
// "; the weights a on ranks 0, 2": from what every rank says, a Blame and text each, or "".
std::string blame_text(const std::vector<std::string>& by_rank);

}  // namespace ballast

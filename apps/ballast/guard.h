#pragma once
// The border of the program: whatever was thrown becomes one readable message and the documented exit code.
#include <functional>

namespace ballast::cli {

int guarded(const std::function<int()>& work);

}  // namespace ballast::cli

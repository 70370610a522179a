#pragma once
// What a process of this test program does when it is started as a rank: `test_comm --role NAME`.
#include <string>

namespace ballast {

// Runs a role to its end; the exit code is that of the error it ended with.
int run_role(const std::string& name);

}  // namespace ballast

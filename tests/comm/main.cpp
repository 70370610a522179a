// The test program is its own worker: processes are made by starting it again, never by a bare fork.
#include <gtest/gtest.h>

#include "tests/comm/roles.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--role") return ballast::run_role(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

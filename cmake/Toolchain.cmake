# Compiler flags, ccache, mold and sanitizers: what the whole tree is compiled with.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A precompiled header needs these two, or ccache refuses every file that uses it.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
find_program(MOLD ld.mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")
if(BALLAST_SANITIZER)
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")  # function and line are what a report shows; full debug data costs a third of the build
  # GCC 12 sees uninitialised members in its own library's headers under instrumentation.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_compile_options(-fsanitize=${BALLAST_SANITIZER} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BALLAST_SANITIZER})
endif()
if(BALLAST_SANITIZER MATCHES address)
  add_compile_definitions($<$<CXX_COMPILER_ID:Clang>:__SANITIZE_ADDRESS__=1>)  # as GCC defines it
endif()
if(BALLAST_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage for libFuzzer, in the libraries too
endif()
if(BALLAST_POISON)
  add_compile_definitions(BALLAST_POISON=1)
endif()

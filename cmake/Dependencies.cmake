# Every third-party library, found once and given a target. docs/dependencies.md says why each is here.
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(TBB REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(simdjson REQUIRED IMPORTED_TARGET simdjson)

# The wheels that tools/install.sh put into .deps (torch, its two CUDA stubs, pyarrow), unless told otherwise.
file(GLOB ballast_wheels "${CMAKE_SOURCE_DIR}/.deps/wheels/lib/python3*/site-packages")
set(BALLAST_WHEELS "${ballast_wheels}" CACHE PATH "site-packages folder that holds the torch and pyarrow wheels")

# libtorch: -DTorch_DIR=.../share/cmake/Torch names another one.
if(Torch_DIR)
  get_filename_component(torch_root "${Torch_DIR}/../../.." ABSOLUTE)
else()
  set(torch_root "${BALLAST_WHEELS}/torch")
endif()
if(NOT EXISTS "${torch_root}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "libtorch not found at '${torch_root}': run tools/install.sh, or give -DTorch_DIR=FOLDER/share/cmake/Torch")
endif()
add_library(ballast_torch INTERFACE)
add_library(ballast::torch ALIAS ballast_torch)
# After the system's folders: the wheel brings headers of a newer fmt, whose library is not here.
target_compile_options(ballast_torch INTERFACE "SHELL:-idirafter \"${torch_root}/include\"" "SHELL:-idirafter \"${torch_root}/include/torch/csrc/api/include\"")
target_compile_definitions(ballast_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
# at::parallel_for is a header template that runs serially, without a word, in code compiled without OpenMP. libgomp's
# soname is that of the copy in the wheel, so one copy is loaded.
find_package(OpenMP REQUIRED COMPONENTS CXX)
target_link_libraries(ballast_torch INTERFACE OpenMP::OpenMP_CXX)
# libtorch_cpu of the CUDA wheel names libcupti and libcudart, which stand in wheels of their own.
file(GLOB cuda_stubs "${BALLAST_WHEELS}/nvidia/cu13/lib")
target_link_libraries(ballast_torch INTERFACE "${torch_root}/lib/libtorch_cpu.so" "${torch_root}/lib/libc10.so")
target_link_options(ballast_torch INTERFACE "LINKER:-rpath,${torch_root}/lib" "LINKER:--disable-new-dtags" "LINKER:--allow-shlib-undefined")
foreach(folder ${cuda_stubs})
  target_link_options(ballast_torch INTERFACE "LINKER:-rpath,${folder}" "LINKER:-rpath-link,${folder}")
endforeach()

# Arrow and Parquet from the pyarrow wheel.
set(arrow_root "${BALLAST_WHEELS}/pyarrow")
file(GLOB arrow_libraries "${arrow_root}/libarrow.so.*" "${arrow_root}/libparquet.so.*")
if(NOT arrow_libraries)
  message(FATAL_ERROR "pyarrow not found at '${arrow_root}': run tools/install.sh")
endif()
add_library(ballast_arrow INTERFACE)
add_library(arrow::parquet ALIAS ballast_arrow)
target_include_directories(ballast_arrow SYSTEM INTERFACE "${arrow_root}/include")
target_link_libraries(ballast_arrow INTERFACE ${arrow_libraries})
target_link_options(ballast_arrow INTERFACE "LINKER:-rpath,${arrow_root}" "LINKER:-rpath-link,${arrow_root}" "LINKER:--allow-shlib-undefined")

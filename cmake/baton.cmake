# Flags, and the helpers by which each folder names its parts.

add_library(baton_flags INTERFACE)
target_include_directories(baton_flags INTERFACE ${PROJECT_SOURCE_DIR})
# Floating-point contraction would make a result depend on how the compiler
# pairs operations; kernels that want FMA ask for it by intrinsic (K8).
target_compile_options(baton_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
                       -ffp-contract=off -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees uninitialized members in moved variants and overlaps in std::string that are
  # not there.
  target_compile_options(baton_flags INTERFACE -Wno-maybe-uninitialized -Wno-restrict)
endif()
if(BATON_WERROR)
  target_compile_options(baton_flags INTERFACE -Werror)
endif()
if(BATON_SANITIZE)
  # The first report ends the program: the calls that would go on need no code.
  target_compile_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE} -g1
                         -fno-sanitize-recover=all)
  target_link_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE})
endif()
if(BATON_FUZZ)
  # Everything, not the targets alone: the code under test is what guides the fuzzer.
  target_compile_options(baton_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(baton_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# What most sources of a side parse, parsed once: baton_precompiled(TARGET libraries|tests).
# Builds that a compiler cache serves do without (BATON_PCH is off): every include is then its
# file's own, and a cached object depends on no build folder.
if(BATON_PCH)
  target_compile_options(baton_flags INTERFACE -pthread)  # some dependencies say it; all must
  set(precompiled_source ${PROJECT_BINARY_DIR}/precompiled.cc)
  file(CONFIGURE OUTPUT ${precompiled_source} CONTENT "")
  set(precompiled_headers <algorithm> <atomic> <cstdint> <deque> <functional> <map> <memory>
      <optional> <string> <utility> <variant> <vector> <absl/container/btree_map.h>
      <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h>
      <absl/functional/any_invocable.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
      <absl/strings/str_format.h> <absl/strings/str_split.h> <absl/time/time.h>
      <absl/types/span.h>)
  add_library(precompiled_libraries OBJECT ${precompiled_source})
  target_link_libraries(precompiled_libraries PRIVATE baton_flags)
  target_precompile_headers(precompiled_libraries PRIVATE ${precompiled_headers})
endif()
function(baton_precompiled target side)
  if(BATON_PCH)
    target_precompile_headers(${target} REUSE_FROM precompiled_${side})
  endif()
endfunction()

# baton_library(NAME SOURCES a.cc … DEPS other … VENDOR target …): a static library of one folder.
function(baton_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;VENDOR" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC baton_flags ${ARG_DEPS} ${ARG_VENDOR} Threads::Threads)
    baton_precompiled(${name} libraries)
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE baton_flags ${ARG_DEPS} ${ARG_VENDOR} Threads::Threads)
  endif()
endfunction()

# baton_failpoints(TARGET): compiles its failpoints in, where the build has them.  Only the
# folders that name some are compiled differently; a compiler cache serves all others.
function(baton_failpoints target)
  if(BATON_FAILPOINTS)
    target_compile_definitions(${target} PRIVATE BATON_FAILPOINTS=1)
  endif()
endfunction()

# Builds what the parts unit and sim run, and the fuzz targets; of these, what has threads.
add_custom_target(unit_and_sim)
add_custom_target(threaded)

# Tests are compiled more often than run.
set(baton_test_options -O1)
if(BATON_SANITIZE)
  set(baton_test_options -O0)  # what the sanitizers add costs the compiler most
endif()

# baton_test(NAME SOURCES … DEPS … [LABELS …]): one Catch2 program, one ctest entry.  Its label
# is the part of tests/run.sh that runs it; "unit" if none is named.  A test of code that has
# threads also says "threads": only those run under the thread sanitizer.
function(baton_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;VENDOR;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE baton_flags catch_main ${ARG_DEPS} ${ARG_VENDOR})
  target_compile_options(${name} PRIVATE ${baton_test_options})
  baton_precompiled(${name} tests)
  # Both relative to the root, where catch_main's main() goes first.
  file(RELATIVE_PATH binary_dir ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_compile_definitions(${name} PRIVATE
      BATON_SOURCE_DIR="." BATON_BINARY_DIR="${binary_dir}")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  if(NOT "integration" IN_LIST ARG_LABELS)
    add_dependencies(unit_and_sim ${name})
  endif()
  if("threads" IN_LIST ARG_LABELS)
    add_dependencies(threaded ${name})
  endif()
endfunction()

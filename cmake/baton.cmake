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
  target_compile_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE} -g1)
  target_link_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE})
endif()
if(BATON_FUZZ)
  # Everything, not the targets alone: the code under test is what guides the fuzzer.
  target_compile_options(baton_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(baton_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# baton_library(NAME SOURCES a.cc … DEPS other … VENDOR target …): a static library of one folder.
function(baton_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;VENDOR" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC baton_flags ${ARG_DEPS} ${ARG_VENDOR} Threads::Threads)
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

# Builds what the parts unit and sim run, and the fuzz targets.
add_custom_target(unit_and_sim)

# baton_test(NAME SOURCES … DEPS … [LABELS …]): one Catch2 program, one ctest entry.  Its label
# is the part of tests/run.sh that runs it; "unit" if none is named.
function(baton_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;VENDOR;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE baton_flags catch_main ${ARG_DEPS} ${ARG_VENDOR})
  target_compile_options(${name} PRIVATE -O1)  # tests are compiled more often than run
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
endfunction()

# The functions that make every target of the tree: a folder's CMakeLists.txt is a list of names.

add_library(hearth_flags INTERFACE)
target_include_directories(hearth_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(hearth_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-psabi
    -Wno-missing-field-initializers>  # designated initialisers leave out fields that have a default
  # One multiply-add is one rounding only where the source says std::fma: results must not depend on
  # what the compiler contracts (see pack/FORMAT.md, canonical arithmetic).
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  # gcc 12 reports impossible overlaps inside std::string at -O3 (its bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  # libstdc++ 12 calls its own deprecated std::get_temporary_buffer from std::stable_sort.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wthread-safety
    -Wno-deprecated-declarations>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${HEARTH_WERROR}>>:-Werror>)
if(HEARTH_SANITIZE)
  target_compile_options(hearth_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${HEARTH_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all>)
  target_link_options(hearth_flags INTERFACE -fsanitize=${HEARTH_SANITIZE})
  # With sanitizers gcc 12 finds what is not there in std::regex and std::function.
  target_compile_options(hearth_flags INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
endif()
if(HEARTH_FUZZ)
  target_compile_options(hearth_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

# hearth_library(pack_format SRCS a.cc DEPS base EXTERN absl::status)
#   makes the target hearth_pack_format; DEPS are ours (without the prefix), EXTERN are third party.
function(hearth_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;EXTERN" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND hearth_)
  add_library(hearth_${name} STATIC ${ARG_SRCS})
  target_link_libraries(hearth_${name} PUBLIC hearth_flags ${ARG_DEPS} ${ARG_EXTERN})
endfunction()

# hearth_test(pack_format SRCS a_test.cc DEPS pack_format [LABELS slow] [PROCESSORS 2])
#   makes the executable pack_format_test and registers it with CTest, label "unit" by default.
#   PROCESSORS: how many threads it keeps busy, so that CTest starts no other test beside it.
function(hearth_test name)
  cmake_parse_arguments(ARG "" "PROCESSORS" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  list(TRANSFORM ARG_DEPS PREPEND hearth_)
  add_executable(${name}_test ${ARG_SRCS})
  target_link_libraries(${name}_test PRIVATE
    hearth_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE HEARTH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 1200
    PROCESSORS ${ARG_PROCESSORS})
endfunction()

# hearth_benchmark(cpu_kernels SRCS a_bench.cc DEPS ...) makes the executable cpu_kernels_bench.
function(hearth_benchmark name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(NOT HEARTH_BENCH)
    return()
  endif()
  list(TRANSFORM ARG_DEPS PREPEND hearth_)
  add_executable(${name}_bench ${ARG_SRCS})
  target_link_libraries(${name}_bench PRIVATE hearth_flags ${ARG_DEPS} benchmark::benchmark)
  target_compile_definitions(${name}_bench PRIVATE HEARTH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()

# hearth_fuzz(safetensors SRCS a_fuzz.cc DEPS ... CORPUS dir)
#   with HEARTH_FUZZ: the libFuzzer program safetensors_fuzz; without: a replay of the corpus.
function(hearth_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "SRCS;DEPS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND hearth_)
  if(HEARTH_FUZZ)
    add_executable(${name}_fuzz ${ARG_SRCS})
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)  # all of them: what tests/run.sh builds
    endif()
    add_dependencies(fuzzers ${name}_fuzz)
  else()
    add_executable(${name}_fuzz ${ARG_SRCS} "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc")
    add_test(NAME fuzz_corpus_${name} COMMAND ${name}_fuzz "${ARG_CORPUS}")
    set_tests_properties(fuzz_corpus_${name} PROPERTIES LABELS unit)
  endif()
  target_link_libraries(${name}_fuzz PRIVATE hearth_flags ${ARG_DEPS})
endfunction()

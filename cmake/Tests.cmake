# lrmoe_add_tests(NAME sources... ) with LIBRARIES and, for torch tests, PCH_FROM.
# Skipped when there are no sources. Every test is a test of its own to ctest.
include(GoogleTest)

function(lrmoe_add_tests name)
  cmake_parse_arguments(ARG "" "PCH_FROM" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LRMOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(ARG_PCH_FROM)
    target_precompile_headers(${name} REUSE_FROM ${ARG_PCH_FROM})
  endif()
  # One thread per process: ctest itself runs tests side by side.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300 ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()

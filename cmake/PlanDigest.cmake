# Plans must be the same bytes from every compiler: the planner's sources and a small
# program, built by GCC and by Clang, without and with optimisation, without and with
# this machine's own instructions: eight programs, and one with the project's own flags.
# A test compares what they print.
find_program(CLANGXX NAMES clang++ clang++-14 clang++-16)

file(GLOB digest_sources CONFIGURE_DEPENDS lrmoe/plan/*.cpp)
list(FILTER digest_sources EXCLUDE REGEX "/(json|costs)\\.cpp$")  # nothing is planned by them
list(APPEND digest_sources "${PROJECT_SOURCE_DIR}/lrmoe/base/error.cpp"
  "${PROJECT_SOURCE_DIR}/lrmoe/base/names.cpp" "${PROJECT_SOURCE_DIR}/lrmoe/base/size.cpp"
  "${PROJECT_SOURCE_DIR}/tests/plan/digest/plan_digest.cpp")
set(digest_programs "")

function(lrmoe_digest name compiler)
  set(folder "${PROJECT_BINARY_DIR}/digest/${name}")
  file(MAKE_DIRECTORY "${folder}")
  set(objects "")
  foreach(source IN LISTS digest_sources)
    get_filename_component(stem "${source}" NAME_WE)
    set(object "${folder}/${stem}.o")
    add_custom_command(OUTPUT "${object}" DEPENDS "${source}" DEPFILE "${object}.d"
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${compiler} -std=c++20 ${ARGN} -ffp-contract=off
        -I${PROJECT_SOURCE_DIR} -MD -MT ${object} -MF ${object}.d -c ${source} -o ${object}
      VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  add_custom_command(OUTPUT "${folder}/plan_digest" DEPENDS ${objects}
    COMMAND ${compiler} ${objects} -o "${folder}/plan_digest" VERBATIM)
  set(digest_programs ${digest_programs} "${folder}/plan_digest" PARENT_SCOPE)
endfunction()

if(CLANGXX AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  foreach(level IN ITEMS O0 O3)
    lrmoe_digest(gcc-${level} "${CMAKE_CXX_COMPILER}" -${level})
    lrmoe_digest(gcc-${level}-native "${CMAKE_CXX_COMPILER}" -${level} -march=native)
    lrmoe_digest(clang-${level} "${CLANGXX}" -${level})
    lrmoe_digest(clang-${level}-native "${CLANGXX}" -${level} -march=native)
  endforeach()
  add_executable(plan_digest tests/plan/digest/plan_digest.cpp)  # as the program is built
  target_link_libraries(plan_digest PRIVATE lrmoe_core)
  add_custom_target(plan_digests ALL DEPENDS ${digest_programs})
  add_test(NAME plan_digest
    COMMAND "${PROJECT_SOURCE_DIR}/tests/plan/digest/compare.sh" $<TARGET_FILE:plan_digest>
      ${digest_programs})
else()
  message(NOTICE "No clang++: plans of several compilers are not compared")
endif()

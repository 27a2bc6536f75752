# Flags that every target shares, and the three functions that declare everything:
#   millstream_library(NAME SRCS ... DEPS ...)       a layer, as an object library ms_NAME
#   millstream_test(NAME SRCS ... DEPS ...)          unit tests of a layer, one CTest entry
#   millstream_mpi_test(NAME SRCS ... RANKS 1 2 3 4) the same program on each number of ranks

add_library(ms_interface INTERFACE)
target_include_directories(ms_interface INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_BINARY_DIR}/generated)
target_compile_options(ms_interface INTERFACE
  -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-stringop-overflow -Wno-stringop-overread
  -Wno-restrict -Wno-array-bounds
  # One meaning of every expression: no fused multiply-add behind our back (docs/architecture.md).
  -ffp-contract=off -fno-math-errno
  $<$<BOOL:${MILLSTREAM_WERROR}>:-Werror>
  $<$<BOOL:${MILLSTREAM_ARCH}>:-march=${MILLSTREAM_ARCH}>)
if(MILLSTREAM_SANITIZE)
  target_compile_options(ms_interface INTERFACE -fsanitize=${MILLSTREAM_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(ms_interface INTERFACE -fsanitize=${MILLSTREAM_SANITIZE})
endif()
target_link_libraries(ms_interface INTERFACE Threads::Threads)

function(millstream_library NAME)
  cmake_parse_arguments(A "NO_PCH" "" "SRCS;DEPS" ${ARGN})
  if(NOT A_SRCS)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/empty_${NAME}.cc CONTENT "")
    set(A_SRCS ${CMAKE_BINARY_DIR}/generated/empty_${NAME}.cc)
  endif()
  add_library(ms_${NAME} OBJECT ${A_SRCS})
  target_link_libraries(ms_${NAME} PUBLIC ms_interface ms::arrow ms::fmt ms::xxhash PRIVATE ${A_DEPS})
  if(NOT A_NO_PCH)
    if(NAME STREQUAL "base")
      target_precompile_headers(ms_${NAME} PRIVATE ${CMAKE_SOURCE_DIR}/src/base/precompiled.h)
    else()
      target_precompile_headers(ms_${NAME} REUSE_FROM ms_base)
    endif()
  endif()
endfunction()

function(millstream_test_program NAME SRCS DEPS)
  add_executable(${NAME} ${SRCS})
  target_link_libraries(${NAME} PRIVATE millstream GTest::gtest ms::fmt ms::xxhash ${DEPS})
  target_compile_definitions(${NAME} PRIVATE MILLSTREAM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    MILLSTREAM_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
endfunction()

set(MILLSTREAM_TEST_DATA "${CMAKE_SOURCE_DIR}/../shared/data" CACHE PATH "Real data for tests; they skip where it is absent")
set(MILLSTREAM_TEST_ENVIRONMENT "MILLSTREAM_DATA=${MILLSTREAM_TEST_DATA}")

function(millstream_test NAME)
  cmake_parse_arguments(A "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT MILLSTREAM_TESTS OR NOT A_SRCS)
    return()
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  millstream_test_program(${NAME} "${A_SRCS}" "${A_DEPS};GTest::gtest_main")
  add_test(NAME ${NAME} COMMAND ${NAME})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "unit;${A_LABELS}"
    ENVIRONMENT "${MILLSTREAM_TEST_ENVIRONMENT}")
endfunction()

# The sources hold gtest suites; comm/mpi_test_main.cc is their main(): it starts the job's Communicator, and
# a failure on one rank fails all. BOTH_TRANSPORTS registers each run twice: through shared memory, and by
# messages as if every rank were on a host of its own.
function(millstream_mpi_test NAME)
  cmake_parse_arguments(A "BOTH_TRANSPORTS" "TIMEOUT" "SRCS;DEPS;RANKS;LABELS" ${ARGN})
  if(NOT MILLSTREAM_TESTS OR NOT A_SRCS)
    return()
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  if(NOT A_RANKS)
    set(A_RANKS 1 2 3 4)
  endif()
  millstream_test_program(${NAME} "${A_SRCS};${CMAKE_SOURCE_DIR}/src/comm/mpi_test_main.cc" "${A_DEPS}")
  foreach(ranks ${A_RANKS})
    set(launch ${MILLSTREAM_MPIEXEC} ${MILLSTREAM_MPIEXEC_FLAGS} -n ${ranks} $<TARGET_FILE:${NAME}>)
    set(runs ${NAME}_${ranks})
    add_test(NAME ${NAME}_${ranks} COMMAND ${launch})
    if(A_BOTH_TRANSPORTS AND ranks GREATER 1)
      add_test(NAME ${NAME}_${ranks}_messages COMMAND ${launch} --messages)
      list(APPEND runs ${NAME}_${ranks}_messages)
    endif()
    set_tests_properties(${runs} PROPERTIES TIMEOUT ${A_TIMEOUT} PROCESSORS 2 LABELS "mpi;${A_LABELS}"
      ENVIRONMENT "${MILLSTREAM_TEST_ENVIRONMENT}")
  endforeach()
endfunction()

# latent_library(NAME folder SOURCES … DEPS folder… LIBS third-party…): a layer of src/.
# DEPS must be edges of src/layers.txt; the configure step fails on any other.

set(LATENT_WARNINGS -Wall -Wextra -Wshadow -Wno-unused-parameter
    -Wno-missing-field-initializers)  # designated initialisers leave the rest at their defaults
option(LATENT_WERROR "warnings are errors" ON)
if(LATENT_WERROR)
  list(APPEND LATENT_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND LATENT_WARNINGS -Wno-restrict)  # g++ 12 sees an overlap in std::string operator+ that is not there
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND LATENT_WARNINGS -Wno-deprecated-declarations)  # clang 19 says it of libstdc++ 12's own std::stable_sort
  if(LATENT_SANITIZE)
    list(APPEND LATENT_WARNINGS -Wno-pass-failed)  # checked loads and stores do not vectorise
  endif()
endif()
# Floats stay as written: no contraction across statements, so that two kernels that share arithmetic share bits.
set(LATENT_FLOAT_FLAGS -ffp-contract=off -fno-math-errno)

file(STRINGS ${CMAKE_SOURCE_DIR}/src/layers.txt LATENT_LAYER_LINES REGEX "^[a-z]+:")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/layers.txt)
foreach(line ${LATENT_LAYER_LINES})
  string(REGEX MATCH "^([a-z]+):[ ]*(.*)$" _ "${line}")
  string(REPLACE " " ";" LATENT_EDGES_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
endforeach()

function(latent_compile_options target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${LATENT_WARNINGS};${LATENT_FLOAT_FLAGS}>)
  if(LATENT_SANITIZE)
    target_compile_options(${target} PUBLIC
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LATENT_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${LATENT_SANITIZE})
  endif()
endfunction()

function(latent_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  foreach(dep ${ARG_DEPS})
    if(NOT dep IN_LIST LATENT_EDGES_${name})
      message(FATAL_ERROR "src/${name} may not depend on src/${dep}: no such edge in src/layers.txt")
    endif()
  endforeach()
  add_library(latent_${name} STATIC ${ARG_SOURCES})
  target_include_directories(latent_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM ARG_DEPS PREPEND latent_)
  target_link_libraries(latent_${name} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  latent_compile_options(latent_${name})
endfunction()

# latent_tests(folder SOURCES … LIBS …): one test binary for tests/<folder>, registered test by test.
function(latent_tests name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name}_tests ${ARG_SOURCES})
  target_include_directories(${name}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name}_tests PRIVATE ${ARG_LIBS} latent_testing GTest::gtest)
  target_compile_definitions(${name}_tests PRIVATE
    LATENT_SOURCE_DIR="${CMAKE_SOURCE_DIR}" LATENT_BINARY_DIR="${CMAKE_BINARY_DIR}")
  latent_compile_options(${name}_tests)
  set_target_properties(${name}_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name}_tests)
endfunction()

# latent_isa_flags(source…): a file named *_avx2, *_avx512 or *_avx512bf16 is built for that machine; it is called
# only where the processor has it.
function(latent_isa_flags)
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND avx512 -Wno-maybe-uninitialized -Wno-uninitialized)  # g++ 12's own intrinsics start from an undefined register
  endif()
  set(avx512bf16 ${avx512} -mavx512bf16 -mavx512vbmi)
  foreach(source ${ARGN})
    if(source MATCHES "_(avx2|avx512|avx512bf16)\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${${CMAKE_MATCH_1}}")
    endif()
  endforeach()
endfunction()

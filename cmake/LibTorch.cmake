# Defines the target LibTorch from the torch that a Python interpreter has
# installed. The wheel's own TorchConfig.cmake is not used: for a CUDA build of
# torch it demands the CUDA toolkit, which a program that only calls ATen does
# not need.

set(LRMOE_PYTHON "" CACHE FILEPATH "Python interpreter whose torch is used (default: .venv)")
if(NOT LRMOE_PYTHON AND SKBUILD)
  set(LRMOE_PYTHON "${Python_EXECUTABLE}" CACHE FILEPATH "" FORCE)  # pip's
endif()
if(NOT LRMOE_PYTHON)
  set(LRMOE_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "" FORCE)
endif()

# find_spec locates the package without importing it, which would take seconds.
execute_process(
  COMMAND "${LRMOE_PYTHON}" -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0], end='')"
  OUTPUT_VARIABLE torch_root RESULT_VARIABLE torch_status ERROR_QUIET)
if(NOT torch_status EQUAL 0 OR NOT EXISTS "${torch_root}/include/ATen/ATen.h")
  message(FATAL_ERROR "no torch in '${LRMOE_PYTHON}': run scripts/setup.sh, pass "
    "-DLRMOE_PYTHON=/path/to/python with torch installed, or build without it by -DLRMOE_TORCH=OFF")
endif()
message(STATUS "torch: ${torch_root}")

# Everything in the wheel's lib folder that a C++ program needs; the CUDA
# libraries register their kernels when loaded, so they must not be dropped as
# unused.
set(torch_libraries "")
foreach(name IN ITEMS c10 torch_cpu c10_cuda torch_cuda torch)
  if(EXISTS "${torch_root}/lib/lib${name}.so")
    list(APPEND torch_libraries "${torch_root}/lib/lib${name}.so")
  endif()
endforeach()

add_library(LibTorch INTERFACE)
# Behind the system's own folders: the wheel brings a copy of fmt, newer than the
# one that Debian's spdlog was built with.
target_compile_options(LibTorch INTERFACE "SHELL:-idirafter ${torch_root}/include"
  "SHELL:-idirafter ${torch_root}/include/torch/csrc/api/include")
target_link_options(LibTorch INTERFACE
  "LINKER:-rpath,${torch_root}/lib" "LINKER:-rpath-link,${torch_root}/lib")
target_link_libraries(LibTorch INTERFACE
  "-Wl,--push-state,--no-as-needed" ${torch_libraries} "-Wl,--pop-state")

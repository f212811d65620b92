# Sets CONVGRAD_HAS_CUDA and, if it is true, the toolkit that builds backends/cuda.
# The top CMakeLists.txt includes this file, because languages must be enabled there.

# Machine code for the supported GPUs, and PTX of the newest one for later GPUs. No
# other place names them. A build for one machine may select one of them: all take
# nvcc 13 s on one core, one takes 5 s.
set(CMAKE_CUDA_ARCHITECTURES
    75-real 80-real 86-real 89-real 90-real 100-real 120
    CACHE STRING "GPU architectures that kernels are compiled for")

function(convgrad_find_cuda)
  if(NOT CONVGRAD_WITH_CUDA)
    return()
  endif()
  # The machine's toolkit, or the one that `deploy/dependencies cuda` installed.
  set(wheels ${PROJECT_SOURCE_DIR}/.cache/cuda)
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin ${wheels}/bin)
  if(CMAKE_CUDA_COMPILER STREQUAL "${wheels}/bin/nvcc")
    set(CUDAToolkit_ROOT ${wheels})
  endif()
  # CMake 3.25 requires this target, but CUDA 13 has no such library.
  if(NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
  find_package(CUDAToolkit QUIET)
  find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  # deploy/dependencies unpacks the pinned wheel here.
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h NO_DEFAULT_PATH
    PATHS ${PROJECT_SOURCE_DIR}/.cache/cudnn-frontend/include)
  set(missing "")
  if(NOT CMAKE_CUDA_COMPILER OR NOT CUDAToolkit_FOUND)
    set(missing "no CUDA toolkit")
  elseif(CUDAToolkit_VERSION VERSION_LESS 13)
    set(missing "CUDA ${CUDAToolkit_VERSION}, 13 is needed")
  elseif(NOT CUDNN_INCLUDE_DIR)
    set(missing "no cuDNN headers")
  elseif(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    set(missing "no cudnn-frontend, run deploy/dependencies")
  endif()
  if(missing)
    if(CONVGRAD_WITH_CUDA STREQUAL "AUTO")
      message(STATUS "cuda: absent, left out: ${missing}")
    else()
      message(FATAL_ERROR "CONVGRAD_WITH_CUDA=${CONVGRAD_WITH_CUDA}: ${missing}")
    endif()
    return()
  endif()
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h lines
    REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) [0-9]+")
  list(TRANSFORM lines REPLACE "[^0-9]+" "")
  list(JOIN lines "." version)
  message(STATUS "cuda: ${CUDAToolkit_VERSION}, cuDNN ${version}")
  set(CONVGRAD_HAS_CUDA TRUE PARENT_SCOPE)
  set(CUDNN_VERSION ${version} PARENT_SCOPE)
endfunction()

convgrad_find_cuda()
if(CONVGRAD_HAS_CUDA)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  # CMake 3.25 doesn't know that nvcc 13 supports C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  find_package(CUDAToolkit REQUIRED)
endif()

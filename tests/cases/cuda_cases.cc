#include "backends/cuda/cuda_backend.h"
#include "tests/cases/backend_cases.h"

int main(int argc, char** argv) {
  return convgrad::testing_support::RunBackendCases(&convgrad::MakeCudaBackend,
                                                    argc, argv);
}

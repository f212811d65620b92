// Code that runs without the interpreter's lock.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace convgrad {

// Releases the interpreter's lock for the object's lifetime. If the interpreter
// ends meanwhile, the thread sleeps forever: CPython before 3.14 would unwind
// it by an exception, and C++ ends a process if one leaves a destructor.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) pause();
    }
  }

 private:
  PyThreadState* const state_;
};

}  // namespace convgrad

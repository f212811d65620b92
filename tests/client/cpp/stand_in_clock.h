// A wall clock that a test sets back.
#pragma once

namespace convgrad {

// Makes the wall clock an hour fast wherever the calling thread reads it, and
// right where the thread waits for a time, as if somebody set the clock back by
// an hour in between.
void SetClockBack();

}  // namespace convgrad

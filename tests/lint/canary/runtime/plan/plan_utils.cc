#include "runtime/base/long.h"
// The purpose comes too late, and the next line is too long for the hundred columns that a line may have.
int  badly_formatted;   
// TODO: something

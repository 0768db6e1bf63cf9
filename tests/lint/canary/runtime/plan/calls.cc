// Calls that have one home each, and state without an owner.
#include "runtime/plan/calls.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <random>
#include <thread>

#include "cache/store/store.h"
#include "runtime/plan/missing.h"

namespace hearth {

static int counter = 0;
static const int kFine = 1;  // getenv( in a comment is fine

void Calls(int fd, void* p, std::thread& t) {
  getenv("HOME");
  close(fd);
  munmap(p, 1);
  cudaFree(p);
  std::exit(1);
  abort();
  t.detach();
  rand();
  std::mt19937 twister;
  system("ls");
  time(nullptr);
  std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  Registry::Instance().Add("throw");
  static std::string last;
  thread_local int depth = 0;
  throw 1;
}

int LongFunction(int total) {
  total += 0;
  total += 1;
  total += 2;
  total += 3;
  total += 4;
  total += 5;
  total += 6;
  total += 7;
  total += 8;
  total += 9;
  total += 10;
  total += 11;
  total += 12;
  total += 13;
  total += 14;
  total += 15;
  total += 16;
  total += 17;
  total += 18;
  total += 19;
  total += 20;
  total += 21;
  total += 22;
  total += 23;
  total += 24;
  total += 25;
  total += 26;
  total += 27;
  total += 28;
  total += 29;
  total += 30;
  total += 31;
  total += 32;
  total += 33;
  total += 34;
  total += 35;
  total += 36;
  total += 37;
  total += 38;
  total += 39;
  total += 40;
  total += 41;
  total += 42;
  total += 43;
  total += 44;
  total += 45;
  total += 46;
  total += 47;
  total += 48;
  total += 49;
  total += 50;
  total += 51;
  total += 52;
  total += 53;
  total += 54;
  total += 55;
  total += 56;
  total += 57;
  total += 58;
  total += 59;
  total += 60;
  total += 61;
  total += 62;
  total += 63;
  total += 64;
  total += 65;
  total += 66;
  total += 67;
  total += 68;
  total += 69;
  return total;
}

}  // namespace hearth

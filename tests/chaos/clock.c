// A clock of the day that jumps, for one process: loaded before libc (LD_PRELOAD). CHAOS_CLOCK names a file of 8 bytes,
// the nanoseconds by which CLOCK_REALTIME is ahead; it is mapped, so a change counts at once. What the kernel itself
// measures (timeouts given as absolute times of the day) keeps the real clock.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* ahead_ns;

__attribute__((constructor)) static void Open(void) {
  const char* path = getenv("CHAOS_CLOCK");
  const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) ahead_ns = at;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int failed = (int)syscall(SYS_clock_gettime, clock, time);
  if (failed || !ahead_ns || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  const int64_t ns = time->tv_nsec + *ahead_ns % 1000000000;
  time->tv_sec += *ahead_ns / 1000000000 + (ns >= 1000000000) - (ns < 0);
  time->tv_nsec = ns + (ns < 0 ? 1000000000 : ns >= 1000000000 ? -1000000000 : 0);
  return 0;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

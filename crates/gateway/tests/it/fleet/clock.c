/* For LD_PRELOAD: the wall clock of a program is wrong by as many seconds as the file RINGSIDE_CLOCK says just then (8 bytes,
 * little-endian). The clocks that only go forward stay what they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *wrong;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("RINGSIDE_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *mapped;
	if (file < 0)
		return;
	mapped = mmap(NULL, sizeof(*wrong), PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (mapped != MAP_FAILED)
		wrong = mapped;
}

int clock_gettime(clockid_t id, struct timespec *time)
{
	int result = syscall(SYS_clock_gettime, id, time);
	if (!result && wrong && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		time->tv_sec += *wrong;
	return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	time->tv_sec = now.tv_sec;
	time->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *into)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (into)
		*into = now.tv_sec;
	return now.tv_sec;
}

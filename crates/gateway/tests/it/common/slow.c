/* slow FILE PROGRAM ARGUMENT…: runs a program on a disk that is slow, hangs or fails, as FILE says just then. It takes no disk of its own. FILE
 * holds numbers of 4 bytes, little-endian; those that are not there are 0:
 *
 *   by how many milliseconds each fsync() and fdatasync() takes longer, one after the other
 *   the error (errno) that calls end with, without that anything is done; 0: none
 *   which calls do: 1 flushes (fsync, fdatasync), 2 writes (pwrite, ftruncate), 3 both, 4 reads (pread)
 *   how many of these still go well, from when the next number has changed
 *   any number, another one each time that the three before it are set
 *   how many calls have ended with an error: this one is told
 *
 * With SLOW_WRITES in the environment writes are seen, too, and take longer as flushes do, as where a disk has hung for so long that there is no
 * room for what it has to take. What waits goes on as soon as FILE says so. With SLOW_READS reads of files are seen whose paths have that in
 * them. They take no longer, and may fail. */
#include "notify.h"

enum { DELAY, ERROR, WHICH, SPARE, EDITION, NUMBERS, FAILED = NUMBERS };
enum { FLUSHES = 1, WRITES = 2, READS = 4 };

static int file;

static void read_settings(uint32_t *settings)
{
	memset(settings, 0, NUMBERS * sizeof(*settings));
	if (pread(file, settings, NUMBERS * sizeof(*settings), 0) < (ssize_t)sizeof(*settings))
		memset(settings, 0, NUMBERS * sizeof(*settings));
}

/* Of a file that is meant: others are the program itself, and its libraries. */
static int is_read(const struct seccomp_notif *asked, const char *reads)
{
	char link[64], path[4096];
	ssize_t length;
	snprintf(link, sizeof(link), "/proc/%u/fd/%d", asked->pid, (int)asked->data.args[0]);
	length = readlink(link, path, sizeof(path) - 1);
	path[length < 0 ? 0 : length] = 0;
	return strstr(path, reads) != NULL;
}

static int64_t milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void answer(int listener, const struct seccomp_notif *asked, struct seccomp_notif_resp *told)
{
	static uint32_t edition, left, failed;
	uint32_t settings[NUMBERS], which = asked->data.nr == SYS_fsync || asked->data.nr == SYS_fdatasync ? FLUSHES : WRITES;
	uint64_t id = asked->id;
	int64_t began = milliseconds(), passed;
	if (asked->data.nr == SYS_pread64)
		which = is_read(asked, getenv("SLOW_READS")) ? READS : 0;
	for (read_settings(settings); which & (FLUSHES | WRITES) && (passed = milliseconds() - began) < settings[DELAY]; read_settings(settings)) {
		int64_t rest = settings[DELAY] - passed;
		struct timespec time = {0, (rest < 5 ? rest : 5) * 1000000};
		/* Who asked may have been killed meanwhile. */
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id))
			return;
		nanosleep(&time, NULL);
	}
	if (settings[EDITION] != edition) {
		edition = settings[EDITION];
		left = settings[SPARE];
	}
	if (settings[ERROR] && settings[WHICH] & which && (!left || !left--)) {
		told->error = -(int32_t)settings[ERROR];
		failed++;
		if (pwrite(file, &failed, sizeof(failed), FAILED * sizeof(failed)) != sizeof(failed))
			fail("pwrite");
	} else {
		told->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	}
}

int main(int count, char **words)
{
	/* Twice the same does no harm. */
	int writes = getenv("SLOW_WRITES") != NULL, reads = getenv("SLOW_READS") != NULL;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, writes ? SYS_pwrite64 : SYS_fsync, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, writes ? SYS_ftruncate : SYS_fsync, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, reads ? SYS_pread64 : SYS_fsync, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	int line;
	pid_t child;
	if (count < 3)
		return 2;
	if ((file = open(words[1], O_RDWR | O_CLOEXEC)) < 0)
		fail(words[1]);
	if (!(child = begun(&line)))
		become(line, filter, sizeof(filter) / sizeof(filter[0]), words + 2);
	forward_to(child);
	serve(passed(line), answer);
	return ended(child);
}

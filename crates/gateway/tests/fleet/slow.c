/* slow FILE PROGRAM ARGUMENT…: runs a program whose fsync() and fdatasync() each take longer by as many milliseconds as FILE says
 * just then (4 bytes, little-endian), one after the other, as on a disk that is slow. With SLOW_WRITES in the environment its pwrite() does so,
 * too, as where a disk has hung for so long that there is no room for what it has to take. It takes no disk of its own. */
#include "notify.h"

static int file;

static void delay(int listener, const struct seccomp_notif *asked, struct seccomp_notif_resp *told)
{
	uint32_t milliseconds = 0;
	(void)listener;
	(void)asked;
	if (pread(file, &milliseconds, sizeof(milliseconds), 0) == sizeof(milliseconds)) {
		struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
		nanosleep(&time, NULL);
	}
	told->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
}

int main(int count, char **words)
{
	/* Twice the same does no harm. */
	unsigned int writes = getenv("SLOW_WRITES") ? SYS_pwrite64 : SYS_fsync;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, writes, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	int line;
	pid_t child;
	if (count < 3)
		return 2;
	if ((file = open(words[1], O_RDONLY | O_CLOEXEC)) < 0)
		fail(words[1]);
	if (!(child = begun(&line)))
		become(line, filter, sizeof(filter) / sizeof(filter[0]), words + 2);
	serve(passed(line), delay);
	return ended(child);
}

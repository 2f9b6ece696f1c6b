/* wrong FILE PROGRAM ARGUMENT…: runs a program whose wall clock is wrong by as many seconds as FILE says just then (8 bytes,
 * little-endian). The clocks that only go forward stay what they are.
 *
 * Also one that asks past the C library, as Go programs do: for it the kernel has no vDSO, whose place is struck from what a program is told
 * when it begins (the auxiliary vector), so that it has to ask the kernel, and what it asks of the wall clock is answered here. */
#include "../common/notify.h"
#include <elf.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>

static int file;

static long put(pid_t into, uint64_t at, void *what, size_t length)
{
	struct iovec from = {what, length}, to = {(void *)(uintptr_t)at, length};
	return !at || process_vm_writev(into, &from, 1, &to, 1, 0) == (ssize_t)length ? 0 : -EFAULT;
}

static void tell(int listener, const struct seccomp_notif *asked, struct seccomp_notif_resp *told)
{
	const struct seccomp_data *call = &asked->data;
	int64_t seconds = 0;
	struct timespec now;
	uint64_t id = asked->id;
	clock_gettime(CLOCK_REALTIME, &now);
	if (pread(file, &seconds, sizeof(seconds), 0) == sizeof(seconds))
		now.tv_sec += seconds;
	/* Whether it is still the one that asked. */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id))
		return;
	if (call->nr == SYS_clock_gettime) {
		told->error = put(asked->pid, call->args[1], &now, sizeof(now));
	} else if (call->nr == SYS_gettimeofday) {
		struct timeval time = {now.tv_sec, now.tv_nsec / 1000};
		told->error = put(asked->pid, call->args[0], &time, sizeof(time));
	} else {
		told->error = put(asked->pid, call->args[0], &now.tv_sec, sizeof(now.tv_sec));
		told->val = told->error ? 0 : now.tv_sec;
	}
}

/* When it has become the program and has not begun yet: its stack has the number of words, the words, 0, the environment, 0, the vector. */
static void strike_vdso(pid_t child)
{
	struct user_regs_struct registers;
	unsigned long at, word;
	int zeros = 0;
	if (ptrace(PTRACE_GETREGS, child, NULL, &registers))
		fail("PTRACE_GETREGS");
	for (at = registers.rsp + 8; zeros < 2; at += 8) {
		errno = 0;
		word = ptrace(PTRACE_PEEKDATA, child, at, NULL);
		if (errno)
			fail("PTRACE_PEEKDATA");
		zeros += !word;
	}
	while ((word = ptrace(PTRACE_PEEKDATA, child, at, NULL)) != AT_NULL) {
		if (word == AT_SYSINFO_EHDR && ptrace(PTRACE_POKEDATA, child, at, AT_IGNORE))
			fail("PTRACE_POKEDATA");
		at += 16;
	}
}

int main(int count, char **words)
{
	/* The clock is the lower half of the first argument. */
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettimeofday, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_time, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME_COARSE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	int line, listener, status;
	pid_t child;
	if (count < 3)
		return 2;
	if ((file = open(words[1], O_RDONLY | O_CLOEXEC)) < 0)
		fail(words[1]);
	if (!(child = begun(&line))) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			fail("PTRACE_TRACEME");
		become(line, filter, sizeof(filter) / sizeof(filter[0]), words + 2);
	}
	listener = passed(line);
	/* It stops when it has become another program. */
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
		fprintf(stderr, "it did not begin\n");
		return 1;
	}
	strike_vdso(child);
	forward_to(child);
	if (ptrace(PTRACE_DETACH, child, NULL, NULL))
		fail("PTRACE_DETACH");
	serve(listener, tell);
	return ended(child);
}

/* slow FILE PROGRAM ARGUMENT…: runs a program whose fsync() and fdatasync() each take longer by as many milliseconds as FILE says
 * just then (4 bytes, little-endian), one after the other, as on a disk that is slow. It takes no disk of its own and no help of the
 * program's C library: Go programs have none. By seccomp's notifications, Linux 5.5.
 * https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static void pass(int to, int fd)
{
	char one = 0;
	union control control = {{0}};
	struct iovec part = {&one, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &fd, sizeof(int));
	if (sendmsg(to, &message, 0) != 1)
		fail("sendmsg");
}

static int passed(int from)
{
	char one;
	int fd = -1;
	union control control = {{0}};
	struct iovec part = {&one, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
		fail("recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return fd;
}

static void run(int line, char **words)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (listener < 0)
		fail("seccomp");
	pass(line, listener);
	close(listener);
	close(line);
	execvp(words[0], words);
	fail(words[0]);
}

static void wait_for(int file)
{
	uint32_t milliseconds = 0;
	if (pread(file, &milliseconds, sizeof(milliseconds), 0) == sizeof(milliseconds)) {
		struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
		nanosleep(&time, NULL);
	}
}

int main(int count, char **words)
{
	int line[2], listener, file, status = 0;
	pid_t child;
	if (count < 3)
		return 2;
	if ((file = open(words[1], O_RDONLY | O_CLOEXEC)) < 0)
		fail(words[1]);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line))
		fail("socketpair");
	if ((child = fork()) < 0)
		fail("fork");
	if (!child)
		run(line[1], words + 2);
	close(line[1]);
	listener = passed(line[0]);
	for (;;) {
		struct pollfd ready = {listener, POLLIN, 0};
		struct seccomp_notif asked;
		struct seccomp_notif_resp answer;
		if (poll(&ready, 1, -1) < 0 && errno != EINTR)
			fail("poll");
		/* Nobody is left who could ask. */
		if (ready.revents & (POLLHUP | POLLERR))
			break;
		memset(&asked, 0, sizeof(asked));
		if (!(ready.revents & POLLIN) || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked))
			continue;
		wait_for(file);
		memset(&answer, 0, sizeof(answer));
		answer.id = asked.id;
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		/* Who was killed meanwhile waits no more. */
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

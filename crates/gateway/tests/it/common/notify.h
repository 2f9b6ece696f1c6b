/* What programs have in common that stand between another one and the kernel, by seccomp's notifications (Linux 5.5): they take no help of
 * that one's C library, for Go programs have none. https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
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

/* A child, and a line that ends in it; 0: this is the child, at the other end of it. */
static pid_t begun(int *line)
{
	int ends[2];
	pid_t child;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		fail("socketpair");
	if ((child = fork()) < 0)
		fail("fork");
	close(ends[child ? 1 : 0]);
	*line = ends[child ? 0 : 1];
	return child;
}

/* In the child: has what the filter names told of to the other end of the line, and becomes the program. */
static void become(int line, struct sock_filter *filter, unsigned short length, char **words)
{
	struct sock_fprog program = {length, filter};
	int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (listener < 0)
		fail("seccomp");
	pass(line, listener);
	close(listener);
	close(line);
	execvp(words[0], words);
	fail(words[0]);
}

static pid_t program;

static void forward(int number)
{
	kill(program, number);
}

/* Who asks this one to end, or to read its configuration again, means that one. */
static void forward_to(pid_t child)
{
	struct sigaction forwards = {.sa_handler = forward};
	program = child;
	sigaction(SIGTERM, &forwards, NULL);
	sigaction(SIGHUP, &forwards, NULL);
}

/* Answers all that is asked, until nobody is left who could ask. */
static void serve(int listener, void (*answer)(int listener, const struct seccomp_notif *, struct seccomp_notif_resp *))
{
	for (;;) {
		struct pollfd ready = {listener, POLLIN, 0};
		struct seccomp_notif asked;
		struct seccomp_notif_resp told;
		if (poll(&ready, 1, -1) < 0 && errno != EINTR)
			fail("poll");
		if (ready.revents & (POLLHUP | POLLERR))
			return;
		memset(&asked, 0, sizeof(asked));
		if (!(ready.revents & POLLIN) || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked))
			continue;
		memset(&told, 0, sizeof(told));
		told.id = asked.id;
		answer(listener, &asked, &told);
		/* Who was killed meanwhile waits no more. */
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &told);
	}
}

static int ended(pid_t child)
{
	int status = 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* A port is of use to the process that opened it, and to no child of fork() or daemon().
 *
 *   fork INTERFACE ... */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BURST = 8, LEN = 60 };

static struct rsd_packet packets[BURST];

static rsd_port *open_port(const char *interface, rsd_queue **queue)
{
	struct rsd_options options;
	rsd_port *port;

	EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));
	options.interface = interface;
	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	EXPECT(RSD_OK, rsd_port_queue(port, 0, queue));
	return port;
}

/* Sends bursts, and has all of them back. */
static void send_bursts(rsd_queue *queue)
{
	for (int round = 0; round < 100; round++) {
		int count = rsd_reserve(queue, packets, BURST);

		CHECK(count > 0);
		for (int i = 0; i < count; i++) {
			memset(packets[i].data, 0xff, LEN);
			packets[i].len = LEN;
		}
		EXPECT(count, rsd_finish(queue, packets, count));
		EXPECT(1, rsd_drain(queue, 1000000000));
	}
}

/* Every call on a port of another process is refused, but that which lets go of it. */
static void is_refused(rsd_port *port, rsd_queue *queue)
{
	struct rsd_queue_info info;
	struct rsd_stats stats;

	EXPECT_TOLD(RSD_EFORKED, "open the port after fork() or daemon()",
		    rsd_receive(queue, packets, BURST, 0));
	EXPECT(RSD_EFORKED, rsd_reserve(queue, packets, BURST));
	EXPECT(RSD_EFORKED, rsd_finish(queue, packets, BURST));
	EXPECT(RSD_EFORKED, rsd_finish_all(queue, RSD_DROP));
	EXPECT(RSD_EFORKED, rsd_send(queue, packets, 0));
	EXPECT(RSD_EFORKED, rsd_flush(queue));
	EXPECT(RSD_EFORKED, rsd_drain(queue, 0));
	EXPECT(RSD_EFORKED, rsd_queue_fd(queue));
	EXPECT(RSD_EFORKED, rsd_queue_event(queue));
	EXPECT(RSD_EFORKED, rsd_queue_query(queue, &info, sizeof(info)));
	EXPECT(RSD_EFORKED, rsd_queue_stats(queue, &stats, sizeof(stats)));
	EXPECT(RSD_EFORKED, rsd_port_queues(port));
	EXPECT(RSD_EFORKED, rsd_port_report(port, NULL, 0));
	EXPECT(RSD_EFORKED, rsd_port_reopen(port, 0));
	EXPECT(RSD_OK, rsd_port_close(port));
	EXPECT(RSD_ECLOSED, rsd_receive(queue, packets, BURST, 0));
}

/* Runs in a child: becomes a daemon, is refused there, and opens a port of its own once that of the
 * process before is gone. */
static void become_daemon(const char *interface, int go, int done)
{
	rsd_queue *queue;
	char mark;
	rsd_port *port = open_port(interface, &queue);

	CHECK(daemon(1, 1) == 0);
	is_refused(port, queue);
	CHECK(read(go, &mark, 1) == 1);
	port = open_port(interface, &queue);
	send_bursts(queue);
	EXPECT(RSD_OK, rsd_port_close(port));
	CHECK(write(done, "+", 1) == 1);
	_exit(0);
}

int main(int argc, char **argv)
{
	rsd_queue *queue;
	rsd_port *port;
	int status, go[2], done[2];
	char mark;
	pid_t child;

	CHECK(argc > 1);
	port = open_port(argv[1], &queue);
	/* A burst is open in both: neither ends the other's. */
	CHECK(rsd_reserve(queue, packets, BURST) == BURST);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		is_refused(port, queue);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	EXPECT(0, rsd_finish_all(queue, RSD_DROP));
	send_bursts(queue);
	EXPECT(RSD_OK, rsd_port_close(port));

	CHECK(pipe(go) == 0 && pipe(done) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(go[1]);
		close(done[0]);
		become_daemon(argv[1], go[0], done[1]);
	}
	close(go[0]);
	close(done[1]);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(write(go[1], "+", 1) == 1);
	/* Nothing comes when it has failed. */
	CHECK(read(done[0], &mark, 1) == 1);
	puts("fork: ok");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Receives on all queues of an interface, a thread for each, and tells how long packets took from the XDP program to here.
 *
 *   cc -o receive receive.c $(pkg-config --cflags --libs ringside) -lpthread
 *   sudo ./receive eth0            # until Ctrl-C
 *   sudo ./receive eth0 1000       # until so many packets came
 *
 * ARP and IPv6 neighbour discovery still go to the kernel; all other packets are taken while it runs, so not on the
 * interface that you are logged in by.
 */
#include <ringside/ringside.h>

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BURST = 64, MAX_QUEUES = 64 };

struct worker {
	pthread_t thread;
	rsd_queue *queue;
	struct rsd_field rx_time; /* found once, read from each packet */
	uint64_t packets, bytes, with_time, sum_ns, max_ns;
};

static volatile sig_atomic_t stopped;
static atomic_ullong wanted = UINT64_MAX, seen;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static void fail(const char *what)
{
	fprintf(stderr, "receive: %s: %s\n", what, rsd_last_error());
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct rsd_packet packets[BURST];

	while (!stopped && atomic_load(&seen) < atomic_load(&wanted)) {
		/* Wakes up ten times a second to see whether it is to end. */
		int count = rsd_receive(worker->queue, packets, BURST, 100000000);
		uint64_t now = now_ns();

		if (count < 0)
			fail("receiving");
		for (int i = 0; i < count; i++) {
			uint64_t time;

			worker->bytes += packets[i].total;
			if (RSD_READ(time, &worker->rx_time, &packets[i]) == RSD_OK) {
				worker->with_time++;
				worker->sum_ns += now - time;
				if (now - time > worker->max_ns)
					worker->max_ns = now - time;
			}
		}
		worker->packets += (uint64_t)count;
		atomic_fetch_add(&seen, (unsigned long long)count);
		if (rsd_finish_all(worker->queue, RSD_DROP) < 0)
			fail("giving packets back");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_QUEUES];
	struct rsd_options options;
	struct rsd_field rx_time;
	rsd_layout *layout;
	rsd_port *port;
	char report[8192];
	int queues;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: receive INTERFACE [PACKETS]\n");
		return 2;
	}
	if (argc == 3)
		atomic_store(&wanted, strtoull(argv[2], NULL, 10));
	signal(SIGINT, stop);
	signal(SIGTERM, stop);

	rsd_options_init(&options, sizeof(options));
	options.interface = argv[1];
	options.flags = RSD_HINTS; /* Ringside's own program puts a struct ringside_rx in front of packets */
	if (rsd_port_open(&options, &port) < 0)
		fail("opening the port");
	rsd_port_report(port, report, sizeof(report));
	fprintf(stderr, "%s\n", report);
	if (rsd_port_layout(port, "ringside_rx", &layout) < 0 || rsd_layout_field(layout, "rx_ktime", &rx_time) < 0)
		fail("looking for the time");
	rsd_layout_close(layout);

	queues = rsd_port_queues(port);
	if (queues > MAX_QUEUES)
		queues = MAX_QUEUES;
	for (int i = 0; i < queues; i++) {
		workers[i].rx_time = rx_time;
		if (rsd_port_queue(port, (uint32_t)i, &workers[i].queue) < 0)
			fail("looking for a queue");
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
			fprintf(stderr, "receive: no thread\n");
			return 1;
		}
	}
	for (int i = 0; i < queues; i++) {
		const struct worker *worker = &workers[i];

		pthread_join(worker->thread, NULL);
		printf("queue %d: %" PRIu64 " packets, %" PRIu64 " bytes", i, worker->packets, worker->bytes);
		if (worker->with_time != 0)
			printf(", from the XDP program to here mean %" PRIu64 " ns, max %" PRIu64 " ns",
			       worker->sum_ns / worker->with_time, worker->max_ns);
		printf("\n");
	}
	if (rsd_port_close(port) < 0)
		fail("closing the port");
	return 0;
}

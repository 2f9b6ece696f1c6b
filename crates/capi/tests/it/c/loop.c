/* An event loop that sleeps in poll() alone: prints what happens to the link, until the interface
 * is gone.
 *
 *   loop INTERFACE */
#include <poll.h>

#include "check.h"

/* A packet that the kernel takes and drops, for there is no carrier. */
static void send_in_vain(rsd_queue *queue)
{
	struct rsd_packet packet;
	struct rsd_stats stats;

	EXPECT(1, rsd_reserve(queue, &packet, 1));
	memset(packet.data, 0xff, 60);
	packet.len = 60;
	EXPECT(1, rsd_finish(queue, &packet, 1));
	EXPECT(1, rsd_drain(queue, 1000000000));
	EXPECT(RSD_OK, rsd_queue_stats(queue, &stats, sizeof(stats)));
	CHECK(stats.tx_packets == 1 && stats.tx_completed == 1 && stats.tx_kicks_partly == 1);
}

int main(int argc, char **argv)
{
	struct rsd_options options;
	struct rsd_packet packets[8];
	rsd_port *port;
	rsd_queue *queue;
	int event, count, sent = 0;

	CHECK(argc == 2);
	setvbuf(stdout, NULL, _IOLBF, 0);
	EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));
	options.interface = argv[1];
	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	EXPECT(RSD_OK, rsd_port_queue(port, 0, &queue));
	CHECK(rsd_queue_link_fd(queue) >= 0);
	EXPECT(rsd_queue_link_fd(queue), rsd_queue_link_fd(queue));
	EXPECT(RSD_EVENT_NONE, rsd_queue_link_event(queue));
	puts("open");
	do {
		struct pollfd link = {.fd = rsd_queue_link_fd(queue), .events = POLLIN};

		CHECK(poll(&link, 1, 60000) == 1);
		while ((event = rsd_queue_link_event(queue)) > 0) {
			if (event == RSD_EVENT_NO_CARRIER && !sent++)
				send_in_vain(queue);
			printf("event %d\n", event);
		}
	} while (event == RSD_EVENT_NONE);
	EXPECT(RSD_EGONE, event);
	CHECK(strstr(rsd_last_error(), "rsd_receive()") != NULL);
	while ((count = rsd_receive(queue, packets, 8, 1000000000)) >= 0)
		EXPECT(0, rsd_finish_all(queue, RSD_DROP));
	EXPECT(RSD_EGONE, count);
	EXPECT(RSD_OK, rsd_port_close(port));
	puts("loop: ok");
	return 0;
}

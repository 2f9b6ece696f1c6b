/* Tells on its output what happens to a link, and goes on, until a packet comes after the interface was gone.
 *
 *   link INTERFACE */
#include "check.h"

enum { BURST = 8, SECOND = 1000000000 };

int main(int argc, char **argv)
{
	struct rsd_options options;
	struct rsd_packet packets[BURST];
	rsd_port *port;
	rsd_queue *queue;
	int reopened = 0;

	CHECK(argc == 2);
	setvbuf(stdout, NULL, _IOLBF, 0);
	EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));
	options.interface = argv[1];
	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	EXPECT(RSD_OK, rsd_port_queue(port, 0, &queue));
	puts("open");
	for (;;) {
		int count = rsd_receive(queue, packets, BURST, SECOND / 5), event = rsd_queue_event(queue);

		if (count == RSD_EGONE) {
			CHECK(strstr(rsd_last_error(), argv[1]) != NULL);
			puts("gone");
			/* With nothing there it fails, and may be tried again. */
			EXPECT(RSD_ENOENT, rsd_port_reopen(port, 0));
			EXPECT(0, rsd_port_queues(port));
			EXPECT(RSD_ECLOSED, rsd_receive(queue, packets, BURST, 0));
			EXPECT(RSD_ENOENT, rsd_port_queue(port, 0, &queue));
			puts("tried");
			EXPECT(RSD_OK, rsd_port_reopen(port, (uint64_t)60 * SECOND));
			EXPECT(RSD_OK, rsd_port_queue(port, 0, &queue));
			reopened = 1;
			puts("reopened");
			continue;
		}
		CHECK(count >= 0);
		EXPECT(0, rsd_finish_all(queue, RSD_DROP));
		if (count > 0 && reopened)
			break;
		if (event != RSD_EVENT_NONE) {
			CHECK(count == 0);
			printf("event %d\n", event);
		}
	}
	EXPECT(RSD_OK, rsd_port_close(port));
	puts("link: ok");
	return 0;
}

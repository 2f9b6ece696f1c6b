/* Two ports at the ends of a veth pair in one network namespace: every call, and every misuse of it.
 *
 *   port A B MODE LAYOUTS NIC  two interfaces, enum rsd_mode, testing_layouts.bpf.c and nic.bpf.c
 *                              compiled */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { BURST = 32, SECOND = 1000000000 };

/* Nanoseconds for what comes for certain. */
static const uint64_t PATIENCE = (uint64_t)30 * SECOND;

static const char *names[2], *layouts_file, *nic_file;
static uint32_t mode;

struct end {
	rsd_port *port;
	rsd_queue *queue;
};

static struct rsd_options options_of(const char *interface)
{
	struct rsd_options options;

	EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));
	options.interface = interface;
	options.mode = mode;
	options.batch = BURST;
	/* The kernel frees the queue of a port a moment after it was closed. */
	options.busy_timeout_ns = PATIENCE;
	return options;
}

/* The queues that packets can be on their way from. */
static rsd_queue *senders[2];

static struct end open_with(const struct rsd_options *options)
{
	struct end end;

	EXPECT(RSD_OK, rsd_port_open(options, &end.port));
	EXPECT(1, rsd_port_queues(end.port));
	EXPECT(RSD_OK, rsd_port_queue(end.port, 0, &end.queue));
	senders[strcmp(options->interface, names[0]) != 0] = end.queue;
	return end;
}

static struct end open_plain(const char *interface)
{
	struct rsd_options options = options_of(interface);

	return open_with(&options);
}

/* Test packet `number`: its number behind the Ethernet header, and bytes that follow from it. */
static uint32_t write_packet(unsigned char *to, uint64_t number, uint32_t len)
{
	memset(to, 0, 12);
	to[0] = to[6] = 2;
	to[12] = 0x88;
	to[13] = 0xb5;
	for (int n = 0; n < 8; n++)
		to[14 + n] = (unsigned char)(number >> (56 - 8 * n));
	for (uint32_t at = 22; at < len; at++)
		to[at] = (unsigned char)(number * 31 + at);
	return len;
}

static uint64_t number_of(const unsigned char *packet)
{
	uint64_t number = 0;

	CHECK(packet[12] == 0x88 && packet[13] == 0xb5);
	for (int n = 0; n < 8; n++)
		number = number << 8 | packet[14 + n];
	return number;
}

static void check_packet(const struct rsd_packet *packet, uint32_t len)
{
	uint64_t number = number_of(packet->data);

	CHECK(packet->len == len && packet->total == len && packet->parts == 1 && packet->token != 0);
	for (uint32_t at = 22; at < len; at++)
		CHECK(packet->data[at] == (unsigned char)(number * 31 + at));
}

static void send_packets(struct end end, uint64_t first, uint32_t count, uint32_t len)
{
	struct rsd_packet packets[BURST];

	EXPECT((int)count, rsd_reserve(end.queue, packets, count));
	for (uint32_t n = 0; n < count; n++) {
		CHECK(packets[n].len == 0 && packets[n].fate == RSD_SEND && packets[n].front == 0);
		packets[n].len = write_packet(packets[n].data, first + n, len);
	}
	EXPECT((int)count, rsd_finish(end.queue, packets, count));
	EXPECT(1, rsd_drain(end.queue, SECOND));
}

/* Exactly so many packets in one burst. */
static void receive_burst_at(int line, struct end end, struct rsd_packet *packets, int count)
{
	struct pollfd readable = {.fd = rsd_queue_fd(end.queue), .events = POLLIN};
	int got = 0;

	/* They have been sent by now, but the last may still be on its way to the ring. */
	CHECK(poll(&readable, 1, 10000) == 1);
	for (int n = 0; n < 2; n++)
		(void)rsd_drain(senders[n], SECOND);
	usleep(20000);
	for (int tries = 0; tries < 200; tries++) {
		got = rsd_receive(end.queue, packets, BURST, SECOND / 10);
		CHECK(got >= 0);
		if (got == count)
			return;
		if (got != 0)
			break;
	}
	if (got != count)
		fprintf(stderr, "line %d: %d packets instead of %d\n", line, got, count);
	CHECK(got == count);
}

#define receive_burst(end, packets, count) receive_burst_at(__LINE__, end, packets, count)

static void what_was_obtained(struct end end)
{
	struct rsd_queue_info info;
	struct {
		struct rsd_queue_info known;
		uint32_t later;
	} longer;
	struct rsd_stats stats;
	rsd_queue *queue;
	char report[4096], cut[8];
	int length = rsd_port_report(end.port, report, sizeof(report));

	CHECK(length > 0 && (size_t)length == strlen(report));
	CHECK(strstr(report, names[0]) != NULL && strstr(report, "queue 0") != NULL);
	EXPECT(length, rsd_port_report(end.port, cut, sizeof(cut)));
	CHECK(strlen(cut) == 7 && strncmp(cut, report, 7) == 0);
	EXPECT(length, rsd_port_report(end.port, NULL, 0));

	EXPECT(RSD_OK, rsd_queue_query(end.queue, &info, sizeof(info)));
	CHECK(info.queue == 0 && info.mode == mode && info.frame_size == 2048 && info.room == 2048 - 256);
	CHECK(info.packet_room == info.room && info.frames == 4096 && info.tx_ring == 256 && info.need_wakeup == 1);
	/* Programs that were compiled with an older and with a later header. */
	memset(&longer, 0xff, sizeof(longer));
	EXPECT(RSD_OK, rsd_queue_query(end.queue, &longer.known, sizeof(longer)));
	CHECK(memcmp(&longer.known, &info, sizeof(info)) == 0 && longer.later == 0);
	memset(&info, 0xff, sizeof(info));
	EXPECT(RSD_OK, rsd_queue_query(end.queue, &info, 4));
	CHECK(info.queue == 0 && info.mode == UINT32_MAX);
	EXPECT(RSD_EINVAL, rsd_queue_query(end.queue, NULL, sizeof(info)));

	EXPECT(RSD_OK, rsd_queue_stats(end.queue, &stats, sizeof(stats)));
	CHECK(stats.rx_packets == 0 && stats.tx_packets == 0);
	EXPECT(RSD_EINVAL, rsd_queue_stats(end.queue, NULL, sizeof(stats)));
	EXPECT_TOLD(RSD_ENOENT, "1 queue(s)", rsd_port_queue(end.port, 1, &queue));
	CHECK(queue == NULL);
	EXPECT(RSD_OK, rsd_port_queue(end.port, 0, &queue));
	CHECK(queue == end.queue);
	EXPECT(0, rsd_queue_event(end.queue));
	EXPECT_TOLD(RSD_ENOENT, "RSD_HINTS", rsd_port_layout(end.port, "ringside_rx", (rsd_layout **)&queue));
	/* Handles of the wrong kind. */
	EXPECT(RSD_ECLOSED, rsd_port_close((rsd_port *)end.queue));
	EXPECT(RSD_ECLOSED, rsd_queue_fd((rsd_queue *)end.port));
}

static void send_and_receive(struct end a, struct end b)
{
	struct rsd_packet packets[BURST], none;
	struct pollfd readable = {.fd = rsd_queue_fd(b.queue), .events = POLLIN};
	struct rsd_stats stats;
	unsigned char copy[2048];
	struct rsd_part part;

	CHECK(readable.fd >= 0);
	EXPECT(0, rsd_receive(b.queue, &none, 1, 0));
	send_packets(a, 100, 20, 300);
	CHECK(poll(&readable, 1, 2000) == 1);
	receive_burst(b, packets, 20);
	for (int n = 0; n < 20; n++) {
		check_packet(&packets[n], 300);
		CHECK(number_of(packets[n].data) == 100 + (uint64_t)n);
		CHECK(packets[n].fate == RSD_DROP && packets[n].front == 0);
	}
	/* Packet by packet. */
	EXPECT(300, rsd_packet_copy(b.queue, &packets[3], copy, sizeof(copy)));
	CHECK(memcmp(copy, packets[3].data, 300) == 0);
	EXPECT(10, rsd_packet_copy(b.queue, &packets[3], copy, 10));
	EXPECT(RSD_OK, rsd_packet_part(b.queue, &packets[3], 0, &part));
	CHECK(part.data == packets[3].data && part.len == 300);
	EXPECT(RSD_ENOENT, rsd_packet_part(b.queue, &packets[3], 1, &part));
	EXPECT(0, rsd_finish(b.queue, packets, 20));
	/* With nothing said about them they are dropped all the same. */
	send_packets(a, 0, 5, 60);
	receive_burst(b, packets, 5);
	EXPECT(0, rsd_finish(b.queue, NULL, 0));
	EXPECT(RSD_ESTALE, rsd_finish(b.queue, packets, 5));
	/* Fewer at a time than there are. */
	send_packets(a, 0, 10, 60);
	for (uint64_t n = 0; n < 10; n++) {
		EXPECT(1, rsd_receive(b.queue, packets, 1, SECOND));
		CHECK(number_of(packets[0].data) == n);
	}
	EXPECT(0, rsd_finish_all(b.queue, RSD_DROP));
	EXPECT_TOLD(RSD_EINVAL, "max", rsd_receive(b.queue, packets, 0, 0));
	EXPECT(RSD_EINVAL, rsd_receive(b.queue, NULL, 1, 0));
	EXPECT(RSD_EINVAL, rsd_receive(b.queue, packets, UINT32_MAX, 0));
	EXPECT(RSD_EINVAL, rsd_receive(b.queue, (struct rsd_packet *)((char *)packets + 1), 1, 0));
	EXPECT(RSD_OK, rsd_queue_stats(b.queue, &stats, sizeof(stats)));
	CHECK(stats.rx_packets == 35 && stats.rx_bytes == 20 * 300 + 15 * 60);
	EXPECT(RSD_OK, rsd_queue_stats(a.queue, &stats, sizeof(stats)));
	CHECK(stats.tx_packets == 35 && stats.tx_completed == 35 && stats.tx_abandoned == 0);
}

static void fates(struct end a, struct end b)
{
	struct rsd_packet packets[BURST], back[BURST], kept[2], mixed[4];

	/* Sent back, kept and dropped in one burst, given back in another order. */
	send_packets(a, 0, 6, 100);
	receive_burst(b, packets, 6);
	for (int n = 0; n < 6; n++)
		packets[n].data[30] = 0xee;
	mixed[0] = packets[5];
	mixed[1] = packets[1];
	mixed[2] = packets[2];
	mixed[3] = packets[0];
	mixed[0].fate = RSD_SEND;
	mixed[1].fate = RSD_KEEP;
	mixed[2].fate = RSD_KEEP;
	mixed[3].fate = RSD_SEND;
	EXPECT(2, rsd_finish(b.queue, mixed, 4));
	receive_burst(a, back, 2);
	CHECK(number_of(back[0].data) == 0 && number_of(back[1].data) == 5 && back[0].data[30] == 0xee);
	EXPECT(0, rsd_finish_all(a.queue, RSD_DROP));

	/* What was kept is known by its new token, and by no old one. */
	kept[0] = mixed[1];
	kept[1] = mixed[2];
	CHECK(number_of(kept[0].data) == 1 && number_of(kept[1].data) == 2);
	EXPECT(RSD_ESTALE, rsd_finish(b.queue, &packets[1], 1));
	EXPECT(RSD_EINVAL, rsd_send(b.queue, &packets[1], 1));
	EXPECT_TOLD(RSD_EQUEUE, "another queue's memory", rsd_send(a.queue, kept, 1));
	kept[0].data += 10;
	kept[0].len -= 10;
	write_packet(kept[0].data, 77, kept[0].len);
	mixed[1] = kept[0];
	EXPECT(1, rsd_send(b.queue, kept, 1));
	CHECK(kept[0].token == 0);
	EXPECT(RSD_ESTALE, rsd_send(b.queue, kept, 1));
	EXPECT(RSD_ESTALE, rsd_send(b.queue, &mixed[1], 1));
	EXPECT(RSD_ESTALE, rsd_free(&mixed[1], 1));
	receive_burst(a, back, 1);
	check_packet(&back[0], 90);
	CHECK(number_of(back[0].data) == 77);
	EXPECT(0, rsd_finish_all(a.queue, RSD_DROP));
	EXPECT(100, rsd_packet_copy(NULL, &kept[1], packets, sizeof(packets)));
	EXPECT(RSD_OK, rsd_packet_write(NULL, &kept[1], "0123456789abcdef", 16));
	CHECK(kept[1].len == 16 && kept[1].total == 16);
	mixed[2] = kept[1];
	/* The first is gone, the second is freed all the same. */
	EXPECT(RSD_ESTALE, rsd_free(kept, 2));
	CHECK(kept[1].token == 0);
	EXPECT(RSD_ESTALE, rsd_free(&mixed[2], 1));
	EXPECT(RSD_ESTALE, rsd_packet_copy(NULL, &mixed[2], packets, sizeof(packets)));

	/* All sent back. */
	send_packets(a, 40, 7, 80);
	receive_burst(b, packets, 7);
	EXPECT(RSD_EINVAL, rsd_finish_all(b.queue, RSD_KEEP));
	EXPECT(RSD_EINVAL, rsd_finish_all(b.queue, UINT32_MAX));
	EXPECT(7, rsd_finish_all(b.queue, RSD_SEND));
	EXPECT(0, rsd_finish_all(b.queue, RSD_SEND));
	receive_burst(a, back, 7);
	EXPECT(0, rsd_finish_all(a.queue, RSD_DROP));

	/* Reserved, kept, and sent later; one of those that was reserved is not. */
	EXPECT(3, rsd_reserve(a.queue, packets, 3));
	for (int n = 0; n < 3; n++)
		packets[n].len = write_packet(packets[n].data, (uint64_t)n, 64);
	packets[0].fate = RSD_KEEP;
	packets[1].fate = RSD_DROP;
	EXPECT(1, rsd_finish(a.queue, packets, 3));
	EXPECT(1, rsd_send(a.queue, packets, 1));
	receive_burst(b, back, 2);
	CHECK(number_of(back[0].data) == 2 && number_of(back[1].data) == 0);
	EXPECT(0, rsd_finish_all(b.queue, RSD_DROP));
}

/* Longer, shorter, and elsewhere in its frame. */
static void edits(struct end a, struct end b)
{
	struct rsd_packet packets[BURST], back[BURST];
	unsigned char *data;

	send_packets(a, 0, 4, 200);
	receive_burst(b, packets, 4);
	for (int n = 0; n < 4; n++)
		packets[n].fate = RSD_SEND;
	packets[0].len = write_packet(packets[0].data, 1000, 150);
	packets[1].len = write_packet(packets[1].data, 1001, 1700);
	packets[2].data -= 50;
	packets[2].len = write_packet(packets[2].data, 1002, 250);
	packets[3].data += 40;
	packets[3].len = write_packet(packets[3].data, 1003, 160);
	EXPECT(4, rsd_finish(b.queue, packets, 4));
	receive_burst(a, back, 4);
	check_packet(&back[0], 150);
	check_packet(&back[1], 1700);
	check_packet(&back[2], 250);
	check_packet(&back[3], 160);
	EXPECT(0, rsd_finish_all(a.queue, RSD_DROP));

	/* What leaves the frame is refused, and nothing has happened: the burst is open, and can be ended well. */
	send_packets(a, 0, 2, 200);
	receive_burst(b, packets, 2);
	packets[0].fate = packets[1].fate = RSD_SEND;
	data = packets[1].data;
#define REFUSED(text, to, bytes)                                                       \
	do {                                                                           \
		packets[1].data = (to);                                                \
		packets[1].len = (bytes);                                              \
		EXPECT_TOLD(RSD_EINVAL, text, rsd_finish(b.queue, packets, 2));        \
	} while (0)
	REFUSED("frame", data, 2048 - 256 + 1);
	REFUSED("frame", data, UINT32_MAX);
	REFUSED("frame", data - 257, 100);
	REFUSED("frame", data - 256, 2049);
	REFUSED("frame", data + 2048, 100);
	REFUSED("frame", data + 1792, 0);
	REFUSED("frame", data + 1791, 2);
	REFUSED("frame", NULL, 100);
	REFUSED("frame", packets[0].data, 100);
	REFUSED("Ethernet header", data, 13);
	REFUSED("Ethernet header", data, 0);
	packets[1].fate = 3;
	REFUSED("rsd_fate", data, 200);
	packets[1].fate = UINT32_MAX;
	REFUSED("rsd_fate", data, 200);
	packets[0].fate = RSD_DROP;
	packets[1].fate = RSD_SEND;
	packets[1].data = data;
	packets[1].len = write_packet(data, 5, 300);
	EXPECT(1, rsd_finish(b.queue, packets, 2));
	receive_burst(a, back, 1);
	check_packet(&back[0], 300);
	EXPECT(0, rsd_finish_all(a.queue, RSD_DROP));

	/* The bounds themselves are fine. */
	send_packets(a, 0, 1, 60);
	receive_burst(b, packets, 1);
	packets[0].fate = RSD_SEND;
	packets[0].data -= 256;
	packets[0].len = write_packet(packets[0].data, 6, 1500);
	EXPECT(1, rsd_finish(b.queue, packets, 1));
	receive_burst(a, back, 1);
	check_packet(&back[0], 1500);
	/* And after a failure all can be dropped or sent at once. */
	back[0].data = NULL;
	EXPECT(RSD_EINVAL, rsd_finish(a.queue, back, 1));
	EXPECT(0, rsd_finish_all(a.queue, RSD_DROP));
	EXPECT(0, rsd_receive(b.queue, packets, BURST, 0));

	/* Writing by the library. */
	EXPECT(2, rsd_reserve(a.queue, packets, 2));
	{
		unsigned char bytes[2048];

		write_packet(bytes, 9, 400);
		EXPECT(RSD_OK, rsd_packet_write(a.queue, &packets[0], bytes, 400));
		CHECK(packets[0].len == 400 && packets[0].fate == RSD_SEND);
		EXPECT_TOLD(RSD_ESIZE, "1792", rsd_packet_write(a.queue, &packets[1], bytes, 1793));
		packets[1].fate = RSD_DROP;
	}
	EXPECT(1, rsd_finish(a.queue, packets, 2));
	receive_burst(b, back, 1);
	check_packet(&back[0], 400);
	EXPECT(0, rsd_finish_all(b.queue, RSD_DROP));
}

static void misuse_of_bursts(struct end a, struct end b)
{
	struct rsd_packet packets[BURST], old[BURST], twice[2];
	char byte;

	/* A burst that is open is in the way of what would drop it, but of the next rsd_receive(). */
	send_packets(a, 0, 3, 60);
	receive_burst(b, packets, 3);
	EXPECT_TOLD(RSD_EOPEN, "3 packet(s)", rsd_reserve(b.queue, old, 1));
	EXPECT(RSD_EOPEN, rsd_send(b.queue, old, 0));
	EXPECT(RSD_EOPEN, rsd_flush(b.queue));
	EXPECT(RSD_EOPEN, rsd_drain(b.queue, 0));
	memcpy(old, packets, sizeof(old));
	twice[0] = twice[1] = packets[0];
	EXPECT_TOLD(RSD_EINVAL, "twice", rsd_finish(b.queue, twice, 2));
	EXPECT_TOLD(RSD_EQUEUE, "another queue", rsd_finish(a.queue, packets, 3));
	twice[1].token += 3;
	EXPECT(RSD_ESTALE, rsd_finish(b.queue, twice, 2));
	EXPECT(RSD_EINVAL, rsd_free(packets, 1));
	EXPECT(RSD_EINVAL, rsd_finish(b.queue, NULL, 1));
	EXPECT(RSD_EQUEUE, rsd_packet_copy(a.queue, packets, &byte, 1));
	EXPECT(1, rsd_packet_copy(b.queue, packets, &byte, 1));
	send_packets(a, 3, 2, 60);
	receive_burst(b, packets, 2);
	EXPECT_TOLD(RSD_ESTALE, "burst that has ended", rsd_finish(b.queue, old, 3));
	EXPECT(RSD_ESTALE, rsd_packet_copy(b.queue, old, &byte, 1));
	EXPECT(RSD_ESTALE, rsd_packet_write(b.queue, old, &byte, 1));
	/* More than the burst has. */
	memcpy(packets + 2, old, sizeof(*old));
	EXPECT(RSD_ESTALE, rsd_finish(b.queue, packets, 3));
	EXPECT(0, rsd_finish(b.queue, packets, 2));
	EXPECT(RSD_ESTALE, rsd_finish(b.queue, packets, 2));
	EXPECT(RSD_ESTALE, rsd_packet_copy(b.queue, packets, &byte, 1));
	EXPECT(0, rsd_finish(b.queue, NULL, 0));
	EXPECT(RSD_EINVAL, rsd_reserve(b.queue, packets, 0));
}

/* Frames that are kept are missing, and come back. */
static void keeping_all(struct end a, struct end b)
{
	static struct rsd_packet kept[2048];
	struct rsd_packet packets[BURST];
	uint32_t all = 0;
	int count;

	while ((count = rsd_reserve(b.queue, packets, BURST)) > 0) {
		for (int n = 0; n < count; n++)
			packets[n].fate = RSD_KEEP;
		EXPECT(0, rsd_finish(b.queue, packets, (uint32_t)count));
		memcpy(kept + all, packets, (size_t)count * sizeof(*packets));
		all += (uint32_t)count;
		CHECK(all <= 2048);
	}
	EXPECT(0, count);
	CHECK(all >= 200);
	EXPECT(RSD_OK, rsd_free(kept, all));
	EXPECT(RSD_ESTALE, rsd_free(kept, all));
	CHECK(rsd_reserve(b.queue, packets, BURST) == BURST);
	EXPECT(0, rsd_finish_all(b.queue, RSD_DROP));
	(void)a;
}

struct receiver {
	rsd_queue *queue;
	int got;
	volatile int started;
};

static void *receives(void *argument)
{
	struct receiver *receiver = argument;
	struct rsd_packet packets[BURST];

	receiver->started = 1;
	/* The first thread may be inside just now, to see whether this one is. */
	do
		receiver->got = rsd_receive(receiver->queue, packets, BURST, (int64_t)20 * SECOND);
	while (receiver->got == RSD_EBUSY);
	return NULL;
}

/* A queue is one thread's at a time: the second is told so, and nothing is closed below the first. */
static void two_threads(struct end a, struct end b)
{
	struct receiver receiver = {.queue = b.queue};
	struct rsd_packet packet;
	pthread_t thread;
	int code = 0;

	CHECK(pthread_create(&thread, NULL, receives, &receiver) == 0);
	/* Once it is inside. */
	while (!receiver.started || (code = rsd_queue_fd(b.queue)) >= 0)
		usleep(1000);
	EXPECT(RSD_EBUSY, code);
	EXPECT(RSD_EBUSY, rsd_receive(b.queue, &packet, 1, 0));
	EXPECT(RSD_EBUSY, rsd_finish_all(b.queue, RSD_DROP));
	EXPECT_TOLD(RSD_EBUSY, "nothing was closed", rsd_port_close(b.port));
	EXPECT(RSD_EBUSY, rsd_port_reopen(b.port, 0));
	EXPECT(1, rsd_port_queues(b.port));
	CHECK(rsd_port_report(b.port, NULL, 0) > 0);
	send_packets(a, 1, 1, 60);
	CHECK(pthread_join(thread, NULL) == 0);
	EXPECT(1, receiver.got);
	/* From another thread than it was received on. */
	EXPECT(0, rsd_finish_all(b.queue, RSD_DROP));
}

static void waiting(const char *interface)
{
	struct rsd_options options = options_of(interface);
	struct rsd_packet packets[BURST];
	struct timespec start, end;

	for (uint32_t wait = RSD_WAIT_POLL; wait <= RSD_WAIT_BUSY_POLL; wait++) {
		struct end one;
		long took;

		options.wait = wait;
		one = open_with(&options);
		clock_gettime(CLOCK_MONOTONIC, &start);
		EXPECT(0, rsd_receive(one.queue, packets, BURST, SECOND / 10));
		clock_gettime(CLOCK_MONOTONIC, &end);
		took = (long)(end.tv_sec - start.tv_sec) * SECOND + end.tv_nsec - start.tv_nsec;
		CHECK(took >= SECOND / 10);
		EXPECT(0, rsd_receive(one.queue, packets, BURST, 0));
		EXPECT(RSD_OK, rsd_port_close(one.port));
	}
}

static void closing(struct end a, struct end b)
{
	struct rsd_packet packets[BURST], copy;
	rsd_queue *queue;
	struct end again;

	send_packets(a, 11, 2, 60);
	receive_burst(b, packets, 2);
	packets[0].fate = packets[1].fate = RSD_KEEP;
	EXPECT(0, rsd_finish(b.queue, packets, 2));
	send_packets(a, 12, 1, 60);
	receive_burst(b, &copy, 1);
	/* With an open burst, and with packets that are kept. */
	EXPECT(RSD_OK, rsd_port_close(b.port));
	EXPECT_TOLD(RSD_ECLOSED, "this port was closed", rsd_port_close(b.port));
	EXPECT(RSD_ECLOSED, rsd_port_queues(b.port));
	EXPECT(RSD_ECLOSED, rsd_port_queue(b.port, 0, &queue));
	EXPECT_TOLD(RSD_ECLOSED, "this queue was closed", rsd_receive(b.queue, packets + 2, 1, 0));
	EXPECT(RSD_ECLOSED, rsd_reserve(b.queue, packets + 2, 1));
	EXPECT(RSD_ECLOSED, rsd_finish(b.queue, &copy, 1));
	EXPECT(RSD_ECLOSED, rsd_finish_all(b.queue, RSD_DROP));
	EXPECT(RSD_ECLOSED, rsd_send(b.queue, packets, 2));
	EXPECT(RSD_ECLOSED, rsd_flush(b.queue));
	EXPECT(RSD_ECLOSED, rsd_drain(b.queue, 0));
	EXPECT(RSD_ECLOSED, rsd_queue_fd(b.queue));
	EXPECT(RSD_ECLOSED, rsd_queue_event(b.queue));
	EXPECT(RSD_ECLOSED, rsd_packet_copy(b.queue, &copy, packets + 2, 1));

	/* Another port in the same place knows neither the handle nor the packets of the old. */
	again = open_plain(names[1]);
	CHECK(again.queue != b.queue && again.port != b.port);
	EXPECT(RSD_ECLOSED, rsd_queue_fd(b.queue));
	send_packets(a, 13, 1, 60);
	receive_burst(again, packets + 2, 1);
	EXPECT(RSD_ESTALE, rsd_finish(again.queue, &copy, 1));
	EXPECT(0, rsd_finish_all(again.queue, RSD_DROP));
	EXPECT(RSD_EQUEUE, rsd_send(again.queue, packets, 2));
	/* What was kept is there until it is freed. */
	CHECK(number_of(packets[0].data) == 11 && number_of(packets[1].data) == 12);
	EXPECT(RSD_OK, rsd_free(packets, 2));

	/* Opened anew: the queue has another handle. */
	queue = again.queue;
	EXPECT(RSD_OK, rsd_port_reopen(again.port, PATIENCE));
	EXPECT(RSD_ECLOSED, rsd_queue_fd(queue));
	EXPECT(RSD_OK, rsd_port_queue(again.port, 0, &again.queue));
	CHECK(again.queue != queue);
	send_packets(a, 14, 1, 60);
	receive_burst(again, packets, 1);
	CHECK(number_of(packets[0].data) == 14);
	EXPECT(RSD_OK, rsd_port_close(again.port));
}

/* The hints of Ringside's own program. */
static void own_hints(struct end a)
{
	struct ringside_rx {
		uint64_t rx_ktime, packet;
		uint32_t rx_cpu, rx_queue, mark, btf_id;
	} all;
	struct rsd_options options = options_of(names[1]);
	struct rsd_packet packets[BURST];
	struct rsd_field whole, time, mark;
	struct timespec now;
	rsd_layout *layout, *none;
	struct end b;
	uint64_t ktime, last = 0;
	uint32_t id, marked;

	options.flags = RSD_HINTS;
	options.mark = 7;
	b = open_with(&options);
	EXPECT(RSD_OK, rsd_port_layout(b.port, "ringside_rx", &layout));
	EXPECT(RSD_ENOENT, rsd_port_layout(b.port, "no_such", &none));
	CHECK(none == NULL);
	EXPECT(RSD_OK, rsd_layout_whole(layout, &whole));
	EXPECT(RSD_OK, rsd_layout_field(layout, "rx_ktime", &time));
	EXPECT(RSD_OK, rsd_layout_field(layout, "mark", &mark));
	EXPECT(RSD_OK, rsd_layout_close(layout));

	send_packets(a, 0, 20, 60);
	receive_burst(b, packets, 20);
	for (int n = 0; n < 20; n++) {
		CHECK(packets[n].front == 252);
		EXPECT(RSD_OK, rsd_hints_id(packets[n].data, packets[n].front, &id));
		EXPECT(RSD_OK, RSD_READ(ktime, &time, &packets[n]));
		EXPECT(RSD_OK, RSD_READ(marked, &mark, &packets[n]));
		EXPECT(RSD_OK, RSD_READ(all, &whole, &packets[n]));
		clock_gettime(CLOCK_MONOTONIC, &now);
		CHECK(ktime >= last && ktime <= (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec);
		CHECK(marked == 7 && id == whole.btf_id);
		CHECK(all.rx_ktime == ktime && all.mark == 7 && all.rx_queue == 0 && all.btf_id == id);
		last = ktime;
	}
	/* Of kept packets too, also when the port is gone; not of one that was moved. */
	packets[0].fate = packets[1].fate = RSD_KEEP;
	packets[1].data += 4;
	packets[1].len -= 4;
	EXPECT(0, rsd_finish(b.queue, packets, 20));
	EXPECT(RSD_OK, rsd_port_close(b.port));
	EXPECT(RSD_OK, RSD_READ(all, &whole, &packets[0]));
	CHECK(packets[1].front == 0);
	EXPECT(RSD_ENOHINTS, RSD_READ(all, &whole, &packets[1]));
	EXPECT(RSD_OK, rsd_free(packets, 2));
}

/* Hints of a program of the user's: three structs in turn, none, and an id that means nothing. */
static void users_hints(struct end a)
{
	struct rsd_options options = options_of(names[1]);
	struct rsd_packet packets[BURST];
	struct rsd_field number, mark, wide;
	rsd_layout *layout;
	struct end b;
	uint64_t value;
	uint32_t marked, id;

	options.flags = RSD_HINTS;
	options.program_file = layouts_file;
	options.program_name = "no_such";
	EXPECT_TOLD(RSD_EPROG, "no_such", rsd_port_open(&options, &b.port));
	options.program_name = "layouts";
	b = open_with(&options);
	EXPECT(RSD_OK, rsd_port_layout(b.port, "test_time", &layout));
	EXPECT(RSD_OK, rsd_layout_field(layout, "number", &number));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	EXPECT(RSD_OK, rsd_port_layout(b.port, "test_mark", &layout));
	EXPECT(RSD_OK, rsd_layout_field(layout, "mark", &mark));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	EXPECT(RSD_OK, rsd_port_layout(b.port, "test_whole", &layout));
	EXPECT(RSD_OK, rsd_layout_field(layout, "wide", &wide));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	for (uint64_t first = 1000; first < 1200; first += 20) {
		send_packets(a, first, 20, 60);
		receive_burst(b, packets, 20);
		for (uint64_t n = 0; n < 20; n++) {
			const struct rsd_packet *packet = &packets[n];
			int of = (int)((first + n) % 5);

			CHECK(number_of(packet->data) == first + n);
			EXPECT(of == 0 ? RSD_OK : of == 3 ? RSD_ENOHINTS : RSD_EOTHER, RSD_READ(value, &number, packet));
			CHECK(of != 0 || value == first + n);
			EXPECT(of == 1 ? RSD_OK : of == 3 ? RSD_ENOHINTS : RSD_EOTHER, RSD_READ(marked, &mark, packet));
			CHECK(of != 1 || marked == first + n);
			EXPECT(of == 2 ? RSD_OK : of == 3 ? RSD_ENOHINTS : RSD_EOTHER, RSD_READ(value, &wide, packet));
			CHECK(of != 2 || value == ((first + n) << 32 | 7));
			EXPECT(of == 3 ? RSD_ENOHINTS : RSD_OK, rsd_hints_id(packet->data, packet->front, &id));
			CHECK(of != 4 || id == 0xfeedbeef);
		}
		EXPECT(0, rsd_finish_all(b.queue, RSD_DROP));
	}
	EXPECT(RSD_OK, rsd_port_close(b.port));
}

/* A program that asks the driver is loaded for its device, and native mode alone takes it. */
static void drivers_hints(struct end a)
{
	struct rsd_options options = options_of(names[1]);
	struct rsd_packet packets[BURST];
	struct rsd_field hashed;
	rsd_layout *layout;
	struct end b;
	uint16_t value;

	options.flags = RSD_HINTS;
	options.program_file = nic_file;
	if (mode == RSD_MODE_GENERIC) {
		EXPECT_TOLD(RSD_EPROG, "loaded for one device", rsd_port_open(&options, &b.port));
		return;
	}
	b = open_with(&options);
	EXPECT(RSD_OK, rsd_port_layout(b.port, "rx_flow", &layout));
	EXPECT(RSD_OK, rsd_layout_field(layout, "hashed", &hashed));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	send_packets(a, 0, 20, 60);
	receive_burst(b, packets, 20);
	for (int n = 0; n < 20; n++) {
		EXPECT(RSD_OK, RSD_READ(value, &hashed, &packets[n]));
		CHECK(value == 1);
	}
	EXPECT(0, rsd_finish_all(b.queue, RSD_DROP));
	EXPECT(RSD_OK, rsd_port_close(b.port));
}

/* What cannot be opened says why, and leaves nothing behind. */
static void what_cannot_be_opened(struct end a)
{
	struct rsd_options options = options_of(names[0]);
	uint32_t queues[] = {5};
	rsd_port *port;

	EXPECT_TOLD(RSD_EINUSE, names[0], rsd_port_open(&options, &port));
	CHECK(port == NULL);
	options.interface = names[1];
	options.queues = queues;
	options.queue_count = 1;
	EXPECT_TOLD(RSD_ENOENT, "no queue 5", rsd_port_open(&options, &port));
	options = options_of(names[1]);
	options.mode = RSD_MODE_ZERO_COPY;
	EXPECT(RSD_EMODE, rsd_port_open(&options, &port));
	options = options_of(names[1]);
	options.direction = RSD_TRANSMIT;
	options.mode = RSD_MODE_AUTO;
	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	{
		struct rsd_packet packet;
		rsd_queue *queue;

		EXPECT(RSD_OK, rsd_port_queue(port, 0, &queue));
		EXPECT_TOLD(RSD_EINVAL, "RX ring", rsd_receive(queue, &packet, 1, 0));
		EXPECT(1, rsd_reserve(queue, &packet, 1));
		EXPECT(RSD_OK, rsd_finish_all(queue, RSD_DROP));
	}
	EXPECT(RSD_OK, rsd_port_close(port));
	options.direction = RSD_RECEIVE;
	options.mode = mode;
	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	{
		struct rsd_packet packets[BURST];
		rsd_queue *queue;
		struct end b = {.port = port};

		EXPECT(RSD_OK, rsd_port_queue(port, 0, &queue));
		b.queue = queue;
		EXPECT_TOLD(RSD_EINVAL, "TX ring", rsd_reserve(queue, packets, 1));
		send_packets(a, 0, 1, 60);
		receive_burst(b, packets, 1);
		packets[0].fate = RSD_SEND;
		EXPECT_TOLD(RSD_EINVAL, "TX ring", rsd_finish(queue, packets, 1));
		EXPECT(RSD_ESTALE, rsd_finish(queue, packets, 1));
	}
	EXPECT(RSD_OK, rsd_port_close(port));
}

int main(int argc, char **argv)
{
	struct end a, b;

	CHECK(argc == 6);
	names[0] = argv[1];
	names[1] = argv[2];
	mode = (uint32_t)atoi(argv[3]);
	layouts_file = argv[4];
	nic_file = argv[5];
	a = open_plain(names[0]);
	b = open_plain(names[1]);
	what_was_obtained(a);
	send_and_receive(a, b);
	fates(a, b);
	edits(a, b);
	misuse_of_bursts(a, b);
	keeping_all(a, b);
	two_threads(a, b);
	closing(a, b);
	waiting(names[1]);
	own_hints(a);
	users_hints(a);
	drivers_hints(a);
	what_cannot_be_opened(a);
	EXPECT(RSD_OK, rsd_port_close(a.port));
	puts("port: ok");
	return 0;
}

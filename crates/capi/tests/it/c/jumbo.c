/* Packets in several frames.
 *
 *   jumbo A B MODE UNUSED      two interfaces with an MTU of 5000 or so */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <unistd.h>

enum { BURST = 8, SECOND = 1000000000, LONG = 5000 };

static void one(rsd_queue *from, rsd_queue *to, const unsigned char *bytes, uint32_t size, uint32_t parts,
		struct rsd_packet *packet)
{
	struct rsd_packet sent[2];
	struct pollfd readable = {.fd = rsd_queue_fd(to), .events = POLLIN};

	EXPECT(2, rsd_reserve(from, sent, 2));
	EXPECT(RSD_OK, rsd_packet_write(from, &sent[0], bytes, size));
	CHECK(sent[0].total == size && sent[0].parts == parts && (sent[0].len == size) == (parts == 1));
	sent[1].fate = RSD_DROP;
	EXPECT(1, rsd_finish(from, sent, 2));
	CHECK(poll(&readable, 1, 5000) == 1);
	EXPECT(1, rsd_receive(to, packet, 1, SECOND));
	CHECK(packet->total == size && packet->parts == parts);
}

static void check_bytes(rsd_queue *queue, const struct rsd_packet *packet, const unsigned char *bytes)
{
	static unsigned char copy[LONG];
	struct rsd_part part;
	uint32_t at = 0;

	EXPECT((int)packet->total, rsd_packet_copy(queue, packet, copy, sizeof(copy)));
	CHECK(memcmp(copy, bytes, packet->total) == 0);
	for (uint32_t n = 0; n < packet->parts; n++) {
		EXPECT(RSD_OK, rsd_packet_part(queue, packet, n, &part));
		CHECK(memcmp(part.data, bytes + at, part.len) == 0);
		at += part.len;
	}
	CHECK(at == packet->total);
	EXPECT(RSD_ENOENT, rsd_packet_part(queue, packet, packet->parts, &part));
}

int main(int argc, char **argv)
{
	static unsigned char bytes[LONG];
	struct rsd_options options;
	struct rsd_queue_info info;
	struct rsd_packet packets[BURST];
	rsd_port *ports[2];
	rsd_queue *queues[2];

	CHECK(argc == 6);
	for (int n = 0; n < LONG; n++)
		bytes[n] = (unsigned char)(n * 7);
	memset(bytes, 2, 12);
	bytes[12] = 0x88;
	bytes[13] = 0xb5;
	for (int n = 0; n < 2; n++) {
		EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));
		options.interface = argv[1 + n];
		options.mode = (uint32_t)atoi(argv[3]);
		EXPECT_TOLD(RSD_EINVAL, "MTU", rsd_port_open(&options, &ports[n]));
		options.flags = RSD_MULTI_BUFFER;
		EXPECT(RSD_OK, rsd_port_open(&options, &ports[n]));
		EXPECT(RSD_OK, rsd_port_queue(ports[n], 0, &queues[n]));
	}
	EXPECT(RSD_OK, rsd_queue_query(queues[0], &info, sizeof(info)));
	CHECK(info.room == 2048 - 256 && info.packet_room >= LONG);

	one(queues[0], queues[1], bytes, 1000, 1, packets);
	check_bytes(queues[1], packets, bytes);
	EXPECT(0, rsd_finish_all(queues[1], RSD_DROP));
	one(queues[0], queues[1], bytes, LONG, 3, packets);
	check_bytes(queues[1], packets, bytes);
	/* It cannot be changed as one in a single frame, but kept, sent back and replaced. */
	packets[0].fate = RSD_SEND;
	packets[0].len -= 1;
	EXPECT_TOLD(RSD_EINVAL, "several frames", rsd_finish(queues[1], packets, 1));
	packets[0].len += 1;
	packets[0].data += 1;
	EXPECT_TOLD(RSD_EINVAL, "several frames", rsd_finish(queues[1], packets, 1));
	packets[0].data -= 1;
	packets[0].fate = RSD_KEEP;
	EXPECT(0, rsd_finish(queues[1], packets, 1));
	check_bytes(NULL, packets, bytes);
	EXPECT(1, rsd_send(queues[1], packets, 1));
	usleep(20000);
	EXPECT(1, rsd_receive(queues[0], packets, BURST, (int64_t)5 * SECOND));
	CHECK(packets[0].total == LONG);
	check_bytes(queues[0], packets, bytes);
	EXPECT(RSD_OK, rsd_packet_write(queues[0], packets, bytes, 100));
	CHECK(packets[0].parts == 1 && packets[0].len == 100);
	packets[0].fate = RSD_SEND;
	EXPECT(1, rsd_finish(queues[0], packets, 1));
	usleep(20000);
	EXPECT(1, rsd_receive(queues[1], packets, BURST, (int64_t)5 * SECOND));
	CHECK(packets[0].total == 100);
	EXPECT(1, rsd_finish_all(queues[1], RSD_SEND));
	usleep(20000);
	EXPECT(1, rsd_receive(queues[0], packets, BURST, (int64_t)5 * SECOND));
	EXPECT(0, rsd_finish_all(queues[0], RSD_DROP));

	/* A short one that was written in place: what fits the first frame, and no more. */
	EXPECT(1, rsd_reserve(queues[0], packets, 1));
	memcpy(packets[0].data, bytes, info.room);
	packets[0].len = info.room + 1;
	EXPECT_TOLD(RSD_EINVAL, "frame", rsd_finish(queues[0], packets, 1));
	packets[0].len = info.room;
	EXPECT(1, rsd_finish(queues[0], packets, 1));
	usleep(20000);
	EXPECT(1, rsd_receive(queues[1], packets, BURST, (int64_t)5 * SECOND));
	CHECK(packets[0].total == info.room);
	check_bytes(queues[1], packets, bytes);
	EXPECT(RSD_OK, rsd_port_close(ports[0]));
	EXPECT(RSD_OK, rsd_port_close(ports[1]));
	puts("jumbo: ok");
	return 0;
}

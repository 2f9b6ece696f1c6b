/* Each error that a caller can provoke is in words of C: no name of Rust's and no option of a tool.
 *
 *   errors A B TUN NIC     two joined interfaces, one without an Ethernet header, nic.bpf.c
 *                          compiled */
#include "check.h"

#include <ctype.h>

enum { BURST = 8, SECOND = 1000000000 };

static const char *names[3], *program_file;

static struct rsd_options options_of(const char *interface)
{
	struct rsd_options options;

	EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));
	options.interface = interface;
	/* The kernel frees the queue of a port a moment after it was closed. */
	options.busy_timeout_ns = (uint64_t)30 * SECOND;
	return options;
}

static int failures;

/* Whether a text has a word that C does not know. */
static const char *foreign_word(const char *text)
{
	static const char *const words[] = {
		"--",	    "Direction", "Ringside(", "Custom",  "XdpLink",    "Port ",	 "drop the",
		"Options",  "Builder",	 "recv(",     "alloc(",	 "send_with(", "reserve() ",
		"Some(",    "None",	 "of the file",
	};

	for (size_t n = 0; n < sizeof(words) / sizeof(words[0]); n++)
		if (strstr(text, words[n]) != NULL)
			return words[n];
	/* An IPv6 address has "::" as well. */
	for (const char *at = text; (at = strstr(at, "::")) != NULL; at += 2)
		if (isalpha((unsigned char)at[2]))
			return "::";
	return NULL;
}

static void refused(int line, int wanted, const char *text, int got)
{
	const char *error = rsd_last_error(), *word = foreign_word(error);

	if (got == wanted && strstr(error, text) != NULL && word == NULL)
		return;
	fprintf(stderr, "line %d: %d (%s), not %d with \"%s\"; foreign: %s; last error: %s\n",
		line, got, rsd_strerror(got), wanted, text, word == NULL ? "" : word, error);
	failures++;
}

#define REFUSED(wanted, text, call) refused(__LINE__, wanted, text, call)

/* What no port can be opened with: a member of struct rsd_options, its value, code and text. */
#define OPTION(member, value, wanted, text)                                                    \
	do {                                                                                   \
		struct rsd_options options = options_of(names[1]);                             \
		rsd_port *port;                                                                \
                                                                                               \
		options.member = (value);                                                      \
		REFUSED(wanted, text, rsd_port_open(&options, &port));                         \
	} while (0)

static void values(void)
{
	OPTION(interface, "no-such-thing", RSD_ENOENT, "no-such-thing");
	OPTION(mode, RSD_MODE_COPY, RSD_EINVAL, "options.mode = 4");
	OPTION(mode, RSD_MODE_ZERO_COPY, RSD_EMODE, "zero-copy");
	OPTION(direction, 3, RSD_EINVAL, "options.direction = 3");
	OPTION(wait, 3, RSD_EINVAL, "options.wait = 3");
	OPTION(flags, 32, RSD_EINVAL, "options.flags = 32");
	OPTION(batch, UINT32_MAX, RSD_EINVAL, "batch = 4294967295");
	OPTION(frame_size, 100, RSD_EINVAL, "frame_size = 100");
	OPTION(frames, UINT32_MAX, RSD_EINVAL, "frames = 4294967295");
	OPTION(headroom, 2000, RSD_EINVAL, "headroom = 2000");
	OPTION(headroom, 500, RSD_EINVAL, "MTU");
	OPTION(rx_ring, UINT32_MAX, RSD_EINVAL, "rx_ring = 4294967295");
	OPTION(tx_ring, UINT32_MAX, RSD_EINVAL, "tx_ring = 4294967295");
	OPTION(fill_ring, UINT32_MAX, RSD_EINVAL, "fill_ring = 4294967295");
	OPTION(completion_ring, UINT32_MAX, RSD_EINVAL, "completion_ring = 4294967295");
	OPTION(busy_poll_budget, 64, RSD_EINVAL, "RSD_WAIT_BUSY_POLL");
	OPTION(filter, "udp:", RSD_EINVAL, "options.filter");
	OPTION(filter, "tpc:80", RSD_EINVAL, "options.filter");
	OPTION(filter, "dst:192.0.2.1/33", RSD_EINVAL, "options.filter");
	OPTION(filter, "ethertype:0x0806", RSD_EINVAL, "ARP");
	OPTION(program_file, "/nonexistent.o", RSD_ENOENT, "reading /nonexistent.o: No such file");
	OPTION(program_file, "/proc", RSD_ESYS, "reading /proc: Is a directory");
	OPTION(program_file, "/proc/self/exe", RSD_EPROG, "/proc/self/exe");
	OPTION(program_fd, 1000, RSD_EINVAL, "options.xsks_map_fd");
	OPTION(xsks_map_fd, 1000, RSD_EINVAL, "options.xsks_map_fd = 1000");
	OPTION(xsks_map_fd, 1, RSD_EINVAL, "XSKMAP");
	OPTION(interface, names[2], RSD_EINVAL, "no Ethernet header");
	OPTION(interface, names[0], RSD_EINUSE, "this process");
}

static void combinations(void)
{
	struct rsd_options options = options_of(names[1]);
	uint32_t queues[] = {0, 0};
	rsd_port *port;

	options.wait = RSD_WAIT_BUSY_POLL;
	options.busy_poll_budget = 70000;
	REFUSED(RSD_EINVAL, "1 to 65535", rsd_port_open(&options, &port));
	options.busy_poll_budget = 0;
	options.busy_poll_us = UINT32_MAX;
	REFUSED(RSD_EINVAL, "1 to 2147483647", rsd_port_open(&options, &port));

	options = options_of(names[1]);
	options.queues = queues;
	options.queue_count = 2;
	REFUSED(RSD_EINVAL, "only once", rsd_port_open(&options, &port));
	queues[1] = 5;
	REFUSED(RSD_ENOENT, "no queue 5", rsd_port_open(&options, &port));

	options = options_of(names[1]);
	options.direction = RSD_TRANSMIT;
	options.filter = "udp:5000";
	REFUSED(RSD_EINVAL, "filter = udp:5000", rsd_port_open(&options, &port));
	options.filter = NULL;
	options.program_file = program_file;
	REFUSED(RSD_EINVAL, "only transmits", rsd_port_open(&options, &port));

	options.direction = RSD_BOTH;
	options.program_name = "no_such";
	REFUSED(RSD_EPROG, "no XDP program no_such, but nic", rsd_port_open(&options, &port));
	options.program_name = NULL;
	options.mode = RSD_MODE_GENERIC;
	REFUSED(RSD_EPROG, "in generic mode", rsd_port_open(&options, &port));

	options = options_of(names[1]);
	options.filter = "udp:5000";
	options.program_file = program_file;
	REFUSED(RSD_EINVAL, "only one of", rsd_port_open(&options, &port));
	options.program_file = NULL;
	options.program_name = "nic";
	REFUSED(RSD_EINVAL, "options.program_file", rsd_port_open(&options, &port));
}

static void direction(uint32_t direction)
{
	struct rsd_options options = options_of(names[1]);
	struct rsd_packet packets[BURST];
	rsd_queue *queue;
	rsd_port *port;

	options.direction = direction;
	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	EXPECT(RSD_OK, rsd_port_queue(port, 0, &queue));
	if (direction == RSD_TRANSMIT)
		REFUSED(RSD_EINVAL, "RX ring", rsd_receive(queue, packets, BURST, 0));
	else
		REFUSED(RSD_EINVAL, "TX ring", rsd_reserve(queue, packets, BURST));
	EXPECT(RSD_OK, rsd_port_close(port));
}

/* Of packets, of which A has those that are sent to it. */
static void packets(rsd_queue *queue)
{
	struct rsd_options options = options_of(names[1]);
	struct rsd_packet packets[BURST], long_one;
	static unsigned char bytes[4096];
	rsd_queue *other;
	rsd_port *port;

	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	EXPECT(RSD_OK, rsd_port_queue(port, 0, &other));
	EXPECT(2, rsd_reserve(other, packets, 2));
	long_one = packets[0];
	REFUSED(RSD_ESIZE, "1792", rsd_packet_write(other, &long_one, bytes, sizeof(bytes)));
	REFUSED(RSD_EOPEN, "rsd_finish", rsd_reserve(other, packets, 1));
	REFUSED(RSD_EQUEUE, "another queue", rsd_finish(queue, packets, 1));
	packets[0].len = 5;
	REFUSED(RSD_EINVAL, "Ethernet header", rsd_finish(other, packets, 1));
	packets[0].fate = RSD_DROP;
	packets[1].fate = RSD_KEEP;
	packets[1].len = 100;
	EXPECT(0, rsd_finish(other, packets, 2));
	REFUSED(RSD_EQUEUE, "another queue's memory", rsd_send(queue, &packets[1], 1));
	packets[1].len = 1700;
	REFUSED(RSD_EINVAL, "MTU", rsd_send(other, &packets[1], 1));
	EXPECT(RSD_OK, rsd_free(&packets[1], 1));
	EXPECT(RSD_OK, rsd_port_close(port));
	REFUSED(RSD_ECLOSED, "closed", rsd_port_close(port));
}

static void hints(void)
{
	struct rsd_field field;
	rsd_layout *layout;
	rsd_btf *btf;

	REFUSED(RSD_ENOENT, "/nonexistent.o", rsd_btf_open_file("/nonexistent.o", &btf));
	REFUSED(RSD_EBTF, "/proc/self/exe", rsd_btf_open_file("/proc/self/exe", &btf));
	EXPECT(RSD_OK, rsd_btf_open_file(program_file, &btf));
	REFUSED(RSD_ENOENT, "no_such", rsd_layout_open(btf, "no_such", &layout));
	EXPECT(RSD_OK, rsd_layout_open(btf, "rx_flow", &layout));
	REFUSED(RSD_ENOENT, "no_such", rsd_layout_field(layout, "no_such", &field));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	EXPECT(RSD_OK, rsd_btf_close(btf));
}

int main(int argc, char **argv)
{
	struct rsd_options options;
	rsd_queue *queue;
	rsd_port *port;

	CHECK(argc == 5);
	memcpy(names, argv + 1, sizeof(names));
	program_file = argv[4];
	options = options_of(names[0]);
	EXPECT(RSD_OK, rsd_port_open(&options, &port));
	EXPECT(RSD_OK, rsd_port_queue(port, 0, &queue));
	values();
	combinations();
	direction(RSD_TRANSMIT);
	direction(RSD_RECEIVE);
	packets(queue);
	hints();
	EXPECT(RSD_OK, rsd_port_close(port));
	CHECK(failures == 0);
	puts("errors: ok");
	return 0;
}

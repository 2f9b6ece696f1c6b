/* Misuse of handles and arguments, without a port: each is an error with a text, and nothing crashes.
 *
 *   handles OBJECT      a BPF object with struct test_time */
#include "check.h"

#include <pthread.h>

static void null_arguments(void)
{
	struct rsd_options options;
	struct rsd_packet packet = {0};
	struct rsd_field field = {0};
	struct rsd_queue_info info;
	struct rsd_stats stats;
	struct rsd_part part;
	rsd_port *port = MADE_UP(rsd_port);
	rsd_queue *queue = MADE_UP(rsd_queue);
	rsd_btf *btf = MADE_UP(rsd_btf);
	rsd_layout *layout = MADE_UP(rsd_layout);
	char text[8];
	uint32_t id = 1;
	uint64_t value;

	EXPECT_TOLD(RSD_EINVAL, "options", rsd_options_init(NULL, sizeof(options)));
	EXPECT_TOLD(RSD_EINVAL, "size", rsd_options_init(&options, 8));
	EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));

	EXPECT_TOLD(RSD_EINVAL, "options", rsd_port_open(NULL, &port));
	CHECK(port == NULL);
	EXPECT_TOLD(RSD_EINVAL, "port is NULL", rsd_port_open(&options, NULL));
	EXPECT_TOLD(RSD_EINVAL, "interface is NULL", rsd_port_open(&options, &port));
	EXPECT_TOLD(RSD_EINVAL, "port is NULL", rsd_port_close(NULL));
	EXPECT(RSD_EINVAL, rsd_port_reopen(NULL, 0));
	EXPECT(RSD_EINVAL, rsd_port_queues(NULL));
	EXPECT(RSD_EINVAL, rsd_port_queue(NULL, 0, &queue));
	CHECK(queue == NULL);
	EXPECT(RSD_EINVAL, rsd_port_queue(NULL, 0, NULL));
	EXPECT(RSD_EINVAL, rsd_port_report(NULL, text, sizeof(text)));
	EXPECT(RSD_EINVAL, rsd_port_layout(NULL, "ringside_rx", &layout));
	EXPECT(RSD_EINVAL, rsd_port_layout(NULL, "ringside_rx", NULL));

	EXPECT_TOLD(RSD_EINVAL, "queue is NULL", rsd_receive(NULL, &packet, 1, 0));
	EXPECT_TOLD(RSD_EINVAL, "packets is NULL", rsd_receive(NULL, NULL, 1, 0));
	EXPECT(RSD_EINVAL, rsd_reserve(NULL, &packet, 1));
	EXPECT(RSD_EINVAL, rsd_finish(NULL, &packet, 1));
	EXPECT(RSD_EINVAL, rsd_finish(NULL, NULL, 1));
	EXPECT(RSD_EINVAL, rsd_finish_all(NULL, RSD_DROP));
	EXPECT(RSD_EINVAL, rsd_send(NULL, &packet, 1));
	EXPECT(RSD_EINVAL, rsd_flush(NULL));
	EXPECT(RSD_EINVAL, rsd_drain(NULL, 0));
	EXPECT(RSD_EINVAL, rsd_queue_fd(NULL));
	EXPECT(RSD_EINVAL, rsd_queue_event(NULL));
	EXPECT(RSD_EINVAL, rsd_queue_query(NULL, &info, sizeof(info)));
	EXPECT(RSD_EINVAL, rsd_queue_stats(NULL, &stats, sizeof(stats)));
	EXPECT(RSD_EINVAL, rsd_free(NULL, 1));
	EXPECT(RSD_OK, rsd_free(NULL, 0));
	EXPECT(RSD_EINVAL, rsd_packet_copy(NULL, NULL, text, sizeof(text)));
	EXPECT(RSD_EINVAL, rsd_packet_copy(NULL, &packet, NULL, 1));
	EXPECT(RSD_EINVAL, rsd_packet_write(NULL, NULL, text, sizeof(text)));
	EXPECT(RSD_EINVAL, rsd_packet_write(NULL, &packet, NULL, 1));
	EXPECT(RSD_EINVAL, rsd_packet_part(NULL, NULL, 0, &part));
	EXPECT(RSD_EINVAL, rsd_packet_part(NULL, &packet, 0, NULL));

	EXPECT(RSD_EINVAL, rsd_btf_open_file(NULL, &btf));
	CHECK(btf == NULL);
	EXPECT(RSD_EINVAL, rsd_btf_open_file("/dev/null", NULL));
	EXPECT(RSD_EINVAL, rsd_btf_open_memory(NULL, 16, &btf));
	EXPECT(RSD_EINVAL, rsd_btf_open_kernel(NULL, NULL));
	EXPECT(RSD_EINVAL, rsd_btf_open_ringside(NULL));
	EXPECT(RSD_EINVAL, rsd_btf_close(NULL));
	EXPECT(RSD_EINVAL, rsd_layout_open(NULL, "x", &layout));
	CHECK(layout == NULL);
	EXPECT(RSD_EINVAL, rsd_layout_open(NULL, "x", NULL));
	EXPECT(RSD_EINVAL, rsd_layout_close(NULL));
	EXPECT(RSD_EINVAL, rsd_layout_has_field(NULL, "x"));
	EXPECT(RSD_EINVAL, rsd_layout_field(NULL, "x", &field));
	EXPECT(RSD_EINVAL, rsd_layout_whole(NULL, &field));
	EXPECT(RSD_EINVAL, rsd_layout_fields(NULL));
	EXPECT(RSD_EINVAL, rsd_layout_field_at(NULL, 0, text, sizeof(text), &field));
	EXPECT(RSD_EINVAL, rsd_layout_name(NULL, text, sizeof(text)));
	EXPECT(RSD_EINVAL, rsd_layout_read(NULL, "x", text, 0, &value, sizeof(value)));

	EXPECT(RSD_EINVAL, rsd_hints_id(NULL, 4, &id));
	CHECK(id == 0);
	EXPECT(RSD_EINVAL, rsd_hints_id(text, 0, NULL));
	EXPECT(RSD_EINVAL, rsd_field_read(NULL, text, 0, &value, sizeof(value)));
	EXPECT_TOLD(RSD_EINVAL, "no field", rsd_field_read(&field, text, 0, &value, sizeof(value)));
	EXPECT(RSD_EINVAL, rsd_field_value(NULL, text, 0, &value));
	EXPECT(RSD_EINVAL, rsd_field_value(&field, text, 0, NULL));
	EXPECT(RSD_EINVAL, rsd_field_element(NULL, 0, &field));
	EXPECT(RSD_EINVAL, rsd_field_element(&field, 0, &field));
	EXPECT(RSD_EINVAL, rsd_field_element(&field, 0, NULL));
}

static void options(void)
{
	struct {
		struct rsd_options known;
		uint64_t unknown;
	} later;
	struct rsd_options options;
	uint32_t queue = 0;
	rsd_port *port;

#define OPTIONS(code, text, setting)                                                  \
	do {                                                                          \
		EXPECT(RSD_OK, rsd_options_init(&options, sizeof(options)));          \
		options.interface = "lo";                                             \
		setting;                                                              \
		EXPECT_TOLD(code, text, rsd_port_open(&options, &port));              \
		CHECK(port == NULL);                                                  \
	} while (0)

	OPTIONS(RSD_EINVAL, "options.size", options.size = 4);
	OPTIONS(RSD_EINVAL, "options.size", options.size = 1u << 30);
	OPTIONS(RSD_ENOENT, "no-such-thing", options.interface = "no-such-thing");
	OPTIONS(RSD_EINVAL, "UTF-8", options.interface = "\xff\xfe");
	OPTIONS(RSD_EINVAL, "mode", options.mode = 4);
	OPTIONS(RSD_EINVAL, "mode", options.mode = UINT32_MAX);
	OPTIONS(RSD_EINVAL, "direction", options.direction = 3);
	OPTIONS(RSD_EINVAL, "wait", options.wait = 3);
	OPTIONS(RSD_EINVAL, "flags", options.flags = 1u << 5);
	OPTIONS(RSD_EINVAL, "queue_count", options.queue_count = 1);
	OPTIONS(RSD_EINVAL, "queue_count", options.queues = &queue);
	OPTIONS(RSD_EINVAL, "filter", options.filter = "sometimes");
	OPTIONS(RSD_EINVAL, "from 1 to 65535", options.filter = "tcp:0,udp:53");
	OPTIONS(RSD_EINVAL, "write 192.0.2.0/24", options.filter = "dst:192.0.2.1/24");
	OPTIONS(RSD_EINVAL, "given twice", options.filter = "dst:::1,dst:::1");
	OPTIONS(RSD_EINVAL, "add dst:ADDRESS", options.filter = "tcp:80,arp");
	OPTIONS(RSD_EINVAL, "only one of", options.filter = "all"; options.program_file = "x.o");
	OPTIONS(RSD_EINVAL, "program_name", options.program_name = "x");
	OPTIONS(RSD_ENOENT, "/no/such.o", options.program_file = "/no/such.o");
	OPTIONS(RSD_EINVAL, "xsks_map_fd", options.xsks_map_fd = 12345);
	OPTIONS(RSD_EINVAL, "xsks_map_fd", options.program_fd = 12345);
	OPTIONS(RSD_EINVAL, "xsks_map_fd", options.xsks_map_fd = -1);
	OPTIONS(RSD_EINVAL, "layout_count", options.layout_count = 1);
	OPTIONS(RSD_EINVAL, "busy_poll", options.busy_poll_us = 1);
	OPTIONS(RSD_EINVAL, "frame_size", options.frame_size = 1000);
	OPTIONS(RSD_EINVAL, "batch", options.batch = UINT32_MAX);

	/* A program that was compiled with a later header: what it does not ask for is no matter. */
	memset(&later, 0, sizeof(later));
	EXPECT(RSD_OK, rsd_options_init(&later.known, sizeof(later)));
	later.known.interface = "no-such-thing";
	EXPECT(RSD_ENOENT, rsd_port_open(&later.known, &port));
	later.unknown = 1;
	EXPECT_TOLD(RSD_EINVAL, "no option for", rsd_port_open(&later.known, &port));
}

static void made_up_handles(void)
{
	struct rsd_packet packet = {0};
	rsd_port *port = MADE_UP(rsd_port);
	rsd_queue *queue = (rsd_queue *)&packet;

	EXPECT_TOLD(RSD_ECLOSED, "no handle of a port", rsd_port_close(port));
	EXPECT_TOLD(RSD_ECLOSED, "no handle of a queue", rsd_receive(queue, &packet, 1, 0));
	EXPECT(RSD_ECLOSED, rsd_btf_close((rsd_btf *)UINTPTR_MAX));
	EXPECT(RSD_ECLOSED, rsd_layout_close((rsd_layout *)1));
	/* Each bit pattern that could be one: none was given out so far. */
	for (uintptr_t bits = 0; bits < 64; bits++) {
		EXPECT(RSD_ECLOSED, rsd_queue_fd((rsd_queue *)((uintptr_t)0x5244 << 48 | 2u << 12 | bits)));
		EXPECT(RSD_ECLOSED, rsd_queue_fd((rsd_queue *)((uintptr_t)1 << bits)));
	}
}

static void packets_without_a_queue(void)
{
	struct rsd_packet packet = {0};
	char buffer[16];

	EXPECT_TOLD(RSD_ESTALE, "no call of the library", rsd_free(&packet, 1));
	EXPECT(RSD_ESTALE, rsd_packet_copy(NULL, &packet, buffer, sizeof(buffer)));
	packet.token = UINT64_MAX;
	EXPECT(RSD_ESTALE, rsd_free(&packet, 1));
	for (int bit = 0; bit < 64; bit++) {
		packet.token = (uint64_t)1 << bit;
		CHECK(rsd_free(&packet, 1) < 0);
		CHECK(rsd_packet_copy(NULL, &packet, buffer, sizeof(buffer)) < 0);
	}
}

static void closed_handles(const char *object)
{
	rsd_btf *btf, *second;
	rsd_layout *layout, *later;
	struct rsd_field field;

	EXPECT(RSD_OK, rsd_btf_open_file(object, &btf));
	EXPECT(RSD_OK, rsd_layout_open(btf, "test_time", &layout));
	EXPECT_TOLD(RSD_ECLOSED, "no handle of a BTF", rsd_btf_close((rsd_btf *)layout));
	EXPECT(RSD_ECLOSED, rsd_layout_close((rsd_layout *)btf));
	EXPECT(RSD_OK, rsd_btf_close(btf));
	EXPECT_TOLD(RSD_ECLOSED, "this BTF was closed", rsd_btf_close(btf));
	EXPECT(RSD_ECLOSED, rsd_layout_open(btf, "test_time", &later));
	CHECK(later == NULL);

	/* Its place is taken again, and the old handle is still a closed one. */
	EXPECT(RSD_OK, rsd_btf_open_file(object, &second));
	CHECK(second != btf);
	EXPECT(RSD_ECLOSED, rsd_btf_close(btf));
	EXPECT(RSD_OK, rsd_btf_close(second));

	/* A layout outlives its BTF. */
	EXPECT(1, rsd_layout_has_field(layout, "number"));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	EXPECT(RSD_ECLOSED, rsd_layout_close(layout));
	EXPECT(RSD_ECLOSED, rsd_layout_has_field(layout, "number"));
	EXPECT(RSD_ECLOSED, rsd_layout_field(layout, "number", &field));
	EXPECT(RSD_ECLOSED, rsd_layout_fields(layout));
}

static void too_many_handles(void)
{
	enum { MOST = 4096 };
	static rsd_btf *all[MOST];
	rsd_btf *one_more;

	for (int n = 0; n < MOST; n++)
		EXPECT(RSD_OK, rsd_btf_open_ringside(&all[n]));
	EXPECT_TOLD(RSD_EFULL, "4096", rsd_btf_open_ringside(&one_more));
	CHECK(one_more == NULL);
	for (int n = 0; n < MOST; n++)
		EXPECT(RSD_OK, rsd_btf_close(all[n]));
	for (int n = 0; n < MOST; n++)
		EXPECT(RSD_ECLOSED, rsd_btf_close(all[n]));
}

/* Looking things up in one layout from many threads is no misuse; opening and closing of all at once neither. */
static void *look_up(void *object)
{
	rsd_btf *btf;
	rsd_layout *layout;

	for (int n = 0; n < 50; n++) {
		EXPECT(RSD_OK, rsd_btf_open_file(object, &btf));
		EXPECT(RSD_OK, rsd_layout_open(btf, "test_time", &layout));
		EXPECT(RSD_OK, rsd_btf_close(btf));
		EXPECT(0, rsd_layout_has_field(layout, "no_such"));
		EXPECT(RSD_OK, rsd_layout_close(layout));
		EXPECT(RSD_ECLOSED, rsd_layout_has_field(layout, "number"));
	}
	return NULL;
}

/* The text of an error is its thread's. */
static void *fails(void *unused)
{
	(void)unused;
	CHECK(strcmp(rsd_last_error(), "") == 0);
	EXPECT(RSD_EINVAL, rsd_flush(NULL));
	CHECK(strcmp(rsd_last_error(), "the queue is NULL") == 0);
	return NULL;
}

static void threads(const char *object)
{
	pthread_t all[8];

	EXPECT(RSD_EINVAL, rsd_port_close(NULL));
	for (int n = 0; n < 8; n++)
		CHECK(pthread_create(&all[n], NULL, n == 0 ? fails : look_up, (void *)object) == 0);
	for (int n = 0; n < 8; n++)
		CHECK(pthread_join(all[n], NULL) == 0);
	CHECK(strcmp(rsd_last_error(), "the port is NULL") == 0);
}

static void texts(void)
{
	CHECK(strcmp(rsd_strerror(RSD_OK), "RSD_OK: it went well") == 0);
	for (int code = RSD_EFORKED; code < 0; code++)
		CHECK(strncmp(rsd_strerror(code), "RSD_E", 5) == 0);
	CHECK(strstr(rsd_strerror(1), "no code") != NULL);
	CHECK(strstr(rsd_strerror(RSD_EFORKED - 1), "no code") != NULL);
	CHECK(strchr(rsd_version(), '.') != NULL);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	CHECK(strcmp(rsd_last_error(), "") == 0);
	null_arguments();
	options();
	made_up_handles();
	packets_without_a_queue();
	closed_handles(argv[1]);
	too_many_handles();
	threads(argv[1]);
	texts();
	puts("handles: ok");
	return 0;
}

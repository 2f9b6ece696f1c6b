/* Hints of packets that were not received through the library: bytes with hints in front of them.
 *
 *   hints OBJECT [short]      testing_layouts.bpf.c, compiled; without the kernel's BTF, which valgrind takes a minute for */
#include "check.h"

/* As the program has them. */
struct test_time {
	uint64_t number;
	uint32_t queue;
	uint32_t btf_id;
} __attribute__((packed, aligned(4)));

static struct {
	unsigned char front[256];
	unsigned char packet[64];
} frame;

static uint32_t id_of(rsd_layout *layout)
{
	struct rsd_field whole;

	EXPECT(RSD_OK, rsd_layout_whole(layout, &whole));
	return whole.btf_id;
}

static void write_hints(const void *hints, size_t size)
{
	memset(&frame, 0, sizeof(frame));
	memcpy(frame.packet - size, hints, size);
}

static void typed(rsd_layout *layout)
{
	struct test_time written = {UINT64_C(0x1122334455667788), 3, 0}, read;
	struct rsd_field whole, number, other;
	uint64_t value;
	uint32_t id;

	EXPECT(RSD_OK, rsd_layout_whole(layout, &whole));
	EXPECT(RSD_OK, rsd_layout_field(layout, "number", &number));
	CHECK(whole.struct_size == sizeof(written) && number.size == 8 && number.offset == 0);
	written.btf_id = whole.btf_id;
	write_hints(&written, sizeof(written));

	EXPECT(RSD_OK, rsd_hints_id(frame.packet, sizeof(frame.front), &id));
	CHECK(id == whole.btf_id);
	EXPECT(RSD_OK, rsd_field_read(&whole, frame.packet, 16, &read, sizeof(read)));
	CHECK(memcmp(&read, &written, sizeof(read)) == 0);
	EXPECT(RSD_OK, rsd_field_read(&number, frame.packet, 16, &value, sizeof(value)));
	CHECK(value == written.number);
	EXPECT(RSD_OK, RSD_READ_INTO(value, "number", layout, frame.packet, 256));
	CHECK(value == written.number);

	/* Another size than the field's, and a name that there is not. */
	value = 7;
	EXPECT_TOLD(RSD_ESIZE, "8 byte(s)", rsd_field_read(&number, frame.packet, 16, &value, 4));
	EXPECT(RSD_ESIZE, rsd_layout_read(layout, "queue", frame.packet, 16, &value, 8));
	EXPECT_TOLD(RSD_ENOENT, "number, queue, btf_id",
		    rsd_layout_read(layout, "no_such", frame.packet, 16, &value, 8));
	EXPECT(RSD_ENOENT, rsd_layout_field(layout, "no_such", &other));
	CHECK(other.btf_id == 0);

	/* Too few bytes in front. */
	EXPECT(RSD_ENOHINTS, rsd_field_read(&number, frame.packet, 15, &value, 8));
	EXPECT(RSD_ENOHINTS, rsd_field_read(&number, frame.packet, 3, &value, 8));
	EXPECT(RSD_ENOHINTS, rsd_field_read(&number, frame.packet, 0, &value, 8));
	EXPECT(RSD_OK, rsd_hints_id(frame.packet, 4, &id));
	EXPECT(RSD_ENOHINTS, rsd_hints_id(frame.packet, 3, &id));
	CHECK(id == 0 && value == 7);

	/* None, and those of another struct. */
	memset(frame.packet - 4, 0, 4);
	EXPECT(RSD_ENOHINTS, rsd_field_read(&number, frame.packet, 256, &value, 8));
	EXPECT(RSD_ENOHINTS, rsd_hints_id(frame.packet, 256, &id));
	frame.front[255] = 0x7f;
	EXPECT(RSD_EOTHER, rsd_field_read(&number, frame.packet, 256, &value, 8));
	EXPECT(RSD_EOTHER, rsd_field_value(&number, frame.packet, 256, &value));
	CHECK(value == 7);
}

/* A packet may start at any address. */
static void misaligned(rsd_layout *layout)
{
	struct test_time written = {42, 1, id_of(layout)};
	unsigned char bytes[64];
	struct rsd_field number;
	uint64_t value;
	uint32_t id;

	EXPECT(RSD_OK, rsd_layout_field(layout, "number", &number));
	for (size_t at = 16; at < 24; at++) {
		memcpy(bytes + at - sizeof(written), &written, sizeof(written));
		EXPECT(RSD_OK, rsd_hints_id(bytes + at, at, &id));
		EXPECT(RSD_OK, rsd_field_read(&number, bytes + at, at, &value, sizeof(value)));
		CHECK(id == written.btf_id && value == 42);
	}
}

static void arrays_and_signs(rsd_layout *layout)
{
	/* struct test_whole: 12 bytes of steps, 8 of wide, 6 bytes, proto, id */
	unsigned char hints[32] = {0};
	int16_t negative = -2;
	uint32_t id = id_of(layout);
	struct rsd_field field, element;
	unsigned char bytes[6];
	uint64_t value;
	char name[64];
	int fields = rsd_layout_fields(layout), seen = 0;

	memcpy(hints + 6, &negative, 2);
	for (int n = 0; n < 6; n++)
		hints[20 + n] = (unsigned char)(200 + n);
	memcpy(hints + 28, &id, 4);
	write_hints(hints, sizeof(hints));

	EXPECT(1, rsd_layout_has_field(layout, "steps[1].negative"));
	EXPECT(0, rsd_layout_has_field(layout, "steps[3].negative"));
	EXPECT(0, rsd_layout_has_field(layout, "steps"));
	EXPECT(RSD_OK, rsd_layout_field(layout, "steps[1].negative", &field));
	CHECK(field.is_signed == 1 && field.size == 2 && field.is_array == 0);
	EXPECT(RSD_OK, rsd_field_value(&field, frame.packet, 32, &value));
	CHECK((int64_t)value == -2);
	negative = 0;
	EXPECT(RSD_OK, rsd_field_read(&field, frame.packet, 32, &negative, sizeof(negative)));
	CHECK(negative == -2);

	EXPECT(RSD_OK, rsd_layout_field(layout, "bytes", &field));
	CHECK(field.is_array == 1 && field.count == 6 && field.size == 1);
	EXPECT(RSD_OK, rsd_field_read(&field, frame.packet, 32, bytes, sizeof(bytes)));
	CHECK(bytes[0] == 200 && bytes[5] == 205);
	EXPECT(RSD_ESIZE, rsd_field_read(&field, frame.packet, 32, bytes, 1));
	EXPECT(RSD_ESIZE, rsd_field_value(&field, frame.packet, 32, &value));
	EXPECT(RSD_OK, rsd_field_element(&field, 5, &element));
	EXPECT(RSD_OK, rsd_field_value(&element, frame.packet, 32, &value));
	CHECK(value == 205);
	EXPECT_TOLD(RSD_ENOENT, "6 element(s)", rsd_field_element(&field, 6, &element));
	EXPECT(RSD_ENOENT, rsd_field_element(&field, UINT32_MAX, &element));

	/* All of them, as one that prints would. */
	for (int n = 0; n < fields; n++) {
		int length = rsd_layout_field_at(layout, (uint32_t)n, name, sizeof(name), &field);

		CHECK(length > 0 && (size_t)length == strlen(name));
		EXPECT(1, rsd_layout_has_field(layout, name));
		for (uint32_t at = 0; at < field.count; at++) {
			EXPECT(RSD_OK, rsd_field_element(&field, at, &element));
			EXPECT(RSD_OK, rsd_field_value(&element, frame.packet, 32, &value));
			seen++;
		}
	}
	CHECK(seen == 6 + 2 + 6 + 1 + 1);
	EXPECT(RSD_ENOENT, rsd_layout_field_at(layout, (uint32_t)fields, name, sizeof(name), &field));
	/* A name is cut to its room, and its length told. */
	EXPECT(10, rsd_layout_name(layout, name, 5));
	CHECK(strcmp(name, "test") == 0);
	EXPECT(10, rsd_layout_name(layout, NULL, 0));
	EXPECT(RSD_EINVAL, rsd_layout_name(layout, NULL, 5));
}

/* A field that was written over reads nothing but what is in front of the packet. */
static void broken_fields(rsd_layout *layout)
{
	struct rsd_field good, bad;
	uint64_t value;
	unsigned char *byte = (unsigned char *)&bad;

	EXPECT(RSD_OK, rsd_layout_field(layout, "number", &good));
	memset(&frame, 0x5a, sizeof(frame));
	for (size_t at = 0; at < sizeof(bad); at++) {
		for (int change = 1; change < 256; change++) {
			bad = good;
			byte[at] ^= (unsigned char)change;
			bad.btf_id = 0x5a5a5a5a;
			(void)rsd_field_read(&bad, frame.packet, sizeof(frame.front), &value, sizeof(value));
			(void)rsd_field_value(&bad, frame.packet, sizeof(frame.front), &value);
			(void)rsd_field_element(&bad, 0, &bad);
		}
	}
	bad = good;
	bad.offset = bad.struct_size;
	EXPECT(RSD_EINVAL, rsd_field_read(&bad, frame.packet, 256, &value, sizeof(value)));
	bad = good;
	bad.struct_size = 253;
	EXPECT(RSD_EINVAL, rsd_field_read(&bad, frame.packet, 256, &value, sizeof(value)));
	bad = good;
	bad.count = 65535;
	bad.size = 65535;
	EXPECT(RSD_EINVAL, rsd_field_read(&bad, frame.packet, 256, &value, sizeof(value)));
}

static void sources(const char *object, int with_kernel)
{
	static char bytes[1 << 20];
	FILE *file = fopen(object, "rb");
	size_t size;
	rsd_btf *btf;
	rsd_layout *layout;

	CHECK(file != NULL);
	size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	EXPECT(RSD_OK, rsd_btf_open_memory(bytes, size, &btf));
	EXPECT(RSD_OK, rsd_layout_open(btf, "test_mark", &layout));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	EXPECT_TOLD(RSD_ENOENT, "no_such", rsd_layout_open(btf, "no_such", &layout));
	EXPECT_TOLD(RSD_EBTF, "btf_id", rsd_layout_open(btf, "test_step", &layout));
	EXPECT(RSD_OK, rsd_btf_close(btf));

	/* What is cut off is an error and not a crash. */
	for (size_t len = 0; len < size; len += 97)
		if (rsd_btf_open_memory(bytes, len, &btf) == RSD_OK)
			EXPECT(RSD_OK, rsd_btf_close(btf));
	EXPECT(RSD_EBTF, rsd_btf_open_memory("no BTF", 6, &btf));
	EXPECT(RSD_ENOENT, rsd_btf_open_file("/no/such/file", &btf));
	EXPECT(RSD_EBTF, rsd_btf_open_file("/dev/null", &btf));

	EXPECT(RSD_OK, rsd_btf_open_ringside(&btf));
	EXPECT(RSD_OK, rsd_layout_open(btf, "ringside_rx", &layout));
	EXPECT(1, rsd_layout_has_field(layout, "rx_ktime"));
	EXPECT(RSD_OK, rsd_layout_close(layout));
	EXPECT(RSD_OK, rsd_btf_close(btf));

	/* Where the kernel has its own. */
	if (with_kernel && rsd_btf_open_kernel(NULL, &btf) == RSD_OK) {
		EXPECT(RSD_EBTF, rsd_layout_open(btf, "sk_buff", &layout));
		EXPECT(RSD_OK, rsd_btf_close(btf));
		EXPECT(RSD_ENOENT, rsd_btf_open_kernel("no_such_module", &btf));
	}
}

int main(int argc, char **argv)
{
	rsd_btf *btf;
	rsd_layout *time, *whole;

	CHECK(argc >= 2);
	EXPECT(RSD_OK, rsd_btf_open_file(argv[1], &btf));
	EXPECT(RSD_OK, rsd_layout_open(btf, "test_time", &time));
	EXPECT(RSD_OK, rsd_layout_open(btf, "test_whole", &whole));
	EXPECT(RSD_OK, rsd_btf_close(btf));
	typed(time);
	misaligned(time);
	arrays_and_signs(whole);
	broken_fields(time);
	EXPECT(RSD_OK, rsd_layout_close(time));
	EXPECT(RSD_OK, rsd_layout_close(whole));
	sources(argv[1], argc == 2);
	puts("hints: ok");
	return 0;
}

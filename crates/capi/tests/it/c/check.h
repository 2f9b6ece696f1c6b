/* What the C tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <ringside/ringside.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program when something is not so. */
#define CHECK(condition)                                                                       \
	do {                                                                                   \
		if (!(condition)) {                                                            \
			fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__,      \
				__LINE__, #condition, rsd_last_error());                       \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

/* Ends the program when a call returns something else. */
#define EXPECT(wanted, call)                                                                   \
	do {                                                                                   \
		int expect_wanted = (wanted), expect_got = (call);                             \
		if (expect_got != expect_wanted) {                                             \
			fprintf(stderr, "%s:%d: %s is %d (%s), not %d (last error: %s)\n",     \
				__FILE__, __LINE__, #call, expect_got,                         \
				rsd_strerror(expect_got), expect_wanted, rsd_last_error());    \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

/* As EXPECT(), and the text of the error says what it should. */
#define EXPECT_TOLD(wanted, text, call)                                                        \
	do {                                                                                   \
		EXPECT(wanted, call);                                                          \
		CHECK(strstr(rsd_last_error(), text) != NULL);                                 \
	} while (0)

/* A handle that was never given out. */
#define MADE_UP(type) ((type *)(uintptr_t)0x12345678)

#endif

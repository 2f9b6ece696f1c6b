/* For LD_PRELOAD: what a program writes into files whose path begins with RINGSIDE_RECORD_OF, and when it waits until that, or what is in
 * their folder, is on the disk, goes into the file RINGSIDE_RECORD, in order:
 *
 *   what (1 byte: 'w' written, 't' cut or grown, 's' synced, 'd' deleted), length of the path (1 byte), offset or new length (8 bytes),
 *   length of the data (4 bytes), all little-endian; the path behind RINGSIDE_RECORD_OF, or "/" for the folder; the data
 *
 * A sync is there before its caller goes on, and a write before anybody can wait for it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *of;
static int into = -1;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("RINGSIDE_RECORD");
	of = getenv("RINGSIDE_RECORD_OF");
	if (path && of)
		into = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *bytes, size_t length)
{
	const char *at = bytes;
	while (length) {
		ssize_t done = syscall(SYS_write, into, at, length);
		if (done <= 0)
			abort();
		at += done;
		length -= done;
	}
}

static void record(char what, const char *path, uint64_t offset, const void *data, uint32_t length)
{
	unsigned char head[14];
	size_t prefix = strlen(of), name;
	if (strncmp(path, of, prefix))
		return;
	path += prefix;
	name = strlen(path);
	if (name > 255)
		abort();
	head[0] = what;
	head[1] = name;
	memcpy(head + 2, &offset, 8);
	memcpy(head + 10, &length, 4);
	put(head, sizeof(head));
	put(path, name);
	put(data, length);
}

/* The path of an open file; false if it is none that is recorded. */
static int path_of(int file, char *path, size_t room)
{
	char link[40];
	ssize_t length;
	if (into < 0)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
	path[0] = 0;
	length = readlink(link, path, room - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return !strncmp(path, of, strlen(of));
}

static ssize_t written(int file, const void *data, size_t length, off_t offset)
{
	char path[4096];
	ssize_t done;
	if (!path_of(file, path, sizeof(path)))
		return syscall(SYS_pwrite64, file, data, length, offset);
	pthread_mutex_lock(&turn);
	done = syscall(SYS_pwrite64, file, data, length, offset);
	if (done > 0)
		record('w', path, offset, data, done);
	pthread_mutex_unlock(&turn);
	return done;
}

ssize_t pwrite(int file, const void *data, size_t length, off_t offset)
{
	return written(file, data, length, offset);
}

ssize_t pwrite64(int file, const void *data, size_t length, off_t offset)
{
	return written(file, data, length, offset);
}

ssize_t write(int file, const void *data, size_t length)
{
	char path[4096];
	off_t offset;
	ssize_t done;
	if (!path_of(file, path, sizeof(path)))
		return syscall(SYS_write, file, data, length);
	pthread_mutex_lock(&turn);
	offset = lseek(file, 0, SEEK_CUR);
	done = syscall(SYS_write, file, data, length);
	if (done > 0)
		record('w', path, offset, data, done);
	pthread_mutex_unlock(&turn);
	return done;
}

static int cut(int file, off_t length)
{
	char path[4096];
	int result;
	if (!path_of(file, path, sizeof(path)))
		return syscall(SYS_ftruncate, file, length);
	pthread_mutex_lock(&turn);
	result = syscall(SYS_ftruncate, file, length);
	if (!result)
		record('t', path, length, "", 0);
	pthread_mutex_unlock(&turn);
	return result;
}

int ftruncate(int file, off_t length)
{
	return cut(file, length);
}

int ftruncate64(int file, off_t length)
{
	return cut(file, length);
}

static int synced(int file, long call)
{
	char path[4096];
	int is_ours = path_of(file, path, sizeof(path)), result;
	/* path_of() has filled it in, whatever it is. */
	size_t length = into < 0 ? 0 : strlen(path);
	int is_folder = !is_ours && length && !strncmp(of, path, length) && of[length] == '/';
	if (!is_ours && !is_folder)
		return syscall(call, file);
	pthread_mutex_lock(&turn);
	result = syscall(call, file);
	if (is_folder) {
		strcpy(path, of);
		strcat(path, "/");
	}
	if (!result)
		record('s', path, 0, "", 0);
	pthread_mutex_unlock(&turn);
	return result;
}

int fsync(int file)
{
	return synced(file, SYS_fsync);
}

int fdatasync(int file)
{
	return synced(file, SYS_fdatasync);
}

int unlink(const char *path)
{
	int result = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	if (!result && into >= 0) {
		pthread_mutex_lock(&turn);
		record('d', path, 0, "", 0);
		pthread_mutex_unlock(&turn);
	}
	return result;
}

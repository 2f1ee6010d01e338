/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mkfs.cryptfs: makes a LUKS2 volume with an ext4 file system, without root and without a loop
 * device.
 *
 * The order keeps a target that cannot be used as it was: the target is claimed and looked at,
 * mke2fs has its say on a temporary file, the passphrase is asked for, and only then the header
 * and after it the file system are written. A file that we made is removed when anything fails or
 * a signal ends us; a target that was there is named in the message once it has been written to.
 *
 * The LUKS sector is 4096 bytes where the size allows it, and never larger than the ext4 block:
 * when mke2fs is given -b, the sector follows it, unless --sector-size says what it must be.
 *
 * Threads: none of its own (argon2 has some while it runs).
 */
#include "mkfs.h"
#include "cmd.h"
#include "key_source.h"
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MKFS_EXT4_LABEL_BYTES = 16,
	MKFS_HEADER_FILE_BYTES = 16 << 20,
};

struct mkfs {
	const char *target_path, *header_path, *key_file;
	uint64_t size_bytes; /* 0: the target is there */
	bool force, quiet;
	struct luks_format_options luks;
	struct mkfs_ext4_options ext4;
	struct mkfs_target target, header;
	bool written; /* something has been written to the target */
};

static const char usage[] =
	"usage: mkfs.cryptfs [OPTIONS] TARGET [SIZE] [-- MKE2FS-OPTIONS]\n"
	"Makes a LUKS2 volume with an ext4 file system on TARGET, a block device or a file.\n"
	"With SIZE (10G; K, M, G, T are powers of 1024) TARGET is a new file.\n"
	"\n"
	"  -d, --key-file FILE           take the passphrase from FILE ('-': standard input)\n"
	"      --label LABEL             of the LUKS2 header and of the file system\n"
	"      --force                   overwrite what TARGET holds\n"
	"  -q, --quiet                   say nothing but errors\n"
	"  -c, --cipher CIPHER           default aes-xts-plain64\n"
	"  -s, --key-size BITS           default 512 for XTS, 256 otherwise\n"
	"      --sector-size BYTES       512, 1024, 2048 or 4096 (default where the size allows)\n"
	"      --pbkdf TYPE              argon2id (default), argon2i or pbkdf2\n"
	"      --pbkdf-memory KIB        memory cost of argon2\n"
	"      --pbkdf-parallel NUMBER   threads of argon2\n"
	"      --pbkdf-force-iterations NUMBER\n"
	"  -i, --iter-time MS            time that unlocking shall take (default 2000)\n"
	"      --header FILE             write the LUKS2 header to FILE, not to TARGET\n"
	"  -h, --help, -V, --version\n"
	"\n"
	"What stands behind -- goes to mke2fs. No root is needed. Exit status 0 or 1.\n";

/* --- a created file goes when a signal ends us -------------------------------------------------
 */

static const char *volatile mkfs_created[2];

static void mkfs_on_signal(int signal_number)
{
	for (size_t i = 0; i < ARRAY_SIZE(mkfs_created); i++)
		if (mkfs_created[i] != NULL)
			(void)unlink(mkfs_created[i]);
	(void)signal(signal_number, SIG_DFL);
	(void)raise(signal_number);
}

static void mkfs_watch_signals(void)
{
	static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ};
	struct sigaction action = {.sa_handler = mkfs_on_signal, .sa_flags = SA_NODEFER};

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++) {
		struct sigaction old;

		if (sigaction(ending[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaction(ending[i], &action, NULL);
	}
}

/* --- command line ------------------------------------------------------------------------------
 */

/* 10G, 512M, 4KiB, 1TB (powers of 1000), as truncate(1) reads them; false when it is no size. */
static bool parse_size(const char *text, uint64_t *out)
{
	static const char letters[] = "KMGTP";
	char *end;
	unsigned long long value;
	const char *letter;
	uint64_t unit = 1024, size;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	size = value;
	if (errno != 0 || value == 0)
		return false;
	if (*end != '\0') {
		letter = strchr(letters, *end >= 'a' ? *end - 'a' + 'A' : *end);
		if (letter == NULL)
			return false;
		end++;
		if (strcmp(end, "B") == 0)
			unit = 1000;
		else if (*end != '\0' && strcmp(end, "iB") != 0)
			return false;
		for (const char *l = letters; l <= letter; l++)
			if (__builtin_mul_overflow(size, unit, &size))
				return false;
	}
	*out = size;
	return size <= INT64_MAX;
}

static enum err parse_number(const char *option, const char *text, uint32_t *out)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value == 0 ||
		value > UINT32_MAX)
		return err_set_detail(
			ERR_INVAL, "--%s: '%s' is not a number from 1 on", option, text);
	*out = (uint32_t)value;
	return OK;
}

enum mkfs_long {
	LONG_LABEL = 256,
	LONG_FORCE,
	LONG_SECTOR_SIZE,
	LONG_PBKDF,
	LONG_PBKDF_MEMORY,
	LONG_PBKDF_PARALLEL,
	LONG_PBKDF_FORCE_ITERATIONS,
	LONG_HEADER,
};
static const struct option mkfs_longs[] = {
	{"key-file", required_argument, NULL, 'd'},
	{"label", required_argument, NULL, LONG_LABEL},
	{"force", no_argument, NULL, LONG_FORCE},
	{"quiet", no_argument, NULL, 'q'},
	{"cipher", required_argument, NULL, 'c'},
	{"key-size", required_argument, NULL, 's'},
	{"sector-size", required_argument, NULL, LONG_SECTOR_SIZE},
	{"pbkdf", required_argument, NULL, LONG_PBKDF},
	{"pbkdf-memory", required_argument, NULL, LONG_PBKDF_MEMORY},
	{"pbkdf-parallel", required_argument, NULL, LONG_PBKDF_PARALLEL},
	{"pbkdf-force-iterations", required_argument, NULL, LONG_PBKDF_FORCE_ITERATIONS},
	{"iter-time", required_argument, NULL, 'i'},
	{"header", required_argument, NULL, LONG_HEADER},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

/* `word` is the argument that the option stood in. */
static enum err mkfs_option(struct mkfs *m, int option, const char *word)
{
	switch (option) {
	case 'd':
		m->key_file = optarg;
		return OK;
	case 'q':
		m->quiet = true;
		return OK;
	case 'c':
		m->luks.cipher = optarg;
		return OK;
	case 's':
		return parse_number("key-size", optarg, &m->luks.key_bits);
	case 'i':
		return parse_number("iter-time", optarg, &m->luks.iter_time_ms);
	case LONG_LABEL:
		m->luks.label = optarg;
		m->ext4.label = optarg;
		return OK;
	case LONG_FORCE:
		m->force = true;
		return OK;
	case LONG_SECTOR_SIZE:
		return parse_number("sector-size", optarg, &m->luks.sector_bytes);
	case LONG_PBKDF:
		m->luks.pbkdf = optarg;
		return OK;
	case LONG_PBKDF_MEMORY:
		return parse_number("pbkdf-memory", optarg, &m->luks.pbkdf_memory_kib);
	case LONG_PBKDF_PARALLEL:
		return parse_number("pbkdf-parallel", optarg, &m->luks.pbkdf_parallel);
	case LONG_PBKDF_FORCE_ITERATIONS:
		return parse_number(
			"pbkdf-force-iterations", optarg, &m->luks.pbkdf_force_iterations);
	case LONG_HEADER:
		m->header_path = optarg;
		m->luks.detached = true;
		return OK;
	case ':':
		return err_set_detail(ERR_INVAL, "option '%s' needs a value", word);
	default:
		return err_set_detail(ERR_INVAL, "unknown option '%s'; --help lists them", word);
	}
}

static enum err mkfs_check_options(const struct mkfs *m)
{
	if (m->ext4.label && strlen(m->ext4.label) > MKFS_EXT4_LABEL_BYTES)
		return err_set_detail(
			ERR_INVAL, "--label: ext4 takes at most %d bytes", MKFS_EXT4_LABEL_BYTES);
	if (m->luks.key_bits % 8 != 0)
		return err_set_detail(ERR_INVAL, "--key-size: it is a multiple of 8");
	return OK;
}

static enum err mkfs_operands(struct mkfs *m, int argc, char **argv)
{
	if (optind >= argc)
		return err_set_detail(ERR_INVAL, "no TARGET given; --help says more");
	m->target_path = argv[optind++];
	if (optind < argc && !parse_size(argv[optind++], &m->size_bytes))
		return err_set_detail(
			ERR_INVAL, "'%s' is not a size (10G, 512M)", argv[optind - 1]);
	if (optind < argc)
		return err_set_detail(
			ERR_INVAL, "'%s': one TARGET and one SIZE, no more", argv[optind]);
	return OK;
}

/* *done: the command has only printed something. */
static enum err mkfs_parse(struct mkfs *m, int argc, char **argv, bool *done)
{
	int own = 1, option;
	enum err e = OK;

	while (own < argc && strcmp(argv[own], "--") != 0)
		own++;
	optind = 0;
	opterr = 0; /* the one line is ours */
	while (e == OK &&
		(option = getopt_long(own, argv, ":d:qc:s:i:hV", mkfs_longs, NULL)) != -1) {
		if (option == 'h' || option == 'V') {
			if (option == 'h')
				fputs(usage, stdout);
			else
				printf("mkfs.cryptfs %s\n", CRYPTFS_VERSION);
			*done = true;
			return OK;
		}
		e = mkfs_option(m, option, argv[optind - 1]);
	}
	if (e == OK)
		e = mkfs_operands(m, own, argv);
	if (e == OK)
		e = mkfs_check_options(m);
	/* "--" takes the place of argv[0]. */
	if (e == OK && own < argc)
		e = mkfs_ext4_parse(argc - own, argv + own, &m->ext4);
	return e;
}

/* --- the work ----------------------------------------------------------------------------------
 */

static enum err mkfs_open(struct mkfs *m)
{
	struct stat st;
	uint64_t header_bytes = 0;
	enum err e = mkfs_target_open(m->target_path, m->size_bytes, m->force, &m->target);

	if (e != OK)
		return e;
	if (m->target.created)
		mkfs_created[0] = m->target_path;
	m->luks.data_size_bytes = m->target.dev->size_bytes / SECTOR_BYTES * SECTOR_BYTES;
	if (m->header_path == NULL)
		return OK;
	if (stat(m->header_path, &st) != 0 && errno == ENOENT)
		header_bytes = MKFS_HEADER_FILE_BYTES;
	e = mkfs_target_open(m->header_path, header_bytes, m->force, &m->header);
	if (e != OK) {
		char why[256];

		snprintf(why, sizeof(why), "%s", cmd_error_text(e));
		return err_set_detail(e, "header %s: %s", m->header_path, why);
	}
	if (m->header.created)
		mkfs_created[1] = m->header_path;
	m->luks.header_size_bytes = m->header.dev->size_bytes;
	return OK;
}

/* A folder on disk for mke2fs's temporary file: the target's own, or one for large things. */
static void mkfs_beside(const struct mkfs *m, char out[512])
{
	const char *slash = strrchr(m->target_path, '/');
	const char *temporary = getenv("TMPDIR");

	if (m->target.dev->kind == DEV_BLOCK)
		snprintf(out, 512, "%s", temporary && *temporary ? temporary : "/var/tmp");
	else if (slash == NULL)
		snprintf(out, 512, ".");
	else
		snprintf(out, 512, "%.*s", (int)MAX(slash - m->target_path, 1), m->target_path);
}

static enum err mkfs_passphrase(const struct mkfs *m, struct secret *out)
{
	enum err e;

	if (m->key_file && !(strcmp(m->key_file, "-") == 0 && isatty(STDIN_FILENO)))
		e = key_source_read_file(m->key_file, 0, 0, out);
	else
		e = key_source_ask_new(m->target_path, out);
	if (e == OK && out->len == 0)
		e = err_set_detail(ERR_KEY_EMPTY, "an empty passphrase protects nothing");
	return e;
}

/* The file system goes through the same doors as a mount does. */
static enum err mkfs_fill(struct mkfs *m, const struct secret *key, int fd)
{
	struct luks *l = NULL;
	struct ioq *q = NULL;
	struct volume *v = NULL;
	enum err e = luks_load(m->target.dev, m->header.dev, &l);

	if (e == OK)
		e = ioq_create(m->target.dev, &q);
	if (e == OK)
		e = luks_volume(l, key, q, &v);
	if (e == OK)
		e = mkfs_ext4_copy(fd, v, !m->quiet && isatty(STDERR_FILENO));
	if (v)
		volume_destroy(v);
	if (q)
		ioq_destroy(q);
	luks_close(l);
	return e;
}

static enum err mkfs_make(struct mkfs *m)
{
	struct secret passphrase = {0}, key = {0};
	struct luks_layout layout;
	char beside[512];
	int fd = -1;
	enum err e = mkfs_open(m);

	if (e == OK && m->luks.sector_bytes == 0 && m->ext4.block_bytes != 0 &&
		m->ext4.block_bytes < CIPHER_SECTOR_BYTES_MAX)
		m->luks.sector_bytes = m->ext4.block_bytes;
	if (e == OK)
		e = luks_format_layout(&m->luks, &layout);
	if (e == OK) {
		mkfs_beside(m, beside);
		e = mkfs_ext4_make(&m->ext4, layout.size_bytes, layout.sector_bytes, beside, &fd);
	}
	if (e == OK)
		e = mkfs_passphrase(m, &passphrase);
	if (e == OK && m->force) {
		m->written = true;
		e = mkfs_target_wipe(&m->target);
		if (e == OK && m->header_path)
			e = mkfs_target_wipe(&m->header);
	}
	if (e == OK) {
		m->written = true;
		e = luks_format(m->header_path ? m->header.dev : m->target.dev, &m->luks,
			&passphrase, &key);
	}
	if (e == OK)
		e = mkfs_fill(m, &key, fd);
	secret_free(&passphrase);
	secret_free(&key);
	if (fd >= 0)
		close(fd);
	return e;
}

int cmd_mkfs(int argc, char **argv)
{
	struct mkfs m = {.size_bytes = 0};
	bool done = false, was_there;
	enum err e;

	log_open_stderr("mkfs.cryptfs", LOG_WARN_);
	cmd_ensure_path();
	e = mkfs_parse(&m, argc, argv, &done);
	if (done)
		return 0;
	if (e != OK) {
		log_error("%s", cmd_error_text(e));
		return 1;
	}
	mkfs_watch_signals();
	e = cipher_library_init();
	if (e == OK)
		e = mkfs_make(&m);
	was_there = !m.target.created;
	/* From here on the files are whole, or removed here. */
	mkfs_created[0] = NULL;
	mkfs_created[1] = NULL;
	mkfs_target_close(&m.target, e == OK);
	mkfs_target_close(&m.header, e == OK);
	if (e != OK) {
		log_error("%s: %s%s", m.target_path, cmd_error_text(e),
			m.written && was_there
				? "; what it held may be lost, and no volume is on it"
				: "");
		return 1;
	}
	if (!m.quiet)
		printf("%s: LUKS2 with ext4; mount it with: mount.cryptfs %s DIR%s%s\n",
			m.target_path, m.target_path, m.header_path ? " -o header=" : "",
			m.header_path ? m.header_path : "");
	return 0;
}

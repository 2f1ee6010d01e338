/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mount.cryptfs's options, one table.
 *
 * Every option either does what it says, is refused by name, or stands in the table with the reason
 * why it has nothing to do: mount(8) keeps it for itself, it asks for what we do anyway, or it is
 * about writing and the mount is read-only, where the kernel's own ext4 gives it no effect either.
 * Unknown ones are an error unless mount(8) says -s. The last of two that contradict counts.
 *
 * Threads: none.
 */
#include "mount_options.h"
#include <getopt.h>
#include <stdlib.h>
#include <unistd.h>

enum option_kind {
	OPT_TRUE,   /* sets a bool */
	OPT_FALSE,  /* clears it */
	OPT_STRING, /* NAME=TEXT */
	OPT_U64,    /* NAME=NUMBER */
	OPT_U32,
	OPT_I32,
	OPT_ID,        /* uid=, gid=: a u32 and the bool before it in the row */
	OPT_PAGES,     /* NAME=SIZE or N% */
	OPT_CONTEXT,   /* handed to the kernel as it stands */
	OPT_CHECKED,   /* NAME=NUMBER, of no effect on a read-only mount */
	OPT_ERRORS,    /* errors=, of no effect on a read-only mount */
	OPT_NO_WRITES, /* of no effect on a read-only mount */
	OPT_DONE,      /* what we do anyway */
	OPT_MOUNT8,    /* mount(8)'s own, with or without a value */
	OPT_REFUSED,   /* the row's text says why */
};

struct option_row {
	const char *name;
	enum option_kind kind;
	size_t offset; /* of the field in struct mount_options */
	size_t given;  /* of the bool that says it was given; 0: none */
	const char *text;
};
#define FIELD(f) offsetof(struct mount_options, f)

static const struct option_row rows[] = {
	{"key-file", OPT_STRING, FIELD(unlock.key_file), 0, NULL},
	{"keyfile-offset", OPT_U64, FIELD(unlock.keyfile_offset_bytes), 0, NULL},
	{"keyfile-size", OPT_U64, FIELD(unlock.keyfile_size_bytes), 0, NULL},
	{"key-slot", OPT_I32, FIELD(unlock.key_slot), 0, NULL},
	{"header", OPT_STRING, FIELD(unlock.header), 0, NULL},
	{"tries", OPT_U32, FIELD(unlock.tries), 0, NULL},
	{"timeout", OPT_U32, FIELD(unlock.timeout_seconds), 0, NULL},
	{"token-id", OPT_I32, FIELD(unlock.token_id), FIELD(unlock.use_token), NULL},
	{"token-type", OPT_STRING, FIELD(unlock.token_type), FIELD(unlock.use_token), NULL},
	{"token-timeout", OPT_U32, FIELD(unlock.token_timeout_seconds), 0, NULL},
	{"ro", OPT_TRUE, FIELD(readonly), 0, NULL},
	{"readonly", OPT_TRUE, FIELD(readonly), 0, NULL},
	{"read-only", OPT_TRUE, FIELD(readonly), 0, NULL},
	{"rw", OPT_FALSE, FIELD(readonly), 0, NULL}, /* mounted read-only, and said so */
	{"noload", OPT_TRUE, FIELD(noload), 0, NULL},
	{"norecovery", OPT_TRUE, FIELD(noload), 0, NULL},
	{"foreground", OPT_TRUE, FIELD(foreground), 0, NULL},
	{"debug", OPT_TRUE, FIELD(debug), 0, NULL},
	{"allow_other", OPT_TRUE, FIELD(allow_other), 0, NULL},
	{"uid", OPT_ID, FIELD(uid), FIELD(override_uid), NULL},
	{"gid", OPT_ID, FIELD(gid), FIELD(override_gid), NULL},
	{"pages", OPT_PAGES, FIELD(pages_bytes), 0, NULL},
	{"noexec", OPT_TRUE, FIELD(noexec), 0, NULL},
	{"exec", OPT_FALSE, FIELD(noexec), 0, NULL},
	{"nosuid", OPT_TRUE, FIELD(nosuid), 0, NULL},
	{"suid", OPT_FALSE, FIELD(nosuid), 0, NULL},
	{"nodev", OPT_TRUE, FIELD(nodev), 0, NULL},
	{"dev", OPT_FALSE, FIELD(nodev), 0, NULL},
	{"nosymfollow", OPT_TRUE, FIELD(nosymfollow), 0, NULL},
	{"symfollow", OPT_FALSE, FIELD(nosymfollow), 0, NULL},
	{"context", OPT_CONTEXT, 0, 0, NULL},
	{"fscontext", OPT_CONTEXT, 0, 0, NULL},
	{"defcontext", OPT_CONTEXT, 0, 0, NULL},
	{"rootcontext", OPT_CONTEXT, 0, 0, NULL},

	{"discard", OPT_NO_WRITES, 0, 0, NULL},
	{"nodiscard", OPT_NO_WRITES, 0, 0, NULL},
	{"allow-discards", OPT_NO_WRITES, 0, 0, NULL},
	{"sync", OPT_NO_WRITES, 0, 0, NULL},
	{"dirsync", OPT_NO_WRITES, 0, 0, NULL},
	{"atime", OPT_NO_WRITES, 0, 0, NULL},
	{"noatime", OPT_NO_WRITES, 0, 0, NULL},
	{"diratime", OPT_NO_WRITES, 0, 0, NULL},
	{"nodiratime", OPT_NO_WRITES, 0, 0, NULL},
	{"relatime", OPT_NO_WRITES, 0, 0, NULL},
	{"norelatime", OPT_NO_WRITES, 0, 0, NULL},
	{"strictatime", OPT_NO_WRITES, 0, 0, NULL},
	{"nostrictatime", OPT_NO_WRITES, 0, 0, NULL},
	{"lazytime", OPT_NO_WRITES, 0, 0, NULL},
	{"nolazytime", OPT_NO_WRITES, 0, 0, NULL},
	{"commit", OPT_CHECKED, 0, 0, NULL},
	{"errors", OPT_ERRORS, 0, 0, NULL},

	{"async", OPT_DONE, 0, 0, NULL},
	{"acl", OPT_DONE, 0, 0, NULL},
	{"user_xattr", OPT_DONE, 0, 0, NULL},
	{"barrier", OPT_DONE, 0, 0, NULL},
	{"barrier=1", OPT_DONE, 0, 0, NULL},
	{"data=ordered", OPT_DONE, 0, 0, NULL},
	{"silent", OPT_DONE, 0, 0, NULL},
	{"loud", OPT_DONE, 0, 0, NULL},

	{"defaults", OPT_MOUNT8, 0, 0, NULL},
	{"auto", OPT_MOUNT8, 0, 0, NULL},
	{"noauto", OPT_MOUNT8, 0, 0, NULL},
	{"user", OPT_MOUNT8, 0, 0, NULL},
	{"nouser", OPT_MOUNT8, 0, 0, NULL},
	{"users", OPT_MOUNT8, 0, 0, NULL},
	{"nousers", OPT_MOUNT8, 0, 0, NULL},
	{"owner", OPT_MOUNT8, 0, 0, NULL},
	{"noowner", OPT_MOUNT8, 0, 0, NULL},
	{"group", OPT_MOUNT8, 0, 0, NULL},
	{"nogroup", OPT_MOUNT8, 0, 0, NULL},
	{"nofail", OPT_MOUNT8, 0, 0, NULL},
	{"_netdev", OPT_MOUNT8, 0, 0, NULL},
	{"comment", OPT_MOUNT8, 0, 0, NULL},

	{"barrier=0", OPT_REFUSED, 0, 0, "flushes are never skipped"},
	{"nobarrier", OPT_REFUSED, 0, 0, "flushes are never skipped"},
	{"data", OPT_REFUSED, 0, 0, "only data=ordered is supported"},
	{"noacl", OPT_REFUSED, 0, 0, "access control lists are always in force"},
	{"nouser_xattr", OPT_REFUSED, 0, 0, "extended attributes are always there"},
	{"idle", OPT_REFUSED, 0, 0, "unmounting an idle file system is not supported"},
	{"remount", OPT_REFUSED, 0, 0,
		"remounting is not supported; unmount and mount with the new options"},
};

void mount_options_init(struct mount_options *o)
{
	memset(o, 0, sizeof(*o));
	unlock_options_init(&o->unlock);
}

void mount_options_free(struct mount_options *o)
{
	free(o->source);
	free(o->dir);
	unlock_options_free(&o->unlock);
	for (size_t i = 0; i < MOUNT_CONTEXTS_MAX; i++)
		free(o->contexts[i]);
	mount_options_init(o);
}

/* --- values ---------------------------------------------------------------------------------- */

static enum err parse_number(const char *name, const char *text, uint64_t max, uint64_t *out)
{
	uint64_t value = 0;

	if (!*text)
		return err_set_detail(ERR_INVAL, "option '%s' needs a number", name);
	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '9' || __builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*p - '0'), &value) || value > max)
			return err_set_detail(ERR_INVAL,
				"option '%s': '%s' is not a number in its range", name, text);
	}
	*out = value;
	return OK;
}

enum { PAGES_BYTES_MIN = 1 << 20 };

/* SIZE with K, M, G or T, or a percentage of the machine's memory. */
static enum err parse_pages(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	size_t len = strlen(text);
	char digits[24];
	const char *unit = len ? strchr(units, text[len - 1] & ~0x20) : NULL;
	bool percent = len && text[len - 1] == '%';
	uint64_t value, memory;
	enum err e;

	if (percent || (unit && *unit))
		len--;
	if (len >= sizeof(digits))
		return err_set_detail(ERR_INVAL, "option 'pages': '%s' is too large", text);
	memcpy(digits, text, len);
	digits[len] = 0;
	e = parse_number("pages", digits, percent ? 90 : UINT64_MAX, &value);
	if (e)
		return e;
	if (percent) {
		memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
		value = memory / 100 * value;
	} else if (unit && *unit) {
		unsigned shift = 10 * (unsigned)(unit - units + 1);

		if (value > UINT64_MAX >> shift)
			return err_set_detail(ERR_INVAL, "option 'pages': '%s' is too large", text);
		value <<= shift;
	}
	if (value < PAGES_BYTES_MIN)
		return err_set_detail(ERR_INVAL, "option 'pages': at least 1M is needed");
	*out = value;
	return OK;
}

static enum err set_string(char **field, const char *name, const char *text)
{
	char *copy;

	if (!*text)
		return err_set_detail(ERR_INVAL, "option '%s' needs a value", name);
	copy = strdup(text);
	if (!copy)
		return ERR_NOMEM;
	free(*field);
	*field = copy;
	return OK;
}

/* SELinux contexts keep their quotes: the kernel's own parser wants them around commas. */
static enum err add_context(struct mount_options *o, const char *name, const char *raw)
{
	size_t i = 0, len = strlen(name);

	/* The last of two of the same name counts. */
	while (i < MOUNT_CONTEXTS_MAX && o->contexts[i] &&
		(strncmp(o->contexts[i], name, len) != 0 || o->contexts[i][len] != '='))
		i++;
	ensure(i < MOUNT_CONTEXTS_MAX); /* there are as many names as places */
	return set_string(&o->contexts[i], name, raw);
}

static enum err set_number(void *field, const struct option_row *row, const char *value)
{
	uint64_t number;
	uint64_t max = row->kind == OPT_U64   ? UINT64_MAX
		       : row->kind == OPT_I32 ? INT32_MAX
					      : UINT32_MAX - 1;
	enum err e = parse_number(row->name, value, max, &number);

	if (e)
		return e;
	if (row->kind == OPT_U64)
		*(uint64_t *)field = number;
	else if (row->kind == OPT_I32)
		*(int32_t *)field = (int32_t)number;
	else if (row->kind != OPT_CHECKED)
		*(uint32_t *)field = (uint32_t)number;
	return OK;
}

static enum err check_errors(const char *value)
{
	static const char *const known[] = {"continue", "remount-ro", "panic"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i], value) == 0)
			return OK;
	return err_set_detail(
		ERR_INVAL, "option 'errors': '%s' is not continue, remount-ro or panic", value);
}

/* --- one option ------------------------------------------------------------------------------ */

static const struct option_row *find_row(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

/* value is NULL when the option has no '='; raw is the option as it was written. */
static enum err apply(
	struct mount_options *o, const struct option_row *row, const char *value, const char *raw)
{
	void *field = (char *)o + row->offset;
	enum err e = OK;

	switch (row->kind) {
	case OPT_REFUSED:
		return err_set_detail(ERR_INVAL, "option '%s' is refused: %s", raw, row->text);
	case OPT_MOUNT8:
		return OK;
	case OPT_TRUE:
	case OPT_FALSE:
	case OPT_NO_WRITES:
	case OPT_DONE:
		if (value && strcmp(row->name, raw) != 0)
			return err_set_detail(ERR_INVAL, "option '%s' takes no value", row->name);
		if (row->kind == OPT_TRUE || row->kind == OPT_FALSE)
			*(bool *)field = row->kind == OPT_TRUE;
		return OK;
	default:
		break;
	}
	if (!value)
		return err_set_detail(ERR_INVAL, "option '%s' needs a value", row->name);
	if (row->kind == OPT_STRING)
		e = set_string(field, row->name, value);
	else if (row->kind == OPT_PAGES)
		e = parse_pages(value, field);
	else if (row->kind == OPT_CONTEXT)
		e = add_context(o, row->name, raw);
	else if (row->kind == OPT_ERRORS)
		e = check_errors(value);
	else
		e = set_number(field, row, value);
	if (!e && row->given)
		*(bool *)((char *)o + row->given) = true;
	return e;
}

/* `text` is one option, with the quotes of its value; it is changed. */
static enum err parse_one(struct mount_options *o, char *text)
{
	const struct option_row *row = find_row(text);
	char *raw = strdup(text), *equals = strchr(text, '=');
	char *value = equals ? equals + 1 : NULL;
	size_t len;
	enum err e = OK;

	if (!raw)
		return ERR_NOMEM;
	if (strncmp(text, "x-", 2) == 0 || strncmp(text, "X-", 2) == 0)
		goto out; /* mount(8)'s and systemd's */
	if (equals) {
		*equals = 0;
		len = strlen(value);
		if (len >= 2 && value[0] == '"' && value[len - 1] == '"') {
			value[len - 1] = 0;
			value++;
		}
	}
	if (!row)
		row = find_row(text);
	if (row)
		e = apply(o, row, value, raw);
	else if (!o->sloppy)
		e = err_set_detail(ERR_INVAL, "unknown option '%s'", raw);
out:
	free(raw);
	return e;
}

enum err mount_options_parse_list(struct mount_options *o, const char *list)
{
	char *copy = strdup(list), *start = copy;
	enum err e = copy ? OK : ERR_NOMEM;

	while (!e && *start) {
		bool quoted = false, more;
		char *end = start;

		for (; *end && (quoted || *end != ','); end++)
			if (*end == '"')
				quoted = !quoted;
		more = *end;
		*end = 0;
		if (*start)
			e = parse_one(o, start);
		start = end + more;
	}
	free(copy);
	return e;
}

/* --- the command line ------------------------------------------------------------------------ */

static enum err check_type(const char *type)
{
	static const char *const known[] = {
		"cryptfs", "fuse.cryptfs", "fuseblk.cryptfs", "crypto_LUKS"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i], type) == 0)
			return OK;
	return err_set_detail(ERR_INVAL, "file system type '%s' is not cryptfs", type);
}

static enum err parse_operands(struct mount_options *o, int count, char **operand)
{
	if (count < 2)
		return err_set_detail(ERR_INVAL, "%s",
			count ? "no mount point given" : "no source and no mount point given");
	if (count > 2)
		return err_set_detail(ERR_INVAL, "unexpected argument '%s'", operand[2]);
	if (!*operand[0] || !*operand[1])
		return err_set_detail(ERR_INVAL, "source or mount point is empty");
	o->source = strdup(operand[0]);
	o->dir = strdup(operand[1]);
	return o->source && o->dir ? OK : ERR_NOMEM;
}

/* mount(8) gives -s anywhere, so it is looked for before the options are judged. */
static enum err parse_flags(struct mount_options *o, int argc, char **argv, bool judge)
{
	static const struct option longs[] = {
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0}};
	enum err e = OK;
	int c;

	optind = 0; /* start over, and permute: options may stand after operands */
	opterr = 0;
	while (!e && (c = getopt_long(argc, argv, ":sfnvhVo:t:", longs, NULL)) != -1) {
		if (c == 's')
			o->sloppy = true;
		else if (c == 'f')
			o->fake = true;
		else if (c == 'v')
			o->verbose = true;
		else if (c == 'h')
			o->help = true;
		else if (c == 'V')
			o->version = true;
		else if (c == 'o' && judge)
			e = mount_options_parse_list(o, optarg);
		else if (c == 't' && judge)
			e = check_type(optarg);
		else if (c == ':')
			e = err_set_detail(ERR_INVAL, "option -%c needs a value", optopt);
		else if (c == '?')
			e = optopt ? err_set_detail(ERR_INVAL, "unknown option -%c", optopt)
				   : err_set_detail(
					     ERR_INVAL, "unknown option '%s'", argv[optind - 1]);
		/* -n is about /etc/mtab, which nobody writes any more. */
	}
	return e;
}

enum err mount_options_parse(int argc, char **argv, struct mount_options *out)
{
	enum err e;

	mount_options_init(out);
	e = parse_flags(out, argc, argv, false);
	if (e || out->help || out->version)
		return e;
	e = parse_flags(out, argc, argv, true);
	if (!e)
		e = parse_operands(out, argc - optind, argv + optind);
	if (!e && out->unlock.key_slot >= 0 && out->unlock.use_token)
		e = err_set_detail(ERR_INVAL, "key-slot and a token exclude each other");
	if (out->debug)
		out->foreground = true;
	return e;
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cryptfs info SOURCE: what a volume is. The header's facts need no passphrase; with a key also
 * the file system's, and how mount.cryptfs would mount it and why.
 *
 * One JSON object is built and either printed as it is (--json) or as lines, so that both say the
 * same. Nothing is written to the source.
 *
 * Threads: none of its own.
 */
#include "cmd.h"
#include "ext4.h"
#include "source.h"
#include "stack.h"
#include <getopt.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { KEYSLOTS_MAX = 32 };

struct info_options {
	const char *source;
	bool json, unlock, help, version;
	struct unlock_options key;
};

static void print_help(void)
{
	fputs("usage: cryptfs info SOURCE [--json] [--key-file FILE | --unlock] [--header FILE]\n"
	      "\n"
	      "Shows the LUKS header of SOURCE (a device, a file, UUID=... or LABEL=...). With a "
	      "key\n"
	      "file, or --unlock, which asks for the passphrase, also the file system inside and "
	      "how\n"
	      "mount.cryptfs would mount it. Nothing is written.\n",
		stdout);
}

static enum err set_copy(char **field, const char *text)
{
	free(*field);
	*field = strdup(text);
	return *field ? OK : ERR_NOMEM;
}

static enum err parse(int argc, char **argv, struct info_options *o)
{
	static const struct option longs[] = {
		{"json", no_argument, NULL, 'j'},
		{"unlock", no_argument, NULL, 'u'},
		{"key-file", required_argument, NULL, 'd'},
		{"header", required_argument, NULL, 'H'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	enum err e = OK;
	int c;

	optind = 0;
	opterr = 0;
	while (!e && (c = getopt_long(argc, argv, ":jd:hV", longs, NULL)) != -1) {
		if (c == 'j')
			o->json = true;
		else if (c == 'u')
			o->unlock = true;
		else if (c == 'd')
			e = set_copy(&o->key.key_file, optarg);
		else if (c == 'H')
			e = set_copy(&o->key.header, optarg);
		else if (c == 'h')
			o->help = true;
		else if (c == 'V')
			o->version = true;
		else if (c == ':')
			e = err_set_detail(
				ERR_INVAL, "option '%s' needs a value", argv[optind - 1]);
		else
			e = err_set_detail(ERR_INVAL, "unknown option '%s'", argv[optind - 1]);
	}
	if (e || o->help || o->version)
		return e;
	if (argc - optind != 1)
		return err_set_detail(
			ERR_INVAL, "%s", argc == optind ? "no source given" : "one source only");
	o->source = argv[optind];
	return OK;
}

/* --- facts ----------------------------------------------------------------------------------- */

static void put_text(struct json_object *to, const char *key, const char *text)
{
	json_object_object_add(to, key, json_object_new_string(text));
}

static void put_number(struct json_object *to, const char *key, uint64_t number)
{
	json_object_object_add(to, key, json_object_new_uint64(number));
}

static void put_bool(struct json_object *to, const char *key, bool value)
{
	json_object_object_add(to, key, json_object_new_boolean(value));
}

static struct json_object *keyslot_facts(const struct luks_keyslot_info *k)
{
	struct json_object *to = json_object_new_object();

	put_number(to, "slot", (uint64_t)k->slot);
	put_text(to, "cipher", k->cipher);
	put_number(to, "key_bits", (uint64_t)k->key_bytes * 8);
	put_text(to, "kdf", k->kdf);
	put_text(to, "hash", k->hash);
	put_number(to, "iterations", k->iterations);
	if (k->memory_kib) {
		put_number(to, "memory_kib", k->memory_kib);
		put_number(to, "lanes", k->lanes);
	}
	put_text(to, "priority", k->preferred ? "prefer" : k->ignored ? "ignore" : "normal");
	put_bool(to, "unbound", k->unbound);
	return to;
}

/* The mount that mount.cryptfs would make, in its words. */
static void put_verdict(struct json_object *to, const char *mount, struct json_object *why)
{
	put_text(to, "mount", mount);
	json_object_object_add(to, "why", why);
}

/* A volume that is refused is a fact like another: it is shown, with the reason. */
static void put_refusal(struct json_object *to, enum err e)
{
	struct json_object *why = json_object_new_array();

	json_object_array_add(why, json_object_new_string(cmd_error_text(e)));
	put_verdict(to, "no", why);
	err_clear_detail();
}

static struct json_object *header_facts(const struct stack *s)
{
	const struct luks_info *i = &s->info;
	struct luks_keyslot_info slots[KEYSLOTS_MAX];
	struct json_object *to = json_object_new_object(), *list = json_object_new_array();
	size_t count = luks_keyslots(s->luks, slots, KEYSLOTS_MAX);
	enum err e;

	put_number(to, "version", (uint64_t)i->version);
	put_text(to, "uuid", i->uuid);
	put_text(to, "label", i->label);
	put_text(to, "cipher", i->cipher);
	put_number(to, "key_bits", (uint64_t)i->key_bytes * 8);
	put_number(to, "sector_bytes", i->sector_bytes);
	put_number(to, "offset_bytes", i->offset_bytes);
	put_number(to, "size_bytes", i->size_bytes);
	put_number(to, "iv_offset_sectors", i->iv_offset);
	put_bool(to, "detached_header", i->detached);
	for (size_t n = 0; n < count && n < KEYSLOTS_MAX; n++)
		json_object_array_add(list, keyslot_facts(&slots[n]));
	json_object_object_add(to, "keyslots", list);
	e = stack_check(s);
	if (e)
		put_refusal(to, e);
	return to;
}

static struct json_object *file_system_facts(const struct ext4_info *i)
{
	struct json_object *to = json_object_new_object(), *why = json_object_new_array();

	put_text(to, "label", i->label);
	put_text(to, "uuid", i->uuid);
	put_text(to, "features", i->features);
	put_number(to, "block_bytes", i->block_bytes);
	put_number(to, "inode_bytes", i->inode_bytes);
	put_number(to, "blocks", i->blocks);
	put_number(to, "inodes", i->inodes);
	put_bool(to, "clean", i->clean);
	put_bool(to, "needs_recovery", i->needs_recovery);
	if (i->needs_recovery) {
		put_number(to, "journal_transactions", i->replayed_transactions);
		put_number(to, "journal_blocks", i->replayed_blocks);
	}
	for (size_t n = 0; n < i->reason_count; n++)
		json_object_array_add(why, json_object_new_string(i->reasons[n]));
	put_bool(to, "writable", !i->must_be_readonly);
	if (!i->must_be_readonly)
		json_object_array_add(why, json_object_new_string("this version does not write"));
	put_verdict(to, "ro", why);
	return to;
}

static enum err add_file_system(struct json_object *to, struct stack *s)
{
	const struct pages_config pages_config = {0};
	struct ext4_options options = {.volume = s->volume};
	struct json_object *facts = NULL;
	struct pages *pages = NULL;
	struct ext4 *fs = NULL;
	struct ext4_info info;
	enum err e;

	e = pages_create(&pages_config, &pages);
	if (e)
		return e;
	options.pages = pages;
	e = ext4_mount(&options, &fs);
	if (e == OK) {
		ext4_info(fs, &info);
		facts = file_system_facts(&info);
		ext4_unmount(fs);
	} else if (e != ERR_NOMEM && e != ERR_IO) {
		facts = json_object_new_object();
		put_refusal(facts, e);
		e = OK;
	}
	pages_destroy(pages);
	if (facts)
		json_object_object_add(to, "file_system", facts);
	return e;
}

/* --- output ---------------------------------------------------------------------------------- */

/* Bytes that a terminal would act on come from the disk and do not get there. */
static void print_value(struct json_object *value)
{
	const char *text = json_object_get_string(value);

	for (const char *p = text ? text : ""; *p; p++)
		putchar((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
	putchar('\n');
}

static void print_keyslot(struct json_object *slot)
{
	struct json_object_iterator i = json_object_iter_begin(slot);
	struct json_object_iterator end = json_object_iter_end(slot);
	bool first = true;

	printf("  keyslot:");
	for (; !json_object_iter_equal(&i, &end); json_object_iter_next(&i), first = false)
		printf("%s %s %s", first ? "" : ",", json_object_iter_peek_name(&i),
			json_object_get_string(json_object_iter_peek_value(&i)));
	putchar('\n');
}

/* How the volume would be mounted, a line for each reason. */
static const char *verdict_words(struct json_object *section)
{
	struct json_object *mount, *writable;

	json_object_object_get_ex(section, "mount", &mount);
	if (strcmp(json_object_get_string(mount), "no") == 0)
		return "would not mount";
	json_object_object_get_ex(section, "writable", &writable);
	return json_object_get_boolean(writable) ? "would mount for reading"
						 : "would mount read-only";
}

static void print_section(struct json_object *section)
{
	struct json_object_iterator i = json_object_iter_begin(section);
	struct json_object_iterator end = json_object_iter_end(section);

	for (; !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
		const char *name = json_object_iter_peek_name(&i);
		struct json_object *value = json_object_iter_peek_value(&i);

		if (strcmp(name, "mount") == 0 || strcmp(name, "writable") == 0)
			continue; /* in the words of the verdict */
		if (!json_object_is_type(value, json_type_array)) {
			printf("  %s: ", name);
			print_value(value);
			continue;
		}
		for (size_t n = 0; n < json_object_array_length(value); n++) {
			struct json_object *entry = json_object_array_get_idx(value, n);

			if (json_object_is_type(entry, json_type_object)) {
				print_keyslot(entry);
			} else {
				printf("  %s: ", verdict_words(section));
				print_value(entry);
			}
		}
	}
}

static void print_facts(struct json_object *facts, bool json)
{
	struct json_object *section;

	if (json) {
		puts(json_object_to_json_string_ext(
			facts, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
		return;
	}
	if (json_object_object_get_ex(facts, "source", &section)) {
		printf("source: ");
		print_value(section);
	}
	if (json_object_object_get_ex(facts, "luks", &section)) {
		puts("LUKS header:");
		print_section(section);
	}
	if (!json_object_object_get_ex(facts, "file_system", &section)) {
		puts("file system: locked (--key-file FILE or --unlock shows it)");
		return;
	}
	puts("file system:");
	print_section(section);
}

static enum err gather(const struct info_options *o, struct json_object *facts)
{
	const struct dev_open_options open_options = {.readonly = true};
	struct stack s = {0};
	char *path = NULL;
	enum err e;

	prctl(PR_SET_DUMPABLE, 0);
	e = source_resolve(o->source, &path);
	/* No claim: a volume that is mounted may be asked what it is. */
	if (!e)
		e = dev_open(path, &open_options, &s.dev);
	if (!e)
		e = stack_load(&s, &o->key);
	if (!e) {
		put_text(facts, "source", o->source);
		json_object_object_add(facts, "luks", header_facts(&s));
		put_bool(facts, "unlocked", o->unlock || o->key.key_file);
	}
	if (!e && (o->unlock || o->key.key_file)) {
		e = stack_check(&s);
		if (!e)
			e = stack_unlock(&s, &o->key, o->source);
		if (!e)
			e = add_file_system(facts, &s);
	}
	stack_close(&s);
	free(path);
	return e;
}

int cmd_info(int argc, char **argv)
{
	struct info_options o = {0};
	struct json_object *facts = json_object_new_object();
	enum err e;

	log_open_stderr("cryptfs info", LOG_WARN_);
	cmd_ensure_path();
	unlock_options_init(&o.key);
	e = parse(argc, argv, &o);
	if (e) {
		log_error("%s", cmd_error_text(e));
	} else if (o.help) {
		print_help();
	} else if (o.version) {
		printf("cryptfs info %s\n", CRYPTFS_VERSION);
	} else {
		e = gather(&o, facts);
		if (e)
			log_error("%s: %s", o.source, cmd_error_text(e));
		else
			print_facts(facts, o.json);
	}
	json_object_put(facts);
	unlock_options_free(&o.key);
	return cmd_exit_cryptsetup(e);
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Picks the command: by the name the program was called by (mount.cryptfs is a link to it, as
 * mount(8) wants its helpers), or by the first argument of `cryptfs`.
 *
 * Threads: none.
 */
#include "cmd.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

struct command {
	const char *name; /* after `cryptfs` */
	int (*run)(int argc, char **argv);
	const char *help;
};

static const struct command commands[] = {
	{"mount", cmd_mount, "SOURCE DIR [-sfnv] [-o OPTIONS]   unlock a volume and mount it"},
	{"mkfs", cmd_mkfs, "[OPTIONS] TARGET [SIZE]            make an encrypted volume"},
	{"info", cmd_info, "SOURCE [OPTIONS]                   say what a volume is"},
};

/* The helpers' names: what mount(8), mkfs(8) and their kin look for. */
static const struct {
	const char *name, *command;
} links[] = {
	{"mount.cryptfs", "mount"},
	{"mount.fuse.cryptfs", "mount"},
	{"mount.fuseblk.cryptfs", "mount"},
	{"mkfs.cryptfs", "mkfs"},
};

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static void print_help(FILE *to)
{
	fprintf(to, "usage: cryptfs COMMAND ARGUMENTS\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(to, "  cryptfs %-6s %s\n", commands[i].name, commands[i].help);
	fprintf(to, "\n'cryptfs COMMAND --help' says more; --version gives the version.\n");
}

/*
 * A caller may have closed standard descriptors. The next file that is opened would take their
 * numbers, and messages would go into a volume, or a volume be read as its own key file.
 */
static bool hold_standard_descriptors(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_NOCTTY);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	return fd >= 0 && close(fd) == 0;
}

/* What was printed counts only when it got out: a full disk under standard output is a failure. */
static int finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	fprintf(stderr, "cryptfs: writing to standard output: %s\n", strerror(errno));
	return status ? status : MOUNT_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const char *name = argc > 0 && argv[0] ? argv[0] : "cryptfs";
	const struct command *command;

	if (!hold_standard_descriptors())
		return MOUNT_EXIT_MISSING;
	name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (strcmp(links[i].name, name) == 0)
			return finish(command_find(links[i].command)->run(argc, argv));

	if (strcmp(name, "cryptfs") != 0) {
		fprintf(stderr, "cryptfs: called by the unknown name '%s'\n", name);
		return MOUNT_EXIT_USAGE;
	}
	if (argc < 2) {
		print_help(stderr);
		return MOUNT_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return finish(0);
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("cryptfs %s\n", CRYPTFS_VERSION);
		return finish(0);
	}
	command = command_find(argv[1]);
	if (!command) {
		fprintf(stderr, "cryptfs: unknown command '%s'; 'cryptfs --help' lists them\n",
			argv[1]);
		return MOUNT_EXIT_USAGE;
	}
	return finish(command->run(argc - 1, argv + 1));
}

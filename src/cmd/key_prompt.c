/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Asks for a passphrase on a terminal, without echo.
 *
 * Whatever happens, the terminal gets its settings back before anything else does: the signals
 * that would end or stop the program are blocked except inside ppoll(2), noted by a handler, and
 * raised again when the terminal is as it was. After a stop (Ctrl-Z) the prompt starts over.
 *
 * Threads: one prompt at a time in the process, since signal handlers belong to all of it.
 */
#include "key_source.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static const int prompt_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
enum { PROMPT_SIGNALS = ARRAY_SIZE(prompt_signals) };

static volatile sig_atomic_t prompt_signal;

static void prompt_note(int signal)
{
	prompt_signal = signal;
}

struct prompt_state {
	struct termios terminal;
	sigset_t mask;
	struct sigaction actions[PROMPT_SIGNALS];
};

static void prompt_write(int to, const char *text)
{
	size_t len = strlen(text);

	while (len > 0) {
		ssize_t n = write(to, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* the prompt is a courtesy; reading goes on without it */
		text += n;
		len -= (size_t)n;
	}
}

static enum err prompt_begin(int in, struct prompt_state *s)
{
	struct sigaction note = {.sa_handler = prompt_note};
	struct termios quiet;
	sigset_t set;

	if (tcgetattr(in, &s->terminal) != 0)
		return ERR_KEY_NO_PROMPT;
	sigemptyset(&set);
	sigemptyset(&note.sa_mask);
	prompt_signal = 0;
	for (int i = 0; i < PROMPT_SIGNALS; i++)
		sigaddset(&set, prompt_signals[i]);
	ensure(pthread_sigmask(SIG_BLOCK, &set, &s->mask) == 0);
	for (int i = 0; i < PROMPT_SIGNALS; i++) {
		ensure(sigaction(prompt_signals[i], NULL, &s->actions[i]) == 0);
		/* One that is ignored, as under nohup, stays so. */
		if (s->actions[i].sa_handler != SIG_IGN)
			ensure(sigaction(prompt_signals[i], &note, NULL) == 0);
	}
	quiet = s->terminal;
	quiet.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
	quiet.c_lflag |= ICANON | ISIG;
	(void)tcsetattr(in, TCSAFLUSH, &quiet);
	return OK;
}

static void prompt_end(int in, int to, const struct prompt_state *s)
{
	(void)tcsetattr(in, TCSAFLUSH, &s->terminal);
	prompt_write(to, "\n");
	for (int i = 0; i < PROMPT_SIGNALS; i++)
		ensure(sigaction(prompt_signals[i], &s->actions[i], NULL) == 0);
	ensure(pthread_sigmask(SIG_SETMASK, &s->mask, NULL) == 0);
}

/* OK when there is something to read (or the end of file). */
static enum err prompt_wait(int in, uint64_t deadline_ns, const sigset_t *mask)
{
	struct pollfd waiting = {.fd = in, .events = POLLIN};
	struct timespec left, *timeout = NULL;
	const uint64_t now = clock_ns();
	int n;

	if (deadline_ns != 0) {
		const uint64_t ns = deadline_ns > now ? deadline_ns - now : 0;

		left = (struct timespec){
			.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
		timeout = &left;
	}
	n = ppoll(&waiting, 1, timeout, mask);
	if (n == 0)
		return err_set_detail(ERR_KEY_EMPTY, "no passphrase was given in time");
	return n < 0 ? ERR_INTR : OK;
}

/* One line without its newline into line->bytes; *len is what it has. */
static enum err prompt_read_line(
	int in, uint64_t deadline_ns, const sigset_t *mask, struct secret *line, size_t *len)
{
	size_t done = 0;

	for (;;) {
		enum err e = prompt_wait(in, deadline_ns, mask);
		ssize_t n;

		if (e == ERR_INTR && prompt_signal == 0)
			continue; /* somebody else's signal */
		if (e != OK)
			return e;
		n = read(in, line->bytes + done, line->len - done);
		if (n < 0)
			return errno == EINTR ? ERR_INTR : err_from_errno(errno);
		done += (size_t)n;
		if (n == 0 && done == 0)
			return ERR_KEY_EMPTY;
		if (n == 0)
			break; /* end of file behind some text ends the line, as everywhere */
		if (line->bytes[done - 1] == '\n') {
			done--;
			break;
		}
		if (done == line->len)
			break;
	}
	if (done > KEY_PROMPT_BYTES_MAX)
		return err_set_detail(ERR_INVAL, "a passphrase has at most %d bytes when typed",
			KEY_PROMPT_BYTES_MAX);
	*len = done;
	return OK;
}

static enum err prompt_once(int in, int to, const char *prompt, uint64_t deadline_ns,
	struct secret *line, size_t *len, int *signal)
{
	struct prompt_state state;
	enum err e = prompt_begin(in, &state);

	if (e != OK)
		return e;
	prompt_write(to, prompt);
	e = prompt_read_line(in, deadline_ns, &state.mask, line, len);
	prompt_end(in, to, &state);
	*signal = prompt_signal;
	return e;
}

enum err key_prompt(int in, int to, const char *prompt, uint64_t deadline_ns, struct secret *out)
{
	struct secret line = {0};
	size_t len = 0;
	int signal = 0;
	/* Room for the newline, and for one byte that shows that the line is too long. */
	enum err e = secret_alloc(&line, KEY_PROMPT_BYTES_MAX + 2);

	if (e != OK)
		return e;
	do {
		signal = 0;
		e = prompt_once(in, to, prompt, deadline_ns, &line, &len, &signal);
		if (e == ERR_INTR && signal != 0)
			raise(signal);
	} while (e == ERR_INTR && signal == SIGTSTP);
	if (e == OK && len > 0) {
		secret_shrink(&line, len);
		*out = line;
		return OK;
	}
	secret_free(&line);
	if (e == OK)
		*out = (struct secret){0};
	return e;
}

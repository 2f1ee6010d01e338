/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Opening and closing the writer.
 *
 * The log must be empty, so that its format may change: the features become what the kernel would
 * choose for the file system, and an old superblock without feature words becomes one with them.
 * Our first transaction's number skips one: a block of the log may still have the number that the
 * superblock gives.
 *
 * Threads: one, with nobody else about.
 */
#include "writer_int.h"

#include <stdlib.h>
#include <sys/mman.h>

/* --- format ---------------------------------------------------------------------------------- */

/* Version 1 of the superblock ends before the feature words. */
static void super_upgrade(struct disk_super *super, uint32_t block_bytes)
{
	if (be32_get(super->s_header.h_blocktype) != JBD2_SUPERBLOCK_V1)
		return;
	memset((uint8_t *)super + offsetof(struct disk_super, s_feature_compat), 0,
		block_bytes - offsetof(struct disk_super, s_feature_compat));
	super->s_header.h_blocktype = be32_make(JBD2_SUPERBLOCK_V2);
	super->s_nr_users = be32_make(1);
}

/* Returns whether something changed. */
static bool super_choose_features(
	struct disk_super *super, const struct journal_open_config *config)
{
	struct disk_super before = *super;
	uint32_t compat, incompat;

	super_upgrade(super, config->log.block_bytes);
	compat = be32_get(super->s_feature_compat);
	incompat = be32_get(super->s_feature_incompat);
	incompat &= ~(uint32_t)(JBD2_INCOMPAT_ASYNC_COMMIT | JBD2_INCOMPAT_FAST_COMMIT);
	incompat |= JBD2_INCOMPAT_REVOKE;
	if (config->fs_64bit)
		incompat |= JBD2_INCOMPAT_64BIT;
	if (config->fs_metadata_csum) {
		/* The three versions exclude each other. */
		compat &= ~(uint32_t)JBD2_COMPAT_CHECKSUM;
		incompat &= ~(uint32_t)JBD2_INCOMPAT_CSUM_V2;
		incompat |= JBD2_INCOMPAT_CSUM_V3;
		super->s_checksum_type = JBD2_CHKSUM_CRC32C;
	}
	super->s_feature_compat = be32_make(compat);
	super->s_feature_incompat = be32_make(incompat);
	return memcmp(&before, super, sizeof(before)) != 0;
}

static enum err open_log(struct journal *j)
{
	struct journal_info info = {0};
	enum err e = log_open(&j->config, &j->log, &info);

	if (e == OK && !info.clean)
		e = journal_damaged("it is not empty, and was to be written%s", "");
	return e;
}

/* Leaves the log open in its new format. */
static enum err open_format(struct journal *j, const struct journal_open_config *config)
{
	enum err e = open_log(j);

	if (e == OK)
		e = super_load(&j->log, &j->super);
	if (e != OK || !super_choose_features(j->super, config))
		return e;
	/* The checksum that the new superblock needs is of the new version. */
	j->log.checksum_version = be32_get(j->super->s_feature_incompat) & JBD2_INCOMPAT_CSUM_V3 ? 3
				  : be32_get(j->super->s_feature_incompat) & JBD2_INCOMPAT_CSUM_V2
					  ? 2
					  : 0;
	e = super_store(&j->log, j->super);
	if (e == OK)
		e = volume_flush(j->config.volume);
	log_close(&j->log);
	return e == OK ? open_log(j) : e;
}

/* --- sizes ----------------------------------------------------------------------------------- */

static enum err open_sizes(struct journal *j, const struct journal_open_config *config)
{
	const struct log *log = &j->log;
	uint32_t block_bytes = j->config.block_bytes;
	uint32_t record_bytes = log->has_64bit ? sizeof(be64) : sizeof(be32);
	uint32_t first = be32_get(j->super->s_head);

	if (log->last - log->first + 1 < JOURNAL_BLOCKS_MIN)
		return err_set_detail(ERR_JOURNAL_FEATURE,
			"the journal has %u blocks and writing needs %u: mount read-only, or make "
			"a larger one with tune2fs",
			log->last, JOURNAL_BLOCKS_MIN);
	j->log_blocks = log->last - log->first;
	j->tags_per_block =
		(log->usable_bytes - (uint32_t)sizeof(struct disk_header) - JBD2_UUID_BYTES) /
		log->tag_bytes;
	j->revokes_per_block =
		(log->usable_bytes - (uint32_t)sizeof(struct disk_revoke)) / record_bytes;

	uint32_t most = MIN(j->log_blocks / 4, (uint32_t)TRANSACTION_BYTES_MAX / block_bytes);

	j->members_max = most;
	while (journal_blocks_for(j, j->members_max, 0) > most)
		j->members_max--;
	j->buffer_blocks = journal_blocks_for(j, j->members_max, j->log_blocks);
	j->interval_ns =
		UINT64_C(1000000) * (config->commit_interval_ms != 0 ? config->commit_interval_ms
								     : JOURNAL_COMMIT_INTERVAL_MS);
	j->dirty_max = j->log_blocks / 2;
	if (config->dirty_limit_bytes != 0)
		j->dirty_max = (uint32_t)MIN(
			config->dirty_limit_bytes / block_bytes, (uint64_t)j->dirty_max);
	journal_lock(&j->lock);
	j->head = first >= log->first && first < log->last ? first : log->first;
	journal_unlock(&j->lock);
	return OK;
}

/* Memory whose pages are taken as they are touched, and are in no core file. */
static void *open_map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	(void)madvise(at, bytes, MADV_DONTDUMP);
	return at;
}

static enum err open_memory(struct journal *j)
{
	j->buffer = open_map(j->buffer_blocks * j->config.block_bytes);
	j->homes = open_map(j->members_max * sizeof(*j->homes));
	j->batch = calloc(HOME_BATCH, sizeof(*j->batch));
	j->batch_cached = calloc(HOME_CHUNK, sizeof(*j->batch_cached));
	j->batch_done = calloc(HOME_CHUNK, sizeof(*j->batch_done));
	if (j->buffer == NULL || j->homes == NULL || j->batch == NULL || j->batch_cached == NULL ||
		j->batch_done == NULL)
		return ERR_NOMEM;
	enum err e = blocks_create(j);

	return e == OK ? cache_allow_writing(j->cache) : e;
}

/* --- open and close -------------------------------------------------------------------------- */

/* The numbers of one cache's transactions rise for ever, also when the journal is opened anew. */
static uint64_t open_first_seq(const struct journal *j)
{
	uint64_t before = cache_durable(j->cache);
	uint64_t seq = MAX(before, JOURNAL_SEQ_BASE) & ~(uint64_t)UINT32_MAX;

	seq |= be32_get(j->super->s_sequence) + UINT32_C(1);
	return seq <= before + 1 ? seq + JOURNAL_SEQ_BASE : seq;
}

static enum err open_start(struct journal *j)
{
	uint64_t seq = open_first_seq(j);
	struct journal_transaction *t = transaction_create(seq);

	if (t == NULL)
		return ERR_NOMEM;
	j->marked_empty = true;
	cache_set_durable(j->cache, seq - 1);
	atomic_store(&j->durable_seq, seq - 1);
	atomic_store(&j->running_seq, seq);
	journal_lock(&j->lock);
	j->running = t;
	j->checkpoint_done = j->checkpoint_wanted = seq - 1;
	journal_check(j);
	journal_unlock(&j->lock);
	return thread_start(&j->thread, "journal", journal_main, j);
}

static void open_init_locks(struct journal *j)
{
	mutex_init(&j->lock);
	cond_init(&j->work);
	cond_init(&j->drained);
	cond_init(&j->room);
	cond_init(&j->committed);
	journal_lock(&j->lock);
	list_init(&j->committed_list);
	journal_unlock(&j->lock);
}

/* Whatever is left of a failed journal's transactions and of what they made dirty. */
static void close_drop(struct journal *j) REQUIRES(journal_token)
{
	for (size_t i = 0; j->table != NULL && i < (size_t)1 << j->table_bits; i++)
		for (struct journal_block *b = j->table[i]; b != NULL; b = b->chain)
			cache_forget(j->cache, b->nr);
	list_for_each_safe (at, &j->committed_list)
		free(list_entry(at, struct journal_transaction, link));
	free(j->logging);
	free(j->running);
}

static void journal_destroy(struct journal *j)
{
	journal_lock(&j->lock);
	close_drop(j);
	journal_unlock(&j->lock);
	blocks_destroy(j);
	if (j->buffer != NULL)
		munmap(j->buffer, j->buffer_blocks * j->config.block_bytes);
	if (j->homes != NULL)
		munmap(j->homes, j->members_max * sizeof(*j->homes));
	free(j->batch);
	free(j->batch_cached);
	free(j->batch_done);
	free(j->super);
	log_close(&j->log);
	free(j->runs);
	cond_destroy(&j->work);
	cond_destroy(&j->drained);
	cond_destroy(&j->room);
	cond_destroy(&j->committed);
	mutex_destroy(&j->lock);
	free(j);
}

enum err journal_open(const struct journal_open_config *config, struct journal **out)
{
	struct journal *j = calloc(1, sizeof(*j));
	size_t runs_bytes = config->log.run_count * sizeof(*j->runs);
	enum err e = ERR_NOMEM;

	if (j == NULL)
		return ERR_NOMEM;
	open_init_locks(j);
	j->config = config->log;
	j->cache = config->cache;
	j->runs = malloc(MAX(runs_bytes, (size_t)1));
	if (j->runs == NULL)
		goto out;
	memcpy(j->runs, config->log.runs, runs_bytes);
	j->config.runs = j->runs;
	e = open_format(j, config);
	if (e == OK)
		e = open_sizes(j, config);
	if (e == OK)
		e = open_memory(j);
	if (e == OK)
		e = open_start(j);
out:
	log_close(&j->log);
	if (e == OK)
		*out = j;
	else
		journal_destroy(j);
	return e;
}

enum err journal_close(struct journal *j)
{
	enum err e = journal_checkpoint(j);

	journal_lock(&j->lock);
	ensure(j->running->handles == 0);
	j->stopping = true;
	cond_signal(&j->work);
	journal_unlock(&j->lock);
	ensure(pthread_join(j->thread, NULL) == 0);
	ensure(e != OK || j->marked_empty);
	journal_destroy(j);
	return e;
}

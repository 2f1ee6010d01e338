/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * file: the bytes of a regular file.
 *
 * A read is cut to the file's size, widened to whole blocks and read past the metadata cache
 * straight into page runs, one device request for each stretch that is contiguous on disk; the
 * parts handed out leave out the head and the tail that nobody asked for. Holes and unwritten
 * extents are zeros: a read that meets nothing else points at a page of zeros that all share.
 * Verity files are served as plain data, without their tree.
 *
 * Threads: any number of readers of one file, in parallel; the inode's lock is held shared across
 * the I/O. A read that is not part of a sequential stream stays in the calling thread.
 */
#include "ext4_int.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	HOLD_ZEROS = 0xff,  /* in hold_order: the part is shared zeros, nothing is held */
	HOLD_WINDOW = 0xfe, /* the hold is a read-ahead window */
	ZERO_BYTES = EXT4_READ_BYTES_MAX / EXT4_READ_PARTS,
};

static uint8_t zeros[ZERO_BYTES] __attribute__((aligned(PAGE_BYTES))); /* never written */

/* A position in a list of buffers. */
struct cursor {
	const struct iovec *iov;
	int count;
	size_t offset; /* into iov[0] */
};

/* Takes the next `bytes` of the buffers into out, at most `room` pieces; returns the pieces. */
static int cursor_take(struct cursor *c, size_t bytes, struct iovec *out, int room)
{
	int n = 0;

	while (bytes > 0) {
		size_t here;
		ensure(c->count > 0 && n < room);
		here = MIN(bytes, c->iov->iov_len - c->offset);
		out[n].iov_base = (uint8_t *)c->iov->iov_base + c->offset;
		out[n++].iov_len = here;
		bytes -= here;
		c->offset += here;
		if (c->offset == c->iov->iov_len) {
			c->iov++;
			c->count--;
			c->offset = 0;
		}
	}
	return n;
}

static bool run_is_hole(const struct ext4_run *r)
{
	return r->physical == 0 || r->unwritten;
}

/* The longest stretch from `logical` on that is one place on disk, or one hole. */
static enum err map_stretch(
	struct ext4_inode *inode, lblk_t logical, uint32_t limit, struct ext4_run *out)
{
	struct ext4_run next;
	enum err e = ext4_map(inode, logical, limit, out);

	while (!e && out->count < limit && logical + out->count < EXT4_LBLK_END) {
		e = ext4_map(inode, logical + out->count, limit - out->count, &next);
		if (e || run_is_hole(out) != run_is_hole(&next))
			break;
		if (!run_is_hole(out) && out->physical + out->count != next.physical)
			break;
		out->count += next.count;
	}
	return e;
}

enum err ext4_file_read_blocks(
	struct ext4_inode *inode, lblk_t first, const struct iovec *iov, int iov_count)
{
	const struct ext4 *fs = inode->fs;
	struct cursor at = {.iov = iov, .count = iov_count};
	struct iovec piece[EXT4_READ_PARTS];
	struct ext4_run run;
	uint64_t blocks = 0;
	enum err e = OK;

	for (int i = 0; i < iov_count; i++)
		blocks += iov[i].iov_len;
	blocks >>= fs->block_bits;
	while (blocks > 0 && !e) {
		int n;
		e = map_stretch(inode, first, (uint32_t)blocks, &run);
		if (e)
			break;
		n = cursor_take(&at, (size_t)run.count << fs->block_bits, piece, EXT4_READ_PARTS);
		if (!run_is_hole(&run))
			e = cache_read_past(fs->cache, run.physical, run.count, piece, n);
		else
			for (int i = 0; i < n; i++)
				memset(piece[i].iov_base, 0, piece[i].iov_len);
		first += run.count;
		blocks -= run.count;
	}
	return e;
}

/* --- ext4_read ------------------------------------------------------------------------------- */

static void read_add_zeros(struct ext4_read *r, size_t bytes)
{
	while (bytes > 0) {
		size_t here = MIN(bytes, (size_t)ZERO_BYTES);
		ensure(r->parts < EXT4_READ_PARTS);
		r->part[r->parts].iov_base = zeros;
		r->part[r->parts].iov_len = here;
		r->hold[r->parts] = NULL;
		r->hold_order[r->parts++] = HOLD_ZEROS;
		r->bytes += here;
		bytes -= here;
	}
}

/* Takes page runs for `bytes`, as few as there can be. */
static enum err read_take_pages(struct ext4_read *r, size_t bytes)
{
	while (bytes > 0) {
		size_t here = MIN(bytes, (size_t)PAGE_RUN_BYTES_MAX);
		unsigned order = page_order_for(here);
		void *run = page_get(r->inode->fs->options.pages, order);
		if (!run)
			return ERR_NOMEM;
		ensure(r->parts < EXT4_READ_PARTS);
		r->part[r->parts].iov_base = run;
		r->part[r->parts].iov_len = here;
		r->hold[r->parts] = run;
		r->hold_order[r->parts++] = (uint8_t)order;
		bytes -= here;
	}
	return OK;
}

/* Leaves the first `skip` bytes and what follows the next `bytes` out of the parts. */
static void read_trim(struct ext4_read *r, size_t skip, size_t bytes)
{
	for (int i = 0; i < r->parts; i++) {
		struct iovec *v = &r->part[i];
		size_t cut = MIN(skip, v->iov_len);
		v->iov_base = (uint8_t *)v->iov_base + cut;
		v->iov_len = MIN(v->iov_len - cut, bytes);
		skip -= cut;
		bytes -= v->iov_len;
		r->bytes += v->iov_len;
	}
}

static enum err read_inline(struct ext4_read *r, uint64_t offset, size_t len)
{
	struct ext4_inode *inode = r->inode;
	size_t size = (size_t)inode->attr.size_bytes;
	size_t head = MIN(size, (size_t)EXT4_I_BLOCK_BYTES), tail_len = 0;
	const uint8_t *tail = NULL;
	uint8_t *page;
	enum err e;

	if (size > head) {
		e = ext4_inline_tail(inode, &tail, &tail_len);
		if (e == ERR_NODATA || (!e && tail_len < size - head))
			return ext4_corrupt(
				inode->fs, inode->inum, "its inline data is shorter than its size");
		if (e)
			return e;
	}
	e = read_take_pages(r, size);
	if (e)
		return e;
	/* Inline data is at most a block, so it is one run. */
	page = r->part[0].iov_base;
	memcpy(page, ext4_inode_disk(inode)->i_block, head);
	if (tail)
		memcpy(page + head, tail, size - head);
	read_trim(r, (size_t)offset, len);
	return OK;
}

static enum err read_blocks(struct ext4_read *r, uint64_t offset, size_t len)
{
	struct ext4_inode *inode = r->inode;
	uint32_t block_bytes = inode->fs->block_bytes;
	size_t skip = (size_t)(offset & (block_bytes - 1));
	uint64_t end = (offset + len + block_bytes - 1) & ~(uint64_t)(block_bytes - 1);
	lblk_t first = (lblk_t)(offset >> inode->fs->block_bits);
	uint32_t blocks = (uint32_t)((end - (offset - skip)) >> inode->fs->block_bits);
	struct ext4_run run;
	enum err e = map_stretch(inode, first, blocks, &run);

	if (e)
		return e;
	if (run.count == blocks && run_is_hole(&run)) {
		read_add_zeros(r, len);
		return OK;
	}
	e = read_take_pages(r, (size_t)blocks << inode->fs->block_bits);
	if (!e)
		e = ext4_file_read_blocks(inode, first, r->part, r->parts);
	if (!e)
		read_trim(r, skip, len);
	return e;
}

enum err ext4_read(
	struct ext4_inode *inode, uint64_t offset_bytes, size_t len_bytes, struct ext4_read *out)
{
	struct ext4_read r = {.inode = inode};
	enum err e = OK;

	if (S_ISDIR(inode->attr.mode))
		return ERR_ISDIR;
	if (!S_ISREG(inode->attr.mode) || len_bytes > EXT4_READ_BYTES_MAX)
		return ERR_INVAL;
	inode_lock_shared(&inode->lock);
	if (offset_bytes < inode->attr.size_bytes && len_bytes > 0) {
		size_t len =
			(size_t)MIN((uint64_t)len_bytes, inode->attr.size_bytes - offset_bytes);
		if (inode->attr.flags & EXT4_INLINE_DATA_FL)
			e = read_inline(&r, offset_bytes, len);
		else if (!ext4_readahead_take(inode, offset_bytes, len, &r))
			e = read_blocks(&r, offset_bytes, len);
	}
	inode_unlock_shared(&inode->lock);
	if (e) {
		ext4_read_done(&r);
		return e;
	}
	*out = r;
	return OK;
}

void ext4_read_hold_window(struct ext4_read *r, void *window, void *bytes, size_t len)
{
	ensure(r->parts < EXT4_READ_PARTS);
	r->part[r->parts].iov_base = bytes;
	r->part[r->parts].iov_len = len;
	r->hold[r->parts] = window;
	r->hold_order[r->parts++] = HOLD_WINDOW;
	r->bytes += len;
}

void ext4_read_done(struct ext4_read *r)
{
	for (int i = 0; i < r->parts; i++) {
		if (r->hold_order[i] == HOLD_WINDOW)
			ext4_readahead_release(r->inode, r->hold[i]);
		else if (r->hold_order[i] != HOLD_ZEROS)
			page_put(r->inode->fs->options.pages, r->hold[i], r->hold_order[i]);
	}
	r->parts = 0;
	r->bytes = 0;
}

/* --- the rest -------------------------------------------------------------------------------- */

enum err ext4_inode_read_all(struct ext4_inode *inode, void *buf, size_t len)
{
	const struct ext4 *fs = inode->fs;
	uint8_t *to = buf;

	if (len > inode->attr.size_bytes || inode->attr.flags & EXT4_INLINE_DATA_FL)
		return ext4_corrupt(fs, inode->inum, "its value is shorter than it should be");
	for (size_t done = 0; done < len;) {
		size_t here = MIN(len - done, (size_t)fs->block_bytes);
		struct cache_block *b;
		enum err e = ext4_map_block(inode, (lblk_t)(done >> fs->block_bits), &b);
		if (e)
			return e;
		memcpy(to + done, b->data, here);
		cache_put(fs->cache, b);
		done += here;
	}
	return OK;
}

static enum err seek_map(struct ext4_inode *inode, uint64_t offset, bool want_hole, uint64_t *out)
{
	uint32_t bits = inode->fs->block_bits;
	uint64_t size = inode->attr.size_bytes;
	uint64_t at = offset;

	/* Every round goes on by at least a block, and by a whole run where the map has one. */
	while (at < size) {
		struct ext4_run run;
		enum err e = ext4_map(inode, (lblk_t)(at >> bits), UINT32_MAX, &run);
		if (e)
			return e;
		if (run_is_hole(&run) == want_hole) {
			*out = MAX(offset, (uint64_t)run.logical << bits);
			return OK;
		}
		at = ((uint64_t)run.logical + run.count) << bits;
	}
	if (!want_hole)
		return ERR_NXIO;
	*out = size;
	return OK;
}

enum err ext4_seek(struct ext4_inode *inode, uint64_t offset_bytes, int whence, uint64_t *out)
{
	enum err e;

	if (!S_ISREG(inode->attr.mode) || (whence != SEEK_DATA && whence != SEEK_HOLE))
		return ERR_INVAL;
	inode_lock_shared(&inode->lock);
	if (offset_bytes >= inode->attr.size_bytes) {
		e = ERR_NXIO;
	} else if (inode->attr.flags & EXT4_INLINE_DATA_FL) {
		*out = whence == SEEK_DATA ? offset_bytes : inode->attr.size_bytes;
		e = OK;
	} else {
		e = seek_map(inode, offset_bytes, whence == SEEK_HOLE, out);
	}
	inode_unlock_shared(&inode->lock);
	return e;
}

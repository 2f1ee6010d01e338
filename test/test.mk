# How the tests are built and run; included by the top Makefile.
#
# test/unit/<layer>/test_*.c is one check suite a source file. It links the archives of its layer
# and of those below, and test/rig/, which holds what tests of several layers share.

unit_src   := $(wildcard test/unit/*/test_*.c)
unit_bin   := $(patsubst test/unit/%.c,$(BUILD)/test/unit/%,$(unit_src))
layer_of    = $(word 3,$(subst /, ,$(1)))

define unit_rule
$(BUILD)/test/unit/$(1)/%: test/unit/$(1)/%.c $(call libs_upto,$(1)) $(wildcard test/rig/*.h test/unit/$(1)/*.h) Makefile test/test.mk
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) -Itest/rig -Isrc/$(1) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$< $(call libs_upto,$(1)) $$(LIBS) $$(CHECK_LIBS)
endef
$(foreach l,$(LAYERS),$(eval $(call unit_rule,$(l))))

# Programs that the scripts under test/ use. They stand alone: what judges ours links nothing of it.
rig_src    := $(wildcard test/rig/*.c)
rig_bin    := $(patsubst test/rig/%.c,$(BUILD)/test/rig/%,$(rig_src))
$(BUILD)/test/rig/%: test/rig/%.c include/base.h Makefile test/test.mk
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(shell pkg-config --libs libgcrypt)

# Programs that feed images to the layers below front, without FUSE and without a cipher.
image_src  := $(wildcard test/image/*.c)
image_bin  := $(patsubst test/image/%.c,$(BUILD)/test/image/%,$(image_src))
$(BUILD)/test/image/%: test/image/%.c $(call libs_upto,ext4) Makefile test/test.mk
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(call libs_upto,ext4) $(LIBS)

bench_src  := $(wildcard test/bench/bench_*.c)
bench_bin  := $(patsubst test/bench/%.c,$(BUILD)/test/bench/%,$(bench_src))
$(BUILD)/test/bench/%: test/bench/%.c $(call libs_upto,front)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(call libs_upto,front) $(LIBS) $(JEMALLOC)

bench-counter: $(BUILD)/test/bench/bench_counter
	$<

.PHONY: tests image image-programs
tests: $(unit_bin) $(rig_bin)
image-programs: $(image_bin)

check: all tests
	BUILD=$(BUILD) test/run unit system

unit: tests
	BUILD=$(BUILD) test/run unit

system: all tests
	BUILD=$(BUILD) test/run system

image: image-programs
	BUILD=$(BUILD) test/run image

SAN_ASAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SAN_TSAN := -fsanitize=thread -fno-omit-frame-pointer
asan:
	$(MAKE) BUILD=build-asan OPT=-O1 HARDEN= JEMALLOC= SANITIZE='$(SAN_ASAN)' DEFINES=-DCRYPTFS_DEBUG_LOCKS all tests image-programs
	BUILD=build-asan test/run unit image

tsan:
	$(MAKE) BUILD=build-tsan CC=clang OPT=-O1 HARDEN= JEMALLOC= SANITIZE='$(SAN_TSAN)' DEFINES=-DCRYPTFS_DEBUG_LOCKS tests
	BUILD=build-tsan test/run unit

bench-read: all tests
	BUILD=$(BUILD) scripts/bench-read

# cryptfs: an encrypted ext4 file system served through FUSE.
#
# Each layer is a folder under src/, built into one static archive. LAYERS lists them from the
# lowest to the highest: a layer's code and its unit tests link only archives at or below it, so
# a call upward is a link error. `make help` lists the targets.

LAYERS   := base page dev ioq cipher luks cache journal ext4 front cmd
BUILD    ?= build
CC       ?= gcc
PREFIX   ?= /usr/local
SBINDIR  ?= /usr/sbin
MANDIR   ?= $(PREFIX)/share/man
DESTDIR  ?=
PKGS     := fuse3 libcryptsetup libgcrypt json-c blkid
JEMALLOC ?= $(shell pkg-config --libs jemalloc)

ifeq ($(origin CC),default)
CC := gcc
endif
IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null | head -n 1))

WARN := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes \
	-Wmissing-prototypes -Wcast-qual -Wvla -Wundef -Wformat=2 -Wnull-dereference -Werror
ifneq ($(IS_CLANG),)
WARN += -Wthread-safety -Wunreachable-code-aggressive
endif
OPT      ?= -O2
HARDEN   ?= -D_FORTIFY_SOURCE=2 -fstack-protector-strong
SANITIZE ?=
CPPFLAGS += -D_GNU_SOURCE -DFUSE_USE_VERSION=314 -Iinclude $(DEFINES)
CFLAGS   += -std=c11 $(OPT) -g -fPIE $(WARN) $(HARDEN) $(SANITIZE) -pthread \
	$(shell pkg-config --cflags $(PKGS))
LDFLAGS  += -pie -Wl,-z,relro,-z,now $(SANITIZE) -pthread
LIBS     := $(shell pkg-config --libs $(PKGS))
CHECK_LIBS = $(shell pkg-config --libs check)

src_of  = $(wildcard src/$(1)/*.c)
objs_of = $(patsubst src/%.c,$(BUILD)/obj/%.o,$(call src_of,$(1)))
lib_of  = $(BUILD)/lib$(1).a
# The layers at or below $(1), highest first, as the linker wants them.
reverse = $(if $(1),$(call reverse,$(wordlist 2,$(words $(1)),$(1))) $(firstword $(1)))
upto    = $(call upto_loop,$(1),$(LAYERS))
upto_loop = $(firstword $(2)) $(if $(filter $(1),$(firstword $(2))),,$(call upto_loop,$(1),$(wordlist 2,$(words $(2)),$(2))))
libs_upto = $(foreach l,$(call reverse,$(call upto,$(1))),$(if $(call src_of,$(l)),$(call lib_of,$(l))))

.PHONY: all check unit system tidy format asan tsan clean install help bench-read bench-counter
# Archives first, so that a layer builds by itself before the program above it links.
all: $(foreach l,$(LAYERS),$(if $(call src_of,$(l)),$(call lib_of,$(l)))) \
	$(if $(wildcard src/cmd/main.c),$(BUILD)/cryptfs helpers)

include $(wildcard test/test.mk)

# --- objects, archives, the program -----------------------------------------------------------
$(BUILD)/obj/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -Isrc/$(firstword $(subst /, ,$*)) -MMD -MP -c $< -o $@

define layer_rule
$(call lib_of,$(1)): $(call objs_of,$(1))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(AR) rcs $$@ $$^
endef
$(foreach l,$(LAYERS),$(eval $(call layer_rule,$(l))))

$(BUILD)/cryptfs: $(call libs_upto,cmd)
	$(CC) $(LDFLAGS) -o $@ -Wl,--start-group $(BUILD)/obj/cmd/main.o $^ -Wl,--end-group $(LIBS) $(JEMALLOC)

# The program picks its command by the name it is called by.
HELPERS := mount.cryptfs mount.fuse.cryptfs mount.fuseblk.cryptfs mkfs.cryptfs
.PHONY: helpers
helpers: $(BUILD)/cryptfs
	@for h in $(HELPERS); do ln -sfn cryptfs $(BUILD)/$$h; done

-include $(foreach l,$(LAYERS),$(patsubst %.o,%.d,$(call objs_of,$(l))))

# --- tools ------------------------------------------------------------------------------------
tidy:
	scripts/tidy

format:
	clang-format -i $(wildcard src/*/*.c src/*/*.h include/*.h test/*/*.c test/*/*.h test/*/*/*.c test/*/*/*.h)

clean:
	rm -rf build build-*

install: all
	scripts/install "$(DESTDIR)" "$(PREFIX)" "$(SBINDIR)" "$(MANDIR)" "$(BUILD)"

help:
	@echo 'make             build the program in $(BUILD)/'
	@echo 'make check       unit and system tests (the gate)'
	@echo 'make unit        unit tests only'
	@echo 'make system      system tests only'
	@echo 'make asan        unit and image tests under the address and undefined-behaviour sanitizers'
	@echo 'make tsan        unit tests under the thread sanitizer'
	@echo 'make tidy        format, structure and static analysis'
	@echo 'make format      format the sources'
	@echo 'make bench-read  reading, against gocryptfs and fuse2fs, as ratios'
	@echo 'make bench-counter  the page counter against an exact sum and a plain atomic'
	@echo 'make install     DESTDIR= PREFIX=/usr/local SBINDIR=/usr/sbin'
	@echo 'CC=clang builds with clang; every target takes BUILD=folder.'

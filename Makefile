# make            builds build/lock-top
# make demo       opens it on a bundled program with a contended mutex
# make test       builds everything and runs all tests; make test-real adds real servers
# make bench      measures cost and harm on this machine
# make install    with prefix=/usr/local and DESTDIR=; make uninstall takes it away again
# V=1 shows the commands; CC=clang; SAN=address,undefined or SAN=thread builds beside the others.

VERSION := 0.1.0
prefix  ?= /usr/local
bindir  ?= $(prefix)/bin
mandir  ?= $(prefix)/share/man
PYTHON  ?= python3

ifeq ($(origin CC),default)
CC      := gcc
endif
comma   := ,
BUILD   ?= build$(if $(filter-out gcc cc,$(CC)),/$(notdir $(CC)))$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))

PKGCONF ?= pkg-config
PROCLIB := $(shell $(PKGCONF) --exists libproc2 2>/dev/null && echo libproc2 || echo libprocps)
PKGS    := jansson $(PROCLIB) libunwind-generic libdw libelf liblzma
UIPKGS  := ncursesw

CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wwrite-strings -Wformat=2 -Wvla -Wno-format-nonliteral
# gcc's sanitizers make it see null format strings that cannot be.
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(findstring clang,$(CC)),,-Wno-format-truncation))
# Evaluated once, and only when something is built: a fresh machine has no pkg-config yet.
PKGCFLAGS = $(eval PKGCFLAGS := $$(shell $(PKGCONF) --cflags $(PKGS) $(UIPKGS)))$(PKGCFLAGS)
PROCVERSION = $(eval PROCVERSION := $$(shell $(PKGCONF) --modversion $(PROCLIB)))$(PROCVERSION)
PKGLIBS   = $(eval PKGLIBS := $$(shell $(PKGCONF) --libs $(PKGS) $(UIPKGS)))$(PKGLIBS)
ALLCFLAGS = -std=gnu11 -D_GNU_SOURCE $(if $(SAN),,-D_FORTIFY_SOURCE=2) -DLOCK_TOP_VERSION='"$(VERSION)"' \
            -DHAVE_$(if $(filter libproc2,$(PROCLIB)),LIBPROC2,LIBPROCPS) -DPROCLIB_VERSION='"$(PROCVERSION)"' \
            -fPIE -pthread $(WARN) $(SANFLAGS) $(PKGCFLAGS) $(CFLAGS)
ALLLDFLAGS = -pie -pthread $(SANFLAGS) $(LDFLAGS)
LIBS      = $(PKGLIBS) -liberty -lm

# One line per level of the design: a file includes only files of its own line or above.
SRC_BASE    := err xalloc fmt clock
SRC_INTENT  := options
SRC_KERNEL  := filelocks procfs procfs_parse mounts freezer remote syscalls syscalls_compat caps proclist sockets filescan target_find target maps lockevents
SRC_NAMES   := filemap netfile ehframe gotable module module_load space callcode stack_leave stack_walk stack symbol_elf symbol_demangle symbol_index symbol_debug symbol_extract symbol_lines symbol_inline symbol_perfmap symbol tracer_calls tracer_check tracer_budget tracer freshness inspect_look inspect_files inspector
SRC_SAMPLE  := sample libc_tid source_stdio source_words source_links source_threads source_process source_owners source_bystanders source_answers source_waits source_holders source_files source_sems source_relook source_events source_proc sampler
SRC_MODEL   := snapshot namematch name_rules signature_api signature layout lockkey wait window estimate locktab filetab kernelwait proctab stacktab profile owner owner_file wording wording_files holder chain_text chain diagnose model model_files model_stacks model_show_stacks model_snapshot
SRC_PRESENT := funcname column render_path render_stacks render_threads render_text render_json
SRC_TOP     := choices signals monitor batch
SRC  := $(SRC_BASE) $(SRC_INTENT) $(SRC_KERNEL) $(SRC_NAMES) $(SRC_SAMPLE) $(SRC_MODEL) $(SRC_PRESENT) $(SRC_TOP)
UI   := ui state keys term draw view_locks view_lock view_stacks view_chains view_sort view_help

OBJ    := $(SRC:%=$(BUILD)/src/%.o)
UIOBJ  := $(UI:%=$(BUILD)/ui/%.o)
UNITS  := $(patsubst tests/%.c,%,$(wildcard tests/unit_*.c))
LOADS  := $(patsubst tests/workloads/%.c,%,$(wildcard tests/workloads/*.c))

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

.PHONY: help completion all demo test test-real bench unit workloads install uninstall clean deps deps-test deps-real
.DELETE_ON_ERROR:
.SECONDARY:

all: $(BUILD)/lock-top

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

$(BUILD)/lock-top: $(BUILD)/src/main.o $(UIOBJ) $(BUILD)/liblocktop.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALLLDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/liblocktop.a: $(OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/%.o: %.c Makefile
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALLCFLAGS) -MMD -MP -c -o $@ $<

# The tables of call numbers: a row of calls.def whose number the headers lack is left out.
$(BUILD)/gen/calls_nr.inc: src/calls.def Makefile
	$(call say,GEN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)sed -n 's/^CALL(\([a-z0-9_]*\),.*/#ifdef __NR_\1\n[__NR_\1] = CALL_\1,\n#endif/p' $< >$@

$(BUILD)/src/syscalls.o $(BUILD)/src/syscalls_compat.o: $(BUILD)/gen/calls_nr.inc
$(BUILD)/src/syscalls.o $(BUILD)/src/syscalls_compat.o: private ALLCFLAGS += -I$(BUILD)/gen

# Test programs and workloads ------------------------------------------------

unit: $(UNITS:%=$(BUILD)/tests/%)
workloads: $(LOADS:%=$(BUILD)/workloads/%)

$(BUILD)/tests/unit_ui_%: $(BUILD)/tests/unit_ui_%.o $(UIOBJ) $(BUILD)/liblocktop.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALLLDFLAGS) -o $@ $^ $(LIBS) -lcmocka

$(BUILD)/tests/unit_%: $(BUILD)/tests/unit_%.o $(BUILD)/liblocktop.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALLLDFLAGS) -o $@ $^ $(LIBS) -lcmocka

# Workloads are targets, not lock-top: plain gcc, no sanitizer, as a service would be built.
$(BUILD)/workloads/%: tests/workloads/%.c Makefile
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -O2 -g -pthread $(WARN) -MMD -MP -MF $@.d -o $@ $< -lm

$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/liblocktop.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALLLDFLAGS) -o $@ $^ $(LIBS)

-include $(wildcard $(BUILD)/src/*.d $(BUILD)/ui/*.d $(BUILD)/tests/*.d $(BUILD)/workloads/*.d)

# Completions are kept in the tree: installing needs no generator. A test compares them with the
# tables they are made from.
$(BUILD)/gen_docs: contrib/gen_docs.c src/options.def src/columns.def
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 $(WARN) -o $@ $<

completion: $(BUILD)/gen_docs
	$< bash >contrib/completion/lock-top.bash
	$< zsh >contrib/completion/_lock-top
	$< fish >contrib/completion/lock-top.fish

# The commands of the README --------------------------------------------------

deps:
	@contrib/deps.sh
deps-test:
	@contrib/deps.sh --test
deps-real:
	@contrib/deps.sh --test --real

demo: deps
	@$(MAKE) --no-print-directory -s all $(BUILD)/workloads/demo
	@contrib/demo.sh $(BUILD)

test: deps-test
	@tests/run.sh

test-real: deps-real
	@tests/run.sh --real

bench: deps-test
	@$(MAKE) --no-print-directory all workloads $(BUILD)/bench/stack_cost
	@$(PYTHON) tests/bench/bench.py --build $(BUILD)

datadir ?= $(prefix)/share
# What install puts where: mode, file, place.
define INSTALLED
755 $(BUILD)/lock-top $(bindir)/lock-top
644 man/lock-top.1 $(mandir)/man1/lock-top.1
644 man/lock-top-json.5 $(mandir)/man5/lock-top-json.5
644 contrib/completion/lock-top.bash $(datadir)/bash-completion/completions/lock-top
644 contrib/completion/_lock-top $(datadir)/zsh/site-functions/_lock-top
644 contrib/completion/lock-top.fish $(datadir)/fish/vendor_completions.d/lock-top.fish
endef
export INSTALLED

install: all
	@printf '%s\n' "$$INSTALLED" | while read -r mode file place; do \
		echo "install $(DESTDIR)$$place"; \
		install -D -m "$$mode" "$$file" "$(DESTDIR)$$place" || exit 1; \
	done

uninstall:
	@printf '%s\n' "$$INSTALLED" | while read -r mode file place; do \
		echo "remove $(DESTDIR)$$place"; rm -f "$(DESTDIR)$$place"; \
	done

clean:
	rm -rf build

package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The hosts of the first cell, and of the cell after chubby2 was lost.
const (
	replicas = "chubby1 chubby2 chubby3"
	replaced = "chubby1 chubby3 chubby4"
)

// step is one thing that the reader does: a block, on some hosts, or something that befalls them.
type step struct {
	key     key
	on      string // hosts, separated by spaces
	again   bool   // the reader looks until it is as the page shows it
	same    bool   // the lines that it prints are equal
	checked bool   // lines of a configuration, which are checked and not used
	event   func(context.Context, *world) error
	name    string // of the event
	block   block
	want    string // what the page says that it prints, by the blocks of text that follow
}

// do is a step that types a block of a section on hosts; of YAML, it writes the file.
func do(page, heading string, n int, on string) step {
	return step{key: key{page, heading, n}, on: on}
}

// look is a step that types a block until it prints what the page shows.
func look(page, heading string, n int, on string) step {
	return step{key: key{page, heading, n}, on: on, again: true}
}

// check has chubbyd check lines of a configuration, beside those that a host has.
func check(page, heading string, n int, on string) step {
	return step{key: key{page, heading, n}, on: on, checked: true}
}

func befalls(name string, event func(context.Context, *world) error) step {
	return step{name: name, event: event}
}

const (
	dep = "deployment"
	ops = "operations"
	rec = "disaster-recovery"
)

// plan is what is done, in this order.
func plan() []step {
	return slices.Concat(deploying(), operating(), replacing(), begunAnew(), recovered())
}

func deploying() []step {
	return []step{
		do(dep, "On your machine: programs and certificates", 1, desk),
		do(dep, "On your machine: programs and certificates", 2, desk),
		do(dep, "On your machine: one configuration", 1, desk),
		do(dep, "On your machine: one configuration", 2, desk),
		do(dep, "On your machine: one configuration", 3, desk),
		do(dep, "On each host: start it", 1, replicas),
		do(dep, "On each host: start it", 2, replicas),
		do(dep, "On each host: start it", 3, replicas),
		do(dep, "On each host: start it", 4, replicas),
		look(dep, "On your machine: is it well?", 1, desk),
		do(dep, "On your machine: is it well?", 3, desk),
		do(dep, "On your machine: is it well?", 5, desk),
		do(dep, "On your machine: is it well?", 7, desk),
		do(dep, "Backups", 1, desk),
		do(dep, "What to do next", 1, desk),
		befalls("the master takes a backup by itself", ownBackup),
	}
}

func operating() []step {
	return []step{
		do(ops, "Renew the certificates of a replica", 1, desk),
		{key: key{ops, "Renew the certificates of a replica", 2}, on: desk, again: true, same: true},
		do(ops, "Change an authority", 1, desk),
		do(ops, "Change an authority", 2, desk),
		do(ops, "Change an authority", 3, desk),
		do(ops, "Backups", 1, desk),
		check(ops, "Backups", 2, "chubby1"),
		check(ops, "Tokens", 1, "chubby1"),
		check(ops, "Operators", 1, "chubby1"),
		check(ops, "Names in DNS", 1, "chubby1"),
		check(ops, "The audit log", 1, "chubby1"),
		do(ops, "After an upgrade from v0.1.0", 1, desk),
		do(ops, "Operators", 2, desk),
		do(ops, "Who held a lock", 1, desk),
		do(ops, "Clients that misuse the cell", 1, desk),
		do(ops, "How large machines have to be", 1, desk),
		do(ops, "Upgrading", 1, desk),
		do(ops, "Upgrading", 2, "chubby1"),
		look(ops, "Upgrading", 3, desk),
		do(ops, "Upgrading", 5, desk),
		do(ops, "Upgrading", 6, desk),
	}
}

func replacing() []step {
	return []step{
		befalls("the disk of chubby2 is lost", diskLost("chubby2")),
		do(ops, "A disk is lost", 1, "chubby2"),
		befalls("chubby2 is lost", func(_ context.Context, w *world) error { return w.kill("chubby2") }),
		look(ops, "A disk is lost", 2, desk),
		do(ops, "Replace a lost replica", 1, desk),
		do(ops, "Replace a lost replica", 2, desk),
		do(dep, "On each host: start it", 1, "chubby4"),
		do(dep, "On each host: start it", 2, "chubby4"),
		do(dep, "On each host: start it", 3, "chubby4"),
		do(ops, "Replace a lost replica", 3, "chubby4"),
		do(ops, "Replace a lost replica", 5, desk),
		do(ops, "Replace a lost replica", 6, desk),
		do(ops, "Replace a lost replica", 8, desk),
		do(ops, "Five hosts", 1, "chubby1"),
		look(dep, "On your machine: is it well?", 3, desk),
	}
}

// begunAnew is a cell that loses everything.
func begunAnew() []step {
	const lost = "The cell is lost: a new one from the backup"
	return []step{
		do(rec, "Before: backups that you have read", 1, desk),
		befalls("the cell loses all of its disks", disksLost),
		do(rec, lost, 1, desk),
		do(rec, lost, 2, replaced),
		do(rec, lost, 3, replaced),
		look(rec, lost, 4, desk),
		do(rec, lost, 6, desk),
		do(rec, lost, 8, desk),
		do(rec, "The contents are wrong: back to a backup", 1, desk),
		do(rec, "The contents are wrong: back to a backup", 2, desk),
		do(rec, "The contents are wrong: back to a backup", 3, desk),
	}
}

// recovered is the same cell, when chubby1 alone has something left.
func recovered() []step {
	const lost, left = "The cell is lost: a new one from the backup", "A majority is lost, and something is left"
	return []step{
		befalls("something is written that no backup has", newer),
		befalls("the disk of chubby3 is lost", diskLost("chubby3")),
		befalls("the disk of chubby4 is lost", diskLost("chubby4")),
		do(rec, left, 1, "chubby1"),
		do(rec, left, 2, desk),
		do(rec, left, 3, desk),
		do(rec, lost, 2, replaced),
		do(rec, lost, 3, replaced),
		look(rec, lost, 4, desk),
		do(rec, lost, 6, desk),
		do(rec, lost, 8, desk),
		befalls("what no backup had is there", newerIsThere),
		befalls("the restores are in the audit log", audited),
	}
}

// notRun are the blocks that nothing is done with, and why.
func notRun() map[key]string {
	return map[key]string{
		{dep, "From a package", 1}:             "a release is not built here; make verify-packages installs its packages",
		{dep, "In containers", 1}:              "it needs docker",
		{ops, "Five hosts", 3}:                 "a file of clients; cmd/chubbyctl reads one in its tests",
		{ops, "Spares", 1}:                     "a spare needs one more host and a death of hours; e2e tries it",
		{ops, "Names in DNS", 2}:               "lines of BIND's configuration; cmd/chubbyd/internal/names runs BIND with them",
		{ops, "Drills", 1}:                     "a drill hurts, and each takes its time; e2e and test/contract.sh do all of them",
		{ops, "What to send with a report", 1}: "it only collects, and e2e.TestDebugBundleHasNoSecrets does it",
		{ops, "What to send with a report", 2}: "it needs ssh, and only collects",
		{ops, "The audit log", 2}:              "a record of the audit log",
	}
}

// planned returns the plan with the blocks of the pages. Every block of code has to be in it, or in notRun.
func planned(docs string) ([]step, error) {
	blocks := map[key]block{}
	prints := map[key]string{}
	var all []block
	for _, page := range []string{"deployment", "operations", "disaster-recovery"} {
		found, err := readPage(docs, page)
		if err != nil {
			return nil, err
		}
		for i, b := range found {
			if b.lang != "text" {
				blocks[b.key()], all = b, append(all, b)
			} else if i == 0 || found[i-1].heading != b.heading {
				return nil, fmt.Errorf("%v: what prints this?", b)
			} else {
				last := all[len(all)-1].key()
				prints[last] += b.text
			}
		}
	}
	unused := map[key]bool{}
	for k := range blocks {
		unused[k] = true
	}
	steps := plan()
	for i, s := range steps {
		if s.event != nil {
			continue
		}
		b, ok := blocks[s.key]
		if !ok {
			return nil, fmt.Errorf("the plan has %v, which is not there", s.key)
		}
		delete(unused, s.key)
		steps[i].block, steps[i].want = b, prints[s.key]
	}
	for k := range notRun() {
		if _, ok := blocks[k]; !ok {
			return nil, fmt.Errorf("notRun has %v, which is not there", k)
		}
		delete(unused, k)
	}
	for _, b := range all {
		if unused[b.key()] {
			return nil, fmt.Errorf("%v (%v) is neither in plan nor in notRun", b, b.key())
		}
	}
	return steps, nil
}

// do does a step, on one host after the other, as one person would.
func (w *world) do(ctx context.Context, s step) error {
	if s.event != nil {
		fmt.Printf("-- %s\n", s.name)
		return s.event(ctx, w)
	}
	for name := range strings.FieldsSeq(s.on) {
		fmt.Printf("%v on %s: %s\n", s.block, name, strings.SplitN(s.block.text, "\n", 2)[0])
		if s.checked {
			if err := w.checks(ctx, s.block, name); err != nil {
				return fmt.Errorf("%v on %s: %w", s.block, name, err)
			}
			continue
		}
		if s.block.lang != "sh" {
			if err := w.writes(s.block, name); err != nil {
				return fmt.Errorf("%v on %s: %w", s.block, name, err)
			}
			continue
		}
		once := func() error { return w.typeOnce(ctx, s, name) }
		ask := once
		if s.again {
			ask = func() error { return w.wait(ctx, once) }
		}
		if err := ask(); err != nil {
			return fmt.Errorf("%v on %s: %w", s.block, name, err)
		}
	}
	return nil
}

// typeOnce types the block of a step once.
func (w *world) typeOnce(ctx context.Context, s step, name string) error {
	follows := strings.Contains(s.block.text, "--follow")
	out, err := w.typed(ctx, name, s.block.text, follows, func(out string) bool { return len(missing(s.want, out)) == 0 })
	if w.echo {
		fmt.Print(out)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s%s", err, s.block.text, out)
	}
	if lines := strings.Split(strings.TrimSpace(out), "\n"); s.same && len(slices.Compact(lines)) != 1 {
		return fmt.Errorf("these lines should be the same:\n%s", out)
	}
	if lines := missing(s.want, out); len(lines) > 0 {
		return fmt.Errorf("it does not print\n%s\nbut\n%s", strings.Join(lines, "\n"), out)
	}
	return nil
}

// writes has a block be the contents of the file that the page names, or lines of it.
func (w *world) writes(b block, name string) error {
	file := b.fileName()
	if file == "" {
		return fmt.Errorf("which file is it? The line before it does not say (`name.yaml`)")
	}
	if !path.IsAbs(file) {
		file = "/root/cell-main/" + file // where the reader is
	}
	file = filepath.Join(w.dir, name, file)
	text := b.text
	if old, err := os.ReadFile(file); err == nil {
		text = merge(string(old), text)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// checks has chubbyd check the lines of a block with the configuration of a host.
func (w *world) checks(ctx context.Context, b block, name string) error {
	const trial = "/tmp/trial.yaml"
	old, err := os.ReadFile(filepath.Join(w.dir, name, "etc/chubby/chubbyd.yaml"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, name, trial), []byte(merge(string(old), b.text)), 0o644); err != nil { //nolint:gosec // it has no secret
		return err
	}
	out, err := w.typed(ctx, name, "cd /etc/chubby && set -a && . ./env && chubbyd config show --config "+trial, false, nil)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// merge puts the keys of a block in place of those in a file, or beside them.
func merge(file, lines string) string {
	var kept strings.Builder
	fresh := map[string]bool{}
	for line := range strings.Lines(lines) {
		if name, _, ok := strings.Cut(line, ":"); ok && line[0] != ' ' {
			fresh[name] = true
		}
	}
	skip := false
	for line := range strings.Lines(file) {
		if name, _, ok := strings.Cut(line, ":"); ok && line[0] != ' ' {
			skip = fresh[name]
		}
		if !skip {
			kept.WriteString(line)
		}
	}
	return kept.String() + lines
}

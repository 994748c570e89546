package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// result is what became of a mutant.
type result string

const (
	notRun     result = ""
	notJudged  result = "not judged" // tests that reach it, or may reach it, fail without a mutant
	killed     result = "killed"
	survived   result = "SURVIVED"
	notReached result = "not reached"
)

// runner runs the mutants of a package.
type runner struct {
	pkg      *sourcePackage
	dir      string // for what it writes
	overlay  string
	binaries map[string]*binary // by package
	reaching map[int][]*test    // by mutant
	failing  bool               // a test fails without a mutant: what else it would reach is not known
}

// binary is the test binary of a package, with all mutants in it.
type binary struct {
	file, dir string
	tests     map[string]*test
}

type test struct {
	name  string
	whole bool // it does not run -short, because a mark names it
	took  time.Duration
	err   error // it failed without a mutant
}

// runAll runs the chosen mutants, and notes what became of them.
func (r *runner) runAll(ctx context.Context) (err error) {
	if r.overlay, err = r.pkg.writeOverlay(r.dir); err != nil {
		return err
	}
	b, err := r.build(ctx, r.pkg.path)
	if err != nil {
		return err
	}
	if b.dir, err = mirror(r.pkg.root, r.pkg.path, filepath.Join(r.dir, "tree")); err != nil {
		return err
	}
	if slices.ContainsFunc(r.pkg.chosen, func(m *mutant) bool { return m.mark == nil || m.mark.test == "" }) {
		if err := r.traceAll(ctx, b); err != nil {
			return err
		}
	}
	for _, m := range r.pkg.chosen {
		if err := r.runMutant(ctx, b, m); err != nil {
			return err
		}
	}
	return nil
}

// build compiles the tests of a package, with the mutants of this one.
func (r *runner) build(ctx context.Context, path string) (*binary, error) {
	if b := r.binaries[path]; b != nil {
		return b, nil
	}
	b := &binary{file: filepath.Join(r.dir, fmt.Sprintf("%d.test", len(r.binaries))), dir: filepath.Join(r.pkg.root, path), tests: map[string]*test{}}
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+r.overlay, "-o", b.file, path)
	compile.Dir = r.pkg.root
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s with the mutants of %s: %w: %s", path, r.pkg.path, err, out)
	}
	r.binaries[path] = b
	if _, err := os.Stat(b.file); err != nil {
		return b, nil // there is no test in it
	}
	list := exec.CommandContext(ctx, b.file, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = b.dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", path, err)
	}
	for _, name := range strings.Fields(string(out)) {
		b.tests[name] = &test{name: name}
	}
	return b, nil
}

// traceAll runs each test of the package without a mutant, and notes which mutants it reaches.
func (r *runner) traceAll(ctx context.Context, b *binary) error {
	r.reaching = map[int][]*test{}
	for _, t := range b.tests {
		trace := filepath.Join(r.dir, "trace")
		if err := r.try(ctx, b, t, "CHUBBY_MUTANT_TRACE="+trace); err != nil {
			return err
		}
		reached, err := os.ReadFile(trace)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		os.Remove(trace)
		for line := range strings.Lines(string(reached)) {
			id, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				return fmt.Errorf("the trace of %s: %w", t.name, err)
			}
			r.reaching[id] = append(r.reaching[id], t)
		}
	}
	for _, list := range r.reaching {
		slices.SortFunc(list, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	}
	return nil
}

// try runs a test without a mutant. A test that fails then cannot judge mutants.
func (r *runner) try(ctx context.Context, b *binary, t *test, env string) error {
	began := time.Now()
	printed, err := r.run(ctx, b, []*test{t}, 5*time.Minute, env)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.took, t.err = time.Since(began), err
	if err != nil {
		r.failing = true
		fmt.Printf("%s fails without a mutant, and judges none: %v\n%s\n", t.name, err, printed[max(0, len(printed)-1000):])
	}
	return nil
}

// runMutant runs a mutant against the tests that reach it.
func (r *runner) runMutant(ctx context.Context, b *binary, m *mutant) error {
	tests := r.reaching[m.id]
	if m.mark != nil && m.mark.test != "" {
		named, t, err := r.named(ctx, m.mark)
		if err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
		b, tests = named, []*test{t}
	}
	if len(tests) == 0 {
		m.result = notReached
		if r.failing {
			m.result = notJudged
		}
		return nil
	}
	err := r.judge(ctx, b, m, tests)
	if err == nil && m.result == killed && m.same != nil { // a test that fails by chance must not make a mark stale
		err = r.judge(ctx, b, m, tests)
	}
	return err
}

// judge runs tests until one notices a mutant. Tests that run together start one process less, and fail later.
func (r *runner) judge(ctx context.Context, b *binary, m *mutant, tests []*test) error {
	unnoticed := survived
	if fails := func(t *test) bool { return t.err != nil }; slices.ContainsFunc(tests, fails) {
		unnoticed, tests = notJudged, slices.DeleteFunc(slices.Clone(tests), fails)
	}
	for size := 4; len(tests) > 0; size *= 2 {
		batch := tests[:min(size, len(tests))]
		tests = tests[len(batch):]
		var took time.Duration
		for _, t := range batch {
			took += t.took
		}
		printed, err := r.run(ctx, b, batch, 5*time.Second+5*took, "CHUBBY_MUTANT="+strconv.Itoa(m.id))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			m.result, m.killer = killed, failedTest(printed, batch)
			return nil
		}
	}
	m.result = unnoticed
	return nil
}

// named returns the test that a mark names, after it has run without the mutant.
func (r *runner) named(ctx context.Context, mark *replacement) (*binary, *test, error) {
	b, err := r.build(ctx, mark.pkg)
	if err != nil {
		return nil, nil, err
	}
	t := b.tests[mark.test]
	if t == nil {
		return nil, nil, fmt.Errorf("%s has no test %s", mark.pkg, mark.test)
	}
	if !t.whole {
		t.whole = true
		err = r.try(ctx, b, t, "CHUBBY_MUTANT=0")
	}
	return b, t, err
}

var failure = regexp.MustCompile(`--- FAIL: (\w+)`)

// failedTest returns the test that failed, as far as the output tells.
func failedTest(printed string, batch []*test) string {
	if found := failure.FindStringSubmatch(printed); found != nil {
		return found[1]
	}
	if len(batch) == 1 {
		return batch[0].name
	}
	return fmt.Sprintf("one of %d tests", len(batch))
}

// run runs tests of a binary, until the first fails. A mutant may ask for memory without an end, so a
// limit of 16 GB of addresses is set.
func (r *runner) run(ctx context.Context, b *binary, tests []*test, limit time.Duration, env string) (string, error) {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 16000000; exec "$0" "$@"`, b.file, "-test.run=^("+strings.Join(names, "|")+")$",
		"-test.failfast", "-test.timeout="+limit.String(), "-test.short="+strconv.FormatBool(!tests[0].whole))
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+r.overlay)) // also for what tests build
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with the processes that tests started
	cmd.WaitDelay = time.Second
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err := cmd.Run()
	return printed.String(), err
}

// mirror makes a directory that has links to the files of a package, in a tree like that around it. Tests of
// mutants run there: a mutant may take the working directory for a temporary one.
func mirror(root, path, in string) (dir string, err error) {
	dir = in
	names := slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "." })
	for _, below := range append(names, "") {
		entries, err := os.ReadDir(root)
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		for _, e := range entries {
			if e.Name() == below {
				continue
			}
			if err := os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())); err != nil {
				return "", err
			}
		}
		root, dir = filepath.Join(root, below), filepath.Join(dir, below)
	}
	return dir, nil
}

// Command mutants changes the source of a package in many small ways, and shows which of these
// changes no test notices. Run it in the tools directory:
//
//	go run ./mutants ./session              every mutant of a package
//	go run ./mutants -changed ./client      those of lines that changed on this branch
//	go run ./mutants -n -only leases ./session
//
// A mutant is one change: a statement is removed, a condition is constant, a boundary moves, an
// operator or a literal turns into its opposite, a function returns zero values, a field of a literal
// stays zero (statements.go and expressions.go have the rules). All mutants of a package are
// compiled into one test binary, each behind a call that asks whether it is chosen (chooser.go); an
// environment variable chooses one. So the package is built once, and the source on disk stays as it
// is: the go command compiles an overlay.
//
// Each test runs once without a mutant, and the binary records which mutants the test reaches.
// Then each mutant runs against the tests that reach it, the fastest first, until one fails: the
// mutant is killed. If none fails, it survives: either a test is missing, or the mutant does the
// same as the original. The program fails if a mutant survives, unless a mark accepts that, and if tests
// that fail without a mutant cannot judge it. It counts mutants for which -budget leaves no time, and does not
// fail for them.
//
// Marks are comments at the line they speak of (marks.go):
//
//	//mutants: same (REASON)   above a line or at its end: mutants of this line may survive;
//	                           at the end of the line of a func: mutants of the whole function
//	//mutant: REPLACEMENT      above a line: a mutant in which REPLACEMENT is in that line's place
//	//mutant: REPLACEMENT //by TestName of ./cell   only that test notices
//
// A mark is stale if all mutants that it accepts are killed; then the program fails, too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	root     string
	changed  bool
	part     string
	sample   int
	budget   time.Duration
	only     *regexp.Regexp
	list     bool
	marks    bool
	tolerant bool
	verbose  bool
}

func main() {
	o := options{only: regexp.MustCompile("")}
	flag.StringVar(&o.root, "root", "..", "the root of the repository")
	flag.BoolVar(&o.changed, "changed", false, "only mutants of lines that changed since this branch left main; on main, since the commit before the last")
	flag.StringVar(&o.part, "part", "", "only a part of the mutants: I/N, with I from 1 to N")
	flag.IntVar(&o.sample, "sample", 0, "only so many mutants of each package, spread evenly")
	flag.DurationVar(&o.budget, "budget", 24*time.Hour, "stop after this time; what has not run by then is not judged")
	flag.Func("only", "only mutants whose file:function matches this regular expression", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	flag.BoolVar(&o.list, "n", false, "list the mutants, run none")
	flag.BoolVar(&o.marks, "marks", false, "only the mutants that marks describe")
	flag.BoolVar(&o.tolerant, "tolerant", false, "do not fail for survivors of rules, only for those of marks")
	flag.BoolVar(&o.verbose, "v", false, "show killed mutants, too, each with the test that noticed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runPackages(ctx, o, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}

// runPackages runs the mutants of packages, one package after the other. Of the budget that is left each takes its share.
func runPackages(ctx context.Context, o options, patterns []string) (err error) {
	end := time.Now().Add(o.budget)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	packages, err := o.load(ctx, patterns)
	if isOver(ctx) {
		fmt.Printf("the budget of %v is used up before any mutant has run\n", o.budget)
		return nil
	}
	if err != nil {
		return err
	}
	var failed []error
	for i, p := range packages {
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(packages)-i))
		failed = append(failed, o.runPackage(share, p))
		cancel()
	}
	return errors.Join(failed...)
}

// load reads the packages that have mutants which the flags ask for, and makes these mutants.
func (o options) load(ctx context.Context, patterns []string) (packages []*sourcePackage, err error) {
	var commit, is string
	var changed changes
	if o.changed {
		if commit, is, err = changedSince(ctx, o.root); err != nil {
			return nil, err
		}
		if changed, err = changedLines(ctx, o.root, commit); err != nil {
			return nil, err
		}
	}
	paths, err := listPackages(ctx, o.root, patterns)
	if err != nil {
		return nil, err
	}
	count := 0
	for _, path := range paths {
		choose := o.chooserOf(path, changed)
		if choose == nil {
			continue
		}
		p, err := loadPackage(ctx, o.root, path)
		if err != nil {
			return nil, err
		}
		if err := p.mutate(choose); err != nil {
			return nil, err
		}
		if p.chosen, err = o.choosePart(p.mutants); err != nil {
			return nil, err
		}
		if len(p.chosen) > 0 {
			packages = append(packages, p)
		}
		count += len(p.chosen)
	}
	if o.changed {
		fmt.Printf("%d mutants of lines that changed since %.12s (%s)\n", count, commit, is)
	}
	return packages, nil
}

// runPackage runs the chosen mutants of a package, and reports what became of them.
func (o options) runPackage(ctx context.Context, p *sourcePackage) error {
	if o.list {
		for _, m := range p.chosen {
			fmt.Println(m)
		}
		fmt.Printf("%s: %d mutants\n", p.path, len(p.chosen))
		return nil
	}
	began := time.Now()
	dir, err := os.MkdirTemp("", "chubby-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &runner{pkg: p, dir: dir, binaries: map[string]*binary{}}
	if err = r.runAll(ctx); isOver(ctx) {
		err = nil
	}
	return errors.Join(err, o.report(p, time.Since(began)))
}

// isOver reports whether the budget is used up. The runner does not judge what is left then.
func isOver(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

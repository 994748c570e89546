// Command mutants changes the source of a package in many small ways, and shows which of these
// changes no test notices. Run it in the tools directory:
//
//	go run ./mutants ./session              every mutant of a package
//	go run ./mutants -diff HEAD~1 ./client  those of lines that changed since a commit
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
// same as the original. The program fails if a mutant survives, unless a mark accepts that.
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
	diff     string
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
	flag.StringVar(&o.diff, "diff", "", "only mutants of lines that changed since this commit")
	flag.StringVar(&o.part, "part", "", "only a part of the mutants: I/N, with I from 1 to N")
	flag.IntVar(&o.sample, "sample", 0, "only so many mutants of each package, spread evenly")
	flag.DurationVar(&o.budget, "budget", 0, "stop after this time; what has not run by then is not judged")
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
	if o.budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.budget, errBudget)
		defer cancel()
	}
	if err := runPackages(ctx, o, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}

// errBudget is why a run ends early that had a budget.
var errBudget = errors.New("the budget is used up")

// runPackages runs the mutants of packages, one package after the other.
func runPackages(ctx context.Context, o options, patterns []string) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	o.root = root
	paths, err := listPackages(ctx, root, patterns)
	if err != nil {
		return unlessOver(ctx, err)
	}
	var failed []error
	for _, path := range paths {
		failed = append(failed, runPackage(ctx, o, path))
		if cause := context.Cause(ctx); errors.Is(cause, errBudget) {
			fmt.Printf("%v after %v\n", cause, o.budget)
			break
		} else if cause != nil {
			return cause
		}
	}
	return errors.Join(failed...)
}

// runPackage runs the mutants of one package, and reports what became of them.
func runPackage(ctx context.Context, o options, path string) error {
	began := time.Now()
	choose, err := o.chooserOf(path)
	if err != nil || choose == nil {
		return err
	}
	p, err := loadPackage(ctx, o.root, path)
	if err != nil {
		return unlessOver(ctx, err)
	}
	if err := p.mutate(choose); err != nil {
		return err
	}
	if o.list {
		for _, m := range p.mutants {
			fmt.Println(m)
		}
		fmt.Printf("%s: %d mutants\n", path, len(p.mutants))
		return nil
	}
	chosen, err := o.choosePart(p.mutants)
	if err != nil || len(chosen) == 0 {
		return err
	}
	dir, err := os.MkdirTemp("", "chubby-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &runner{pkg: p, dir: dir, binaries: map[string]*binary{}}
	err = r.runAll(ctx, chosen)
	return errors.Join(unlessOver(ctx, err), report(o, p, chosen, time.Since(began)))
}

// unlessOver returns an error, or nil if the budget is used up: what has not run is not judged.
func unlessOver(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errBudget) {
		return nil
	}
	return err
}

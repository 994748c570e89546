// Command nightly runs the checks that are too long for every change, one after the other. After
// each of them it writes the result to a page. With -only it runs some of them, and leaves the
// page's results of the others. Run it in the tools directory, as `make nightly` does. If a check
// fails, nightly runs the others, and then fails.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// step is one make target, and its time limit.
type step struct {
	target string
	args   []string
	shows  string
	limit  time.Duration
}

// steps are the checks. Their limits add up to less than twelve hours on a machine of two
// cores.
func steps(fuzz time.Duration) []step {
	return []step{
		{"race", nil, "every test three times, in random order, under the race detector", 90 * time.Minute},
		{"acceptance", nil, "the drills as often as the promises say", 150 * time.Minute},
		{"endurance", nil, "the limits at their full size, and an hour of random clients and troubles", 150 * time.Minute},
		{"mutants", nil, "the source changed in small ways, one at a time; a test has to fail", 180 * time.Minute},
		{"fuzz", []string{"FUZZTIME=" + fuzz.String()}, "every fuzz target", 120 * time.Minute},
		{"steady", nil, "a cell under load keeps its master", 20 * time.Minute},
	}
}

func main() {
	docs := flag.String("docs", "../docs/dev/nightly.md", "write the page to this file")
	only := flag.String("only", "", "run only these targets, separated by commas")
	fuzz := flag.Duration("fuzztime", 2*time.Minute, "time for each fuzz target")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runSteps(ctx, steps(*fuzz), *docs, *only); err != nil {
		fmt.Fprintf(os.Stderr, "nightly: %v\n", err)
		os.Exit(1)
	}
}

// outcome is the result of one step.
type outcome struct {
	step
	took  time.Duration
	lines []string // the last lines of its output
	err   error
}

func runSteps(ctx context.Context, all []step, docs, only string) error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	p, err := openPage(docs, all)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range all {
		if only != "" && !strings.Contains(","+only+",", ","+s.target+",") {
			continue
		}
		at, err := checkout(ctx, root)
		if err != nil {
			return err
		}
		o := s.runStep(ctx, root)
		if ctx.Err() != nil {
			return errors.Join(append(failed, fmt.Errorf("interrupted; the page does not tell of make %s", s.target))...)
		}
		if o.err != nil {
			failed = append(failed, fmt.Errorf("make %s: %w", s.target, o.err))
		}
		if err := p.add(o, at); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// runStep runs a step in its own process group, which ends with it.
func (s step) runStep(ctx context.Context, root string) outcome {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	fmt.Printf("== make %s\n", strings.Join(append([]string{s.target}, s.args...), " "))
	cmd := exec.CommandContext(ctx, "make", append([]string{"-C", root, s.target}, s.args...)...)
	var kept bytes.Buffer
	cmd.Stdout = io.MultiWriter(os.Stdout, &kept)
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	began := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done within %v: %w", s.limit, err)
	}
	return outcome{step: s, took: time.Since(began), lines: last(&kept, 8), err: err}
}

// last returns the last n lines of a step's output that are not empty.
func last(printed io.Reader, n int) []string {
	var lines []string
	scanner := bufio.NewScanner(printed)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if text := strings.TrimSpace(scanner.Text()); text != "" {
			lines = append(lines, text)
		}
	}
	return lines[max(len(lines)-n, 0):]
}

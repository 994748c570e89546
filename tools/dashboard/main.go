package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	root, chubbyd, prometheus, chromium string
	recording, pictures                 string
	before, dead, after                 time.Duration
}

// recorded says what a recording holds.
type recorded struct {
	Cell   string `json:"cell"`
	From   int64  `json:"from"` // in ms since 1970, as browsers have it
	To     int64  `json:"to"`
	Scrape int64  `json:"scrape"` // the interval, in ms
}

// cellName is the cell of the pictures; scrape is how often its metrics are asked for; drillTime is how long the drill lasts.
const (
	cellName  = "main"
	scrape    = 2 * time.Second
	drillTime = 10 * time.Second
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "the directory of the project")
	flag.StringVar(&o.chubbyd, "chubbyd", "../../bin/chubbyd", "the program")
	flag.StringVar(&o.prometheus, "prometheus", "../../bin/prometheus", "Prometheus")
	flag.StringVar(&o.chromium, "chromium", "/usr/bin/chromium", "the browser")
	flag.StringVar(&o.recording, "recording", "", "a directory for what Prometheus records; one that a run before has left is drawn again; empty: none is kept")
	flag.StringVar(&o.pictures, "pictures", "", "a directory for the pictures; empty: none are written")
	flag.DurationVar(&o.before, "before", 150*time.Second, "how long the load runs before the master is killed")
	flag.DurationVar(&o.dead, "dead", 60*time.Second, "how long the replica that was the master is dead")
	flag.DurationVar(&o.after, "after", 90*time.Second, "how long the load runs after it was started again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	for _, file := range []*string{&o.root, &o.chubbyd, &o.prometheus, &o.recording} {
		if *file == "" {
			continue
		}
		absolute, err := filepath.Abs(*file)
		if err != nil {
			return err
		}
		*file = absolute
	}
	if o.recording == "" {
		dir, err := os.MkdirTemp("", "chubby-dashboard-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.recording = dir
	}
	note := filepath.Join(o.recording, "run.json")
	text, err := os.ReadFile(note)
	if errors.Is(err, os.ErrNotExist) {
		var r recorded
		if r, err = record(ctx, o); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		if text, err = json.Marshal(r); err == nil {
			err = os.WriteFile(note, text, 0o644)
		}
	}
	if err != nil {
		return err
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", note, err)
	}
	return draw(ctx, o, r)
}

// record runs the cell, its programs and Prometheus, with a drill and then a fail-over in the middle.
func record(ctx context.Context, o options) (r recorded, err error) {
	dir, err := os.MkdirTemp("", "chubby-dashboard-cell-*")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cell, err := newCell(ctx, o.chubbyd, dir)
	if err != nil {
		return r, err
	}
	defer cell.stop()
	if err := cell.startAll(ctx); err != nil {
		return r, err
	}
	all, err := startPrograms(ctx, cell)
	if err != nil {
		return r, err
	}
	defer all.stop()
	monitor, err := startPrometheus(ctx, o, recordPort, scrapeConfig(o, cell, all))
	if err != nil {
		return r, err
	}
	defer monitor.stop()
	// The first master of all is marked for a minute, too. By then there are values for all rates.
	if err := wait(ctx, 80*time.Second); err != nil {
		return r, err
	}
	r = recorded{Cell: cellName, From: time.Now().UnixMilli(), Scrape: scrape.Milliseconds()}
	fmt.Printf("%s of load, with a drill in it\n", o.before)
	if err := wait(ctx, o.before/2); err != nil {
		return r, err
	}
	if err := cell.drill(ctx, min(drillTime, o.before/4)); err != nil {
		return r, fmt.Errorf("the drill: %w", err)
	}
	if err := wait(ctx, o.before/4); err != nil {
		return r, err
	}
	master, err := cell.master(ctx)
	if err != nil {
		return r, err
	}
	killed := time.Now()
	cell.kill(master)
	if _, err := cell.master(ctx); err != nil {
		return r, err
	}
	fmt.Printf("r%d, the master, was killed; another answers %.1f s later\n", master+1, time.Since(killed).Seconds())
	if err := wait(ctx, o.dead); err != nil {
		return r, err
	}
	if err := cell.start(ctx, master); err != nil {
		return r, err
	}
	fmt.Printf("r%d was started again; %s more\n", master+1, o.after)
	if err := wait(ctx, o.after); err != nil {
		return r, err
	}
	r.To = time.Now().UnixMilli()
	return r, all.failed()
}

// wait waits, unless it is over.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

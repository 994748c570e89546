// Command bench measures a Chubby cell of five processes on this machine, and beside it, by turns and
// under the same load, a pinned etcd of five processes and, if they are installed, a ZooKeeper of five
// and a Redis of one.
//
// Every round starts each system anew, with empty data on a real disk and with
// fsync on. Every worker has its own connection and session. Most rows of the
// table are closed loops: a worker begins its next operation when the last one
// has ended. Latencies are those of the whole operation at the worker. Two rows
// measure single times: until all watchers have been told of a change, and for
// how long clients have no answer when the leader is killed.
//
// The command is a separate module, so that users of Chubby do not download etcd. It also runs
// itself as the other processes that it needs: an etcd member, a keeper that ends chubbyd when the
// bench is gone, a busy loop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options is the command line.
type options struct {
	systems []string
	rounds  int
	starts  int
	warm    time.Duration // of each row, not counted
	measure time.Duration // of each row, counted
	rows    string        // only those whose name contains it
	dir     string        // the directory for data
	repo    string        // the directory of Chubby's source
	output  string        // text or json
	page    string        // a file to write the results page to
	from    string        // a results file to report instead of measuring
	steady  time.Duration // run the steady check for this long instead
	pairs   bool          // measure two systems in pairs instead
	atMost  float64       // what the second may need of the first's time; 0 is no limit
	growth  bool          // measure how a cell's figures change with its size instead

	sizing bool // measure what one of each thing costs instead

	disks        bool            // measure at places with slower disks and longer links instead
	syncs, trips []time.Duration // of these places; 0 is this machine
	at           place           // that is measured now

	processorAtMost float64 // as atMost, of processor time

	crowds    []int         // measure crowds of so many sessions instead
	crowdTime time.Duration // for how long the largest is watched

	mostNodes, mostSessions int           // of the growth
	settle                  time.Duration // after a growth, before it is measured
	allEtcd                 bool          // etcd's clients connect to every member
	logStore                string        // chubbyd's

	acquisitions int64         // of the row of that name; 0 leaves it out
	watchers     int           // 0 leaves the row out
	sessions     int           // that are idle; 0 leaves the row out
	kills        int           // of the leader, a round, and hand-overs; 0 leaves these rows out
	etcdAttempt  time.Duration // bounds an etcd client's write; 0 is no bound
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case memberCommand:
			return runMember(args[1:])
		case keepCommand:
			return runKeeper(args[1:])
		case spinCommand:
			return runSpinner()
		case collectorCommand:
			return runCollector()
		case fsyncCommand:
			return runFsync(args[1:])
		}
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.from != "" {
		results, err := loadRecord(o.from)
		if err != nil {
			return err
		}
		if o.pairs {
			return errors.Join(results.reportPairs(o, out), results.checkPairs(o))
		}
		return report(results, o, out)
	}
	if o.steady > 0 {
		return runSteady(ctx, o, out)
	}
	switch {
	case o.pairs:
		return measureOn(ctx, o, out, runPairs)
	case o.growth:
		return measureOn(ctx, o, out, runGrowth)
	case o.disks:
		return measureOn(ctx, o, out, surveyFirst)
	case o.sizing:
		return measureOn(ctx, o, out, runSizing)
	case len(o.crowds) > 0:
		return measureOn(ctx, o, out, runCrowd)
	default:
		return measureOn(ctx, o, out, runRounds)
	}
}

// measureOn has something measured in a temporary directory of the disk that is asked for, and recorded beside what the
// machine is.
func measureOn(ctx context.Context, o options, out io.Writer, measure func(context.Context, options, string, *record, io.Writer) error) (err error) {
	dir, err := os.MkdirTemp(o.dir, "chubby-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	about, err := lookAtMachine(dir)
	if err != nil {
		return err
	}
	return measure(ctx, o, dir, newRecord(about, o), out)
}

func parseOptions(args []string) (options, error) {
	var o options
	var systems string
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.StringVar(&systems, "systems", "", "what to measure, in this order of turns; all that are installed if empty: "+strings.Join(systemNames(), ", ")+"; or "+strings.Join(variants(), ", "))
	flags.IntVar(&o.rounds, "rounds", 3, "rounds; medians over them are printed")
	flags.DurationVar(&o.warm, "warm", time.Second, "warm-up of each row")
	flags.DurationVar(&o.measure, "measure", 5*time.Second, "measurement of each row")
	flags.StringVar(&o.rows, "rows", "", "measure only rows whose name contains this")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "directory for data, on a real disk; a temporary one is made in it and removed")
	flags.StringVar(&o.repo, "repo", "..", "Chubby's source")
	flags.StringVar(&o.output, "o", "text", "text or json (one object a line)")
	flags.StringVar(&o.page, "docs", "", "also write the results page to this file, and plots and results.json into the directory of the same name beside it")
	flags.StringVar(&o.from, "from", "", "measure nothing, and report what is in this results.json")
	flags.DurationVar(&o.steady, "steady", 0, "instead keep the first system under load beside two busy loops for so long; fail if its term changes")
	flags.BoolVar(&o.pairs, "pairs", false, "instead keep both of two systems running, and measure each row on one after the other, -rounds times; with -docs, write that page")
	flags.Float64Var(&o.atMost, "at-most", 0, "fail if an operation of the second system of -pairs takes more than so many times as long as the first's")
	flags.Float64Var(&o.processorAtMost, "processor-at-most", 0, "fail if an operation of the second system of -pairs takes more than so many times as much processor time as the first's")
	flags.IntVar(&o.starts, "starts", 1, "with -pairs, start both systems so many times, and measure -rounds pairs of each row each time")
	flags.BoolVar(&o.growth, "growth", false, "instead measure a cell as its nodes, sessions, replicas and contenders become more; with -docs, write that page")
	flags.BoolVar(&o.sizing, "sizing", false, "instead measure what one session, one node, one write costs a replica; with -docs, write that page, and the costs that chubbyctl reckons with")
	flags.BoolVar(&o.disks, "disks", false, "instead measure some rows with slower disks, and with longer links between the processes of a system; with -docs, write that page; fail if an aim of it is missed")
	delays := func(to *[]time.Duration, name, says, standard string) {
		flags.Func(name, says+" (default "+standard+")", func(text string) (err error) {
			*to, err = parseDelays(text)
			return err
		})
		*to, _ = parseDelays(standard)
	}
	delays(&o.syncs, "syncs", "by how much -disks makes each fsync longer; durations with commas between them", "0,2ms,5ms,20ms")
	delays(&o.trips, "trips", "how far apart there and back -disks takes the processes of a system, by relays; durations with commas between them", "0,2ms,10ms,20ms,50ms")
	flags.Func("crowd", "instead measure what so many idle sessions cost, over few connections; numbers with commas between them; with -docs, write that page", func(text string) (err error) {
		o.crowds, err = parseNumbers(text)
		return err
	})
	flags.DurationVar(&o.crowdTime, "crowd-time", 10*time.Minute, "for how long the last crowd is watched; the others for a minute at most")
	flags.IntVar(&o.mostNodes, "most-nodes", 1_000_000, "the most nodes that -growth makes")
	flags.IntVar(&o.mostSessions, "most-sessions", 100_000, "the most idle sessions that -growth opens")
	flags.DurationVar(&o.settle, "settle", 15*time.Second, "how long -growth leaves a cell alone after it has grown")
	flags.BoolVar(&o.allEtcd, "etcd-all", false, "give etcd's clients every member, not the leader alone")
	flags.StringVar(&o.logStore, "log-store", "", "chubbyd's --log-store; empty is its default")
	flags.Int64Var(&o.acquisitions, "acquisitions", 5000, "acquisitions of the rows that count them, which end after 30 s at the latest; 0 leaves them out")
	flags.IntVar(&o.watchers, "watchers", 1000, "watchers, each with a connection; 0 leaves their row out")
	flags.IntVar(&o.sessions, "sessions", 1000, "idle sessions, each with a connection; 0 leaves their row out")
	flags.IntVar(&o.kills, "kills", 4, "how often a round kills the leader, and how often it has it hand over; 0 leaves these rows out")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.output != "text" && o.output != "json" {
		return o, fmt.Errorf("-o %s: want text or json", o.output)
	}
	if o.from != "" {
		return o, nil
	}
	if o.disks {
		o.kills = min(o.kills, maxKills)
		if len(places(o)) == 0 {
			return o, errors.New("-disks with neither -syncs nor -trips: want at least one place; -syncs 0 is this machine as it is")
		}
	}
	o.systems = strings.Split(systems, ",")
	if systems == "" {
		o.systems = installedSystems(o, os.Stderr)
	}
	if o.acquisitions < 0 || o.watchers < 0 || o.sessions < 0 || o.kills < 0 {
		return o, fmt.Errorf("-acquisitions %d -watchers %d -sessions %d -kills %d: want 0 or more", o.acquisitions, o.watchers, o.sessions, o.kills)
	}
	if o.pairs && len(o.systems) != 2 || o.atMost < 0 || o.processorAtMost < 0 {
		return o, fmt.Errorf("-pairs of %d systems, -at-most %v, -processor-at-most %v: want two systems, and limits of 0 (none) or more", len(o.systems), o.atMost, o.processorAtMost)
	}
	if o.starts < 1 || o.starts > 1 && !o.pairs {
		return o, fmt.Errorf("-starts %d: want one or more, and more than one with -pairs only", o.starts)
	}
	if o.rounds < 1 || o.measure <= 0 || o.warm < 0 {
		return o, fmt.Errorf("-rounds %d -measure %v -warm %v: want at least one round of some length", o.rounds, o.measure, o.warm)
	}
	for _, name := range o.systems {
		if _, err := newSystem(name, o); err != nil {
			return o, err
		}
	}
	return o, refuseMemoryDisk(o.dir)
}

// parseNumbers reads positive numbers with commas between them.
func parseNumbers(text string) ([]int, error) {
	var numbers []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: want whole numbers from 1, with commas between them", text)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

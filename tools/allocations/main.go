// Command allocations runs the benchmarks of the hot paths and compares what they allocate with
// the checked-in table, docs/dev/allocations.md. Counts of allocations and bytes hardly depend on
// the load of the machine, so a change that costs a hot path something is found before it
// is merged. What a cell does by the clock is counted with its calls, more of it the slower the machine is; so each
// benchmark runs a few times, and its least counts are taken. Run it in the tools directory, as `make allocations` does; with -write it writes the table.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/perf/benchfmt"
)

// suite is benchmarks of one package, each run a fixed number of times, for what they allocate
// depends a little on how often buffers have grown.
type suite struct {
	pkg, bench string
	times      int
}

// runs is how often each benchmark is run.
const runs = 3

// suites are those whose counts the table has.
func suites() []suite {
	return []suite{
		{"./raftfsm", "LockUnlock|Write|DecodeEntry|EncodeEntry", 500},
		{"./cell", "Cached", 10_000},
		{"./cell", "Calls", 1_000},
	}
}

// cost is what one operation allocates.
type cost struct{ allocs, bytes float64 }

func main() {
	docs := flag.String("docs", "../docs/dev/allocations.md", "the table")
	write := flag.Bool("write", false, "write the table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := run(ctx, *docs, *write); err != nil {
		fmt.Fprintf(os.Stderr, "allocations: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, docs string, write bool) error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	now := map[string]cost{}
	for _, s := range suites() {
		out, err := s.measure(ctx, root)
		if err != nil {
			return fmt.Errorf("go test -bench '%s' %s: %w", s.bench, s.pkg, err)
		}
		costs, err := costsOf(out)
		if err != nil {
			return err
		}
		maps.Copy(now, costs)
	}
	if write {
		return os.WriteFile(docs, []byte(page(now)), 0o644)
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		return err
	}
	table, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", docs, err)
	}
	return compare(os.Stdout, table, now)
}

// measure returns what the benchmarks of a suite print.
func (s suite) measure(ctx context.Context, root string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^Benchmark("+s.bench+")$",
		"-benchmem", "-count", fmt.Sprint(runs), "-benchtime", fmt.Sprintf("%dx", s.times), s.pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return out, nil
}

// costsOf reads what go test -bench printed: the least of each benchmark's runs.
func costsOf(out []byte) (map[string]cost, error) {
	costs := map[string]cost{}
	results := benchfmt.NewReader(bytes.NewReader(out), "go test")
	for results.Scan() {
		r, isResult := results.Result().(*benchfmt.Result)
		if !isResult {
			continue
		}
		allocs, counted := r.Value("allocs/op")
		size, sized := r.Value("B/op")
		if !counted || !sized {
			return nil, fmt.Errorf("%s does not count allocations", r.Name.Full())
		}
		name := string(r.Name.Full())
		if dash := strings.LastIndexByte(name, '-'); dash > 0 { // the number of processors
			name = name[:dash]
		}
		name = strings.ReplaceAll(name, "_", " ")
		if before, again := costs[name]; again {
			allocs, size = min(allocs, before.allocs), min(size, before.bytes)
		}
		costs[name] = cost{allocs, size}
	}
	if err := results.Err(); err != nil {
		return nil, err
	}
	if len(costs) == 0 {
		return nil, errors.New("no benchmark was run")
	}
	return costs, nil
}

// sorted returns the names of both, each once.
func sorted(a, b map[string]cost) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

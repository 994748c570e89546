package main

import (
	"context"
	"flag"
	"fmt"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/rules.txt and testdata/marks.txt")

// runTestdata runs all mutants of a package of testdata.
func runTestdata(t *testing.T, path string) *sourcePackage {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	p, err := loadPackage(t.Context(), root, path)
	if err == nil {
		err = p.mutate(func(*mutant) bool { return true })
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{pkg: p, dir: t.TempDir(), binaries: map[string]*binary{}}
	if err := r.runAll(t.Context(), p.mutants); err != nil {
		t.Fatal(err)
	}
	return p
}

// compare compares what became of mutants with a file, which lists what the rules make of the package.
func compare(t *testing.T, p *sourcePackage, file string) {
	t.Helper()
	var got strings.Builder
	for _, m := range p.mutants {
		fmt.Fprintf(&got, "%v | %s %s\n", m, m.result, m.killer)
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("other mutants than in %s, which -update writes:\n%s", file, got.String())
	}
}

// TestRules runs the mutants that each rule makes, and finds those that no test notices.
func TestRules(t *testing.T) {
	p := runTestdata(t, "./mutants/testdata/rules")
	compare(t, p, "testdata/rules.txt")
	if err := report(options{}, p, p.mutants, 0); err == nil {
		t.Error("mutants survived, and the report is no error")
	}
	if err := report(options{tolerant: true}, p, p.mutants, 0); err != nil {
		t.Errorf("a tolerant report: %v", err)
	}
}

// TestMarks runs the mutants of marks, some by the test of another package, and finds a stale mark.
func TestMarks(t *testing.T) {
	p := runTestdata(t, "./mutants/testdata/marks")
	compare(t, p, "testdata/marks.txt")
	if stale := (options{}).staleMarks(p, p.mutants); len(stale) != 1 || !strings.Contains(stale[0], "marks.go:16") {
		t.Errorf("stale marks: %q, want that of Twice", stale)
	}
	if stale := (options{}).staleMarks(p, p.mutants[:len(p.mutants)/2]); len(stale) != 0 {
		t.Errorf("marks are called stale before all their mutants have run: %q", stale)
	}
	if stale := (options{diff: "HEAD"}).staleMarks(p, p.mutants); len(stale) != 0 {
		t.Errorf("a mark of a function is called stale when only its changed lines have run: %q", stale)
	}
	survivor := slices.IndexFunc(p.mutants, func(m *mutant) bool { return m.mark != nil })
	p.mutants[survivor].result = survived
	if err := report(options{tolerant: true}, p, p.mutants, 0); err == nil || !strings.Contains(err.Error(), "no test notices 1 mutants") {
		t.Errorf("the report of a mark that no test notices: %v", err)
	}
}

// TestMarksAreRefused: a mark that does not say what it means must not be passed over in silence.
func TestMarksAreRefused(t *testing.T) {
	for _, text := range []string{
		"//mutants: same",
		"//mutants: same ()",
		"//mutant:",
		"//mutants: other (reason)",
		"x := 1 //mutant: x := 2",
	} {
		p := &sourcePackage{set: token.NewFileSet()}
		err := p.add("a.go", []byte("package a\n\nfunc f() {\n\t"+text+"\n\tprintln()\n}\n"))
		if err == nil || !strings.Contains(err.Error(), "a.go:4") {
			t.Errorf("%s: %v, want an error with its place", text, err)
		}
	}
	p := &sourcePackage{set: token.NewFileSet()}
	if err := p.add("a.go", []byte("package a\n\n//mutant: const n = 2\nconst n = 1\n")); err != nil {
		t.Fatal(err)
	}
	if err := p.mutate(func(*mutant) bool { return true }); err == nil || !strings.Contains(err.Error(), "a.go:4") {
		t.Errorf("a mark outside of functions: %v, want an error with its place", err)
	}
}

// TestChangedLines compares a file with a commit.
func TestChangedLines(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		args = append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git: %v: %s", err, out)
		}
	}
	git("init", "-q")
	write("1\n2\n3\n4\n5\n6\n")
	git("add", "a.go")
	git("commit", "-q", "-m", "one")
	if lines, err := changedLines(dir, "HEAD"); err != nil || len(lines) > 0 {
		t.Errorf("without a change: %v, %v", lines, err)
	}
	write("1\ntwo\n3\n5\n6\nseven\neight\n")
	lines, err := changedLines(dir, "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for line := 1; line <= 7; line++ {
		if want := line == 2 || line >= 6; lines["a.go"][line] != want {
			t.Errorf("line %d changed: %v, want %v", line, !want, want)
		}
	}
	if _, err := changedLines(dir, "nowhere"); err == nil {
		t.Error("there is no such commit, and no error")
	}
}

// TestMirror: tests find the files of their package and those around it, and leave nothing there.
func TestMirror(t *testing.T) {
	dir, err := mirror("..", "./mutants/testdata/rules", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string]bool{"rules.go": true, "../marks": true, "../../main.go": true, "../../../go.mod": true, "..": false, ".": false} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || (info.Mode()&os.ModeSymlink != 0) != link {
			t.Errorf("%s: %v, %v; want a link: %v", name, info, err, link)
		}
	}
}

// TestPartsAreTheWhole: each mutant is in one part.
func TestPartsAreTheWhole(t *testing.T) {
	all := []*mutant{{id: 1}, {id: 2}, {id: 3}, {id: 4}, {id: 5}}
	seen := map[*mutant]int{}
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		chosen, err := options{part: part}.choosePart(all)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range chosen {
			seen[m]++
		}
	}
	for _, m := range all {
		if seen[m] != 1 {
			t.Errorf("mutant %d is in %d parts", m.id, seen[m])
		}
	}
	for _, part := range []string{"0/3", "4/3", "1", "a/b"} {
		if _, err := (options{part: part}).choosePart(all); err == nil {
			t.Errorf("-part %s: no error", part)
		}
	}
	if sample, err := (options{sample: 2}).choosePart(all); err != nil || len(sample) != 2 || sample[0] != all[0] || sample[1] != all[2] {
		t.Errorf("a sample of 2: %v, %v", sample, err)
	}
}

// TestBudget: a run whose budget is used up has judged nothing, and does not fail.
func TestBudget(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, errBudget)
	defer cancel()
	if err := runPackages(ctx, options{root: "..", only: regexp.MustCompile("")}, []string{"./mutants/testdata/rules"}); err != nil {
		t.Error(err)
	}
	if err := runPackages(t.Context(), options{root: "..", only: regexp.MustCompile("")}, []string{"./nowhere"}); err == nil {
		t.Error("there is no such package, and no error")
	}
}

// TestOnly chooses mutants by file and function.
func TestOnly(t *testing.T) {
	choose, err := options{only: regexp.MustCompile(`^a\.go:Table\.`)}.chooserOf(".")
	if err != nil {
		t.Fatal(err)
	}
	if !choose(&mutant{file: "a.go", function: "Table.Get"}) || choose(&mutant{file: "b.go", function: "Table.Get"}) {
		t.Error("-only chooses others")
	}
}

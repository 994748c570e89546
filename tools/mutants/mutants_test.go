package main

import (
	"context"
	"flag"
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
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
	p.chosen = p.mutants
	r := &runner{pkg: p, dir: t.TempDir(), binaries: map[string]*binary{}}
	if err := r.runAll(t.Context()); err != nil {
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
	if err := (options{}).report(p, 0); err == nil {
		t.Error("mutants survived, and the report is no error")
	}
	if err := (options{tolerant: true}).report(p, 0); err != nil {
		t.Errorf("a tolerant report: %v", err)
	}
}

// TestNotJudged: a mutant that is reached by a test that always fails is not judged, and one that is reached by no other may be.
func TestNotJudged(t *testing.T) {
	p := runTestdata(t, "./mutants/testdata/user")
	if err := (options{tolerant: true}).report(p, 0); err == nil || !strings.Contains(err.Error(), "2 mutants are not judged") {
		t.Errorf("two mutants are not judged, and the report is: %v", err)
	}
}

// TestMarks runs the mutants of marks, some by the test of another package, and finds a stale mark.
func TestMarks(t *testing.T) {
	p := runTestdata(t, "./mutants/testdata/marks")
	compare(t, p, "testdata/marks.txt")
	if stale := (options{}).staleMarks(p); len(stale) != 1 || !strings.Contains(stale[0], "marks.go:16") {
		t.Errorf("stale marks: %q, want that of Twice", stale)
	}
	if stale := (options{changed: true}).staleMarks(p); len(stale) != 0 {
		t.Errorf("a mark of a function is called stale when only its changed lines have run: %q", stale)
	}
	marked := slices.IndexFunc(p.mutants, func(m *mutant) bool { return m.mark != nil })
	p.mutants[marked].result = survived
	if err := (options{tolerant: true}).report(p, 0); err == nil || !strings.Contains(err.Error(), "no test notices 1 mutants") {
		t.Errorf("the report of a mark that no test notices: %v", err)
	}
	p.mutants[slices.IndexFunc(p.mutants, func(m *mutant) bool { return m.function == "Twice" })].result = notRun
	if stale := (options{}).staleMarks(p); len(stale) != 0 {
		t.Errorf("marks are called stale before all their mutants have run: %q", stale)
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

// repository is a git repository with one file.
type repository struct {
	t   *testing.T
	dir string
}

func (r repository) git(args ...string) {
	r.t.Helper()
	args = append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)
	if _, err := git(r.t.Context(), r.dir, args...); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) write(text string) {
	if err := os.WriteFile(filepath.Join(r.dir, "a.go"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) commit(text string) {
	r.t.Helper()
	r.write(text)
	r.git("add", "a.go")
	r.git("commit", "-q", "-m", text)
}

func (r repository) clone(args ...string) repository {
	r.t.Helper()
	clone := repository{t: r.t, dir: r.t.TempDir()}
	clone.git(append(append([]string{"clone", "-q"}, args...), "file://"+r.dir, ".")...)
	return clone
}

func newRepository(t *testing.T) repository {
	r := repository{t: t, dir: t.TempDir()}
	r.git("init", "-q", "-b", "main")
	return r
}

// TestChangedLines compares a file with a commit.
func TestChangedLines(t *testing.T) {
	r := newRepository(t)
	r.commit("1\n2\n3\n4\n5\n6\nmoved moved moved moved\n")
	if changed, err := changedLines(t.Context(), r.dir, "HEAD"); err != nil || len(changed) > 0 {
		t.Errorf("without a change: %v, %v", changed, err)
	}
	r.write("1\ntwo\n\tmoved moved moved moved\n3\n5\n6\nseven\neight\n")
	changed, err := changedLines(t.Context(), r.dir, "HEAD")
	if want := (changes{"./.": {"a.go:2": true, "a.go:7": true, "a.go:8": true}}); err != nil || !reflect.DeepEqual(changed, want) {
		t.Errorf("changed: %v, %v; want %v", changed, err, want)
	}
	if _, err := changedLines(t.Context(), r.dir, "nowhere"); err == nil {
		t.Error("there is no such commit, and no error")
	}
}

// TestChangedSince finds the commit to compare with in clones of each kind.
func TestChangedSince(t *testing.T) {
	r := newRepository(t)
	if _, _, err := changedSince(t.Context(), r.dir); err == nil {
		t.Error("there is no commit, and no error")
	}
	r.commit("one")
	want := func(in repository, commit, words string) {
		t.Helper()
		hash, err := git(t.Context(), in.dir, "rev-parse", commit)
		if err != nil {
			t.Fatal(err)
		}
		if since, is, err := changedSince(t.Context(), in.dir); err != nil || since != hash || !strings.Contains(is, words) {
			t.Errorf("compared with %s, %s, %v; want %s, %s", since, is, err, hash, words)
		}
	}
	want(r, "HEAD", "none before it") // the first commit
	r.commit("two")
	want(r, "HEAD~1", "before the last")
	want(r.clone(), "HEAD~1", "before the last")
	want(r.clone("--depth", "1"), "HEAD", "none before it")
	branch := r.clone()
	branch.git("checkout", "-q", "-b", "branch")
	branch.commit("three")
	branch.commit("four")
	want(branch, "HEAD~2", "origin/main")
	branch.git("remote", "remove", "origin")
	want(branch, "HEAD~2", "left main")
	if err := os.RemoveAll(filepath.Join(r.dir, ".git")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := changedSince(t.Context(), r.dir); err == nil {
		t.Error("there is no repository, and no error")
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
		chosen, err := (options{part: part}).choosePart(all)
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

// TestBudget: a run does not fail for mutants for which its budget leaves no time, but it does for a binary that does not compile.
func TestBudget(t *testing.T) {
	all := options{root: "..", only: regexp.MustCompile("")}
	if err := runPackages(t.Context(), all, []string{"./mutants/testdata/rules"}); err != nil {
		t.Error(err)
	}
	all.budget = time.Hour
	if err := runPackages(t.Context(), all, []string{"./nowhere"}); err == nil {
		t.Error("there is no such package, and no error")
	}
	p, err := loadPackage(t.Context(), "..", "./mutants/testdata/rules")
	if err == nil {
		err = p.mutate(func(*mutant) bool { return true })
	}
	if err != nil {
		t.Fatal(err)
	}
	p.chosen = p.mutants
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := all.runPackage(over, p); err != nil {
		t.Error(err)
	}
	p.rewritten["rules.go"] = "no Go"
	if err := all.runPackage(t.Context(), p); err == nil || !strings.Contains(err.Error(), "compile") {
		t.Errorf("the test binary cannot be compiled, and the run ends with: %v", err)
	}
}

// TestOnly chooses mutants by file and function.
func TestOnly(t *testing.T) {
	o := options{only: regexp.MustCompile(`^a\.go:Table\.`)}
	choose := o.chooserOf("./a", nil)
	if !choose(&mutant{file: "a.go", function: "Table.Get"}) || choose(&mutant{file: "b.go", function: "Table.Get"}) {
		t.Error("-only chooses others")
	}
	o.changed = true
	if choose := o.chooserOf("./a", changes{"./b": {"a.go:1": true}}); choose != nil {
		t.Error("a package is chosen that did not change")
	}
	choose = o.chooserOf("./a", changes{"./a": {"a.go:1": true}})
	at := func(line int) *mutant { return &mutant{file: "a.go", function: "Table.Get", line: line} }
	if !choose(at(1)) || choose(at(2)) || !choose(&mutant{file: "a.go", function: "Table.Get", line: 2, mark: &replacement{line: 1}}) {
		t.Error("other mutants are chosen than those of changed lines and marks")
	}
}

package chubby_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The lists of these laws say how far the code is from what they ask for. They may only shrink.

// lawUpward: who reads a package from its first file on knows what each file stands on. A file refers to another one that declares what it names;
// in the best order of the files few references run back up. (In etcd-io/raft 16 of a hundred do, in etcd's server 13, in raft-wal 3.)
func lawUpward(t *testing.T, files []source) {
	const allowed = 15
	for dir, is := range references(slices.DeleteFunc(slices.Clone(files), func(f source) bool { return !f.ours })) {
		total, up := is.upward()
		percent := (100*up + total/2) / max(total, 1)
		if total >= 20 && percent > allowed { // a few files are read in any order
			t.Errorf("%s: %d of %d references between files run back up, which is %d of a hundred; at most %d: give what is used from above a file below",
				dir, up, total, percent, allowed)
		}
	}
}

// fileReferences are the references between the files of a package: by the one that refers.
type fileReferences map[string]map[string]bool

// references returns those of each package.
func references(files []source) map[string]fileReferences {
	all := map[string]fileReferences{}
	declared := map[string]map[string]string{} // by directory and name, the file; "" if several files have that name
	for _, f := range files {
		if f.test {
			continue
		}
		if declared[f.dir] == nil {
			declared[f.dir], all[f.dir] = map[string]string{}, fileReferences{}
		}
		all[f.dir][f.path] = map[string]bool{}
		for _, name := range declaredNames(f) {
			if other, known := declared[f.dir][name]; known && other != f.path {
				declared[f.dir][name] = "" // methods of two types
			} else {
				declared[f.dir][name] = f.path
			}
		}
	}
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := x.X.(*ast.Ident); ok && f.imports[of.Name] != "" {
					return false // of another package
				}
			}
			if id, ok := n.(*ast.Ident); ok {
				if other := declared[f.dir][id.Name]; other != "" && other != f.path {
					all[f.dir][f.path][other] = true
				}
			}
			return true
		})
	}
	return all
}

// declaredNames lists what a file declares: types, functions, methods, variables and constants.
func declaredNames(f source) (names []string) {
	for _, decl := range f.ast.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			names = append(names, decl.Name.Name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	return names
}

// upward counts the references, and those which run back up in an order of the files in which few do: whoever nobody left refers to comes
// first, whoever refers to nobody left last, and else the one that refers most beyond what refers to it (Eades, Lin, Smyth 1993).
func (r fileReferences) upward() (total, up int) {
	left := slices.Sorted(maps.Keys(r))
	var first, last []string
	for len(left) > 0 {
		best, most, sink := 0, 0, -1
		for i, file := range left {
			out, in := 0, 0
			for _, other := range left {
				if r[file][other] {
					out++
				}
				if r[other][file] {
					in++
				}
			}
			if out == 0 {
				sink = i
				break
			}
			if in == 0 {
				best, most = i, len(left)
			} else if i == 0 || out-in > most {
				best, most = i, out-in
			}
		}
		if sink >= 0 {
			last = append(last, left[sink])
			left = slices.Delete(left, sink, sink+1)
			continue
		}
		first = append(first, left[best])
		left = slices.Delete(left, best, best+1)
	}
	slices.Reverse(last)
	order := map[string]int{}
	for i, file := range append(first, last...) {
		order[file] = i
	}
	for file, others := range r {
		for other := range others {
			total++
			if order[other] < order[file] {
				up++
			}
		}
	}
	return total, up
}

// large are the types that are larger than lawLarge allows, and why.
func large() map[string]string {
	return map[string]string{
		"cell.Config":                         "a key for each thing that operators decide",
		"cmd/chubbyctl/internal/sizing.Costs": "a record of what was measured",
		"namespace.Tree":                      "all that is done to the tree, pure",
		"raftfsm.Command":                     "a field for each command of the log",
		"raftfsm.State":                       "all that the log does, pure",
		"refusal.Refusal":                     "a field for each fact that a refusal may state",
	}
}

// lawLarge: nobody holds more in the head.
func lawLarge(t *testing.T, files []source) {
	const maxMethods, maxFields = 45, 20
	dirs := map[string]bool{}
	for _, f := range files {
		if f.ours && !f.test {
			dirs[f.dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		for name, is := range typeSizes(files, dir) {
			listed := large()[dir+"."+name] != ""
			if over := is.methods > maxMethods || is.fields > maxFields; over != listed {
				t.Errorf("%s.%s has %d methods and %d fields; at most %d and %d, or a row in large that says why: it has one: %v", dir, name, is.methods, is.fields, maxMethods, maxFields, listed)
			}
		}
	}
}

// wide is how many lines of each package are wider than a screen that shows two files beside each other.
func wide() map[string]int {
	return map[string]int{
		"api":                           6,
		"cell":                          106,
		"cell/celltest":                 3,
		"cell/celltest/processes":       1,
		"cell/internal/audit":           5,
		"cell/internal/console":         27,
		"cell/internal/disk":            34,
		"cell/internal/identity":        2,
		"cell/internal/master":          49,
		"cell/internal/peer":            39,
		"cell/internal/wire":            72,
		"cell/recovery":                 4,
		"client":                        98,
		"client/clientprom":             15,
		"client/recipe":                 22,
		"client/recipe/resolver":        1,
		"cmd/chubbyctl":                 145,
		"cmd/chubbyctl/internal/sizing": 7,
		"cmd/chubbyd":                   70,
		"cmd/chubbyd/internal/names":    3,
		"internal/backup":               2,
		"internal/backupstore":          6,
		"internal/certs":                18,
		"internal/frames":               3,
		"internal/otlp":                 2,
		"internal/supervise":            9,
		"internal/tokens":               7,
		"misuse":                        13,
		"namespace":                     6,
		"raftfsm":                       18,
		"refusal":                       52,
		"sequencer":                     6,
		"sequencer/seqgrpc":             3,
		"session":                       6,
	}
}

// lawWide: a line has at most 140 columns, a tab being four of them. Marks for mutants have the line that they stand for.
func lawWide(t *testing.T, files []source) {
	const columns = 140
	is := map[string]int{}
	for _, f := range files {
		if f.test || !f.ours {
			continue
		}
		text, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//mutant") && utf8.RuneCountInString(strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")) > columns {
				is[f.dir]++
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(is)) {
		if is[dir] > wide()[dir] {
			t.Errorf("%s: %d lines have more than %d columns, and wide allows %d", dir, is[dir], columns, wide()[dir])
		}
	}
	for dir := range wide() {
		if is[dir] == 0 {
			t.Errorf("%s: no line has more than %d columns: it needs no row in wide any more", dir, columns)
		}
	}
}

// foreign are names in comments that other programs have.
func foreign() []string {
	return []string{
		"appendConfigurationEntry", "configurationChangeChIfStable", "dispatchLogs", "electSelf", "leaderCommit", "leaderLoop", "persistVote",
		"processLogs", "replicateTo", "requestPreVote", "setCurrentTerm", // of hashicorp/raft
		"clientFoundRows", "macOS", "uniformResourceIdentifier",
	}
}

// lawNamed: what a comment names exists. A name of this code is known by a capital letter inside; others' may be quoted.
func lawNamed(t *testing.T, files []source) {
	exists := map[string]bool{}
	for _, name := range foreign() {
		exists[name] = true
	}
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				exists[n.Name] = true
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					for _, word := range innerCapital.FindAllString(n.Value, -1) {
						exists[word] = true
					}
				}
			}
			return true
		})
	}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, group := range f.ast.Comments {
			for _, word := range innerCapital.FindAllString(quoted.ReplaceAllString(group.Text(), ""), -1) {
				if !exists[word] {
					t.Errorf("%s: a comment names %s, which does not exist", f.at(group), word)
				}
			}
		}
	}
}

var (
	innerCapital = regexp.MustCompile(`\b[a-z]+[a-z0-9]*[A-Z][A-Za-z0-9]*\b`)
	quoted       = regexp.MustCompile("\"[^\"\n]*\"|`[^`]*`")
)

package chubby_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const logPage = "docs/logs.md"

// logTables are what docs/logs.md says of events and fields.
type logTables struct {
	levels map[string]string   // of events, as the page has them
	fields map[string][]string // of events
	known  []string            // every field
}

func readLogTables(t *testing.T) logTables {
	t.Helper()
	is := logTables{levels: map[string]string{}, fields: map[string][]string{}}
	before, after, ok := strings.Cut(textOf(t, logPage), "\n## Fields\n")
	if !ok {
		t.Fatalf("%s has no fields: the pattern of this law does not fit it any more", logPage)
	}
	quoted := func(text string) []string { return firstGroups("`([a-z_]+)`", text) }
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\| ([a-z, ]+) \\| ([a-z_`, ]*) ?\\| .+ \\|$").FindAllStringSubmatch(before, -1) {
		for _, event := range quoted(row[1]) {
			is.levels[event], is.fields[event] = row[2], quoted(row[3])
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\| .+ \\|$").FindAllStringSubmatch(after, -1) {
		for _, field := range quoted(row[1]) {
			if slices.Contains(is.known, field) {
				t.Errorf("%s: the field %s is there twice", logPage, field)
			}
			is.known = append(is.known, field)
		}
	}
	if len(is.levels) < 30 || len(is.known) < 60 {
		t.Fatalf("%s has %d events and %d fields: the pattern of this law does not fit it any more", logPage, len(is.levels), len(is.known))
	}
	for event, fields := range is.fields {
		for _, field := range fields {
			if !slices.Contains(is.known, field) {
				t.Errorf("%s: %s has the field %s, which the table of fields does not have", logPage, event, field)
			}
		}
	}
	return is
}

// logCall is what one call logs, as far as it is written there.
type logCall struct {
	level  string // "" if it is not written there
	event  string // "" without one
	fields []string
	strays []ast.Expr // keys that are no literals
}

// firstField is where the fields begin in the arguments of the functions that log. say and note are those of the
// master's journal, whose fields are attributes.
func firstField(method string) (at int, logs bool) {
	at, logs = map[string]int{
		"With": 0, "Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3, "LogAttrs": 3, "say": 2, "note": 4,
	}[method]
	return at, logs
}

// readLogCall reads a call of a logger. One is known by its name: log, logger, Logger, journal.
func readLogCall(f source, call *ast.CallExpr) (is logCall, logs bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return is, false
	}
	var name string
	switch on := selector.X.(type) {
	case *ast.SelectorExpr:
		name = on.Sel.Name
	case *ast.Ident:
		name = on.Name
		if _, pkg := f.imports[name]; pkg {
			return is, false
		}
	}
	at, logs := firstField(selector.Sel.Name)
	if !logs || !slices.Contains([]string{"log", "logger", "Logger", "journal"}, name) {
		return is, false
	}
	for _, level := range []string{"Debug", "Info", "Warn", "Error"} {
		if strings.HasPrefix(selector.Sel.Name, level) || slices.ContainsFunc(call.Args, func(e ast.Expr) bool {
			s, ok := e.(*ast.SelectorExpr)
			return ok && s.Sel.Name == "Level"+level
		}) {
			is.level = strings.ToLower(level)
		}
	}
	for i := at; i < len(call.Args); i++ {
		if strings.HasPrefix(callee(call.Args[i]), "slog.") || call.Ellipsis.IsValid() && i == len(call.Args)-1 {
			continue // readAttr has it, or had it where the list was made
		}
		key, ok := literal(call.Args[i])
		if !ok {
			is.strays = append(is.strays, call.Args[i])
			break
		}
		is.fields = append(is.fields, key)
		if i++; key == "event" && i < len(call.Args) {
			is.event, _ = literal(call.Args[i])
		}
	}
	return is, true
}

func literal(e ast.Expr) (text string, ok bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// lawLogs: who collects logs searches them by fields. A name that is only nearly the same, or means something else in
// another line, is found by nobody; so all names are in one table, which people read, and nothing is logged that it lacks.
func lawLogs(t *testing.T, files []source) {
	tables := readLogTables(t)
	// Attributes whose names are not written there.
	free := []exempt{{"cell/logqueue.go", "", "it passes on what others have logged"}, {"cell/internal/master/reports.go", "slog.Int64", "its group left_out has the names of events"}, {"cell/internal/wire/calllog.go", "slog.Duration", "its group phases has those of the phases"}}
	written := map[string]bool{}
	for _, f := range files {
		if !f.ours || f.test || under(f.path, "cell/celltest") {
			continue
		}
		f.calls(func(call *ast.CallExpr, _ []*ast.FuncType) {
			if is, logs := readLogCall(f, call); logs {
				checkLogCall(t, f, call, is, tables)
				written[is.event] = true
				if f.dir == "cell/internal/master" && f.path != "cell/internal/master/reports.go" {
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && !slices.Contains([]string{"say", "note"}, s.Sel.Name) {
						t.Errorf("%s: a master writes to its log by its journal only, for it may hold its mutex", f.at(call))
					}
				}
				return
			}
			name := callee(call)
			if !isAttr(name) || len(call.Args) == 0 {
				return
			}
			key, ok := literal(call.Args[0])
			if key == "event" && len(call.Args) == 2 {
				event, _ := literal(call.Args[1])
				written[event] = true
			}
			if exempted(free, f, name) {
				return
			}
			if !ok || !slices.Contains(tables.known, key) {
				t.Errorf("%s: the field %q is not in the table of %s", f.at(call), key, logPage)
			}
		})
		if f.path == "cell/internal/master/reports.go" {
			for _, event := range literalsInLists(f) {
				written[event] = true
			}
		}
	}
	delete(written, "")
	for event := range written {
		if tables.levels[event] == "" {
			t.Errorf("the event %s is not in the tables of %s: say there when it comes, and what to do", event, logPage)
		}
	}
	for event := range tables.levels {
		if !written[event] {
			t.Errorf("%s: nothing logs the event %s", logPage, event)
		}
	}
}

// literalsInLists are the texts in composite literals: in the master's journal, the events that are sampled.
func literalsInLists(f source) (texts []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if list, ok := n.(*ast.CompositeLit); ok {
			for _, e := range list.Elts {
				if text, ok := literal(e); ok {
					texts = append(texts, text)
				}
			}
		}
		return true
	})
	return texts
}

func isAttr(name string) bool {
	return slices.Contains([]string{"slog.String", "slog.Int", "slog.Int64", "slog.Uint64", "slog.Float64", "slog.Bool", "slog.Duration", "slog.Time", "slog.Any", "slog.Group"}, name)
}

func checkLogCall(t *testing.T, f source, call *ast.CallExpr, is logCall, tables logTables) {
	t.Helper()
	for range is.strays {
		t.Errorf("%s: write the names of fields as they are: this law looks for them in %s", f.at(call), logPage)
	}
	for _, key := range is.fields {
		if !slices.Contains(tables.known, key) {
			t.Errorf("%s: the field %q is not in the table of %s: is there one that means the same?", f.at(call), key, logPage)
		}
		if is.event != "" && !slices.Contains(append(tables.fields[is.event], "event", "replica", "cell", "epoch"), key) {
			t.Errorf("%s: %s does not say that %s has the field %s", f.at(call), logPage, is.event, key)
		}
	}
	if is.event != "" && is.level != "" && !slices.Contains(strings.Split(tables.levels[is.event], ", "), is.level) {
		t.Errorf("%s: %s is logged as %s, and %s says %s", f.at(call), is.event, is.level, logPage, tables.levels[is.event])
	}
}

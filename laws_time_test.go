package chubby_test

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

// lawClocks: two clocks in one process disagree, Go's own stops in suspend, and
// code that reads one cannot be tested at a moment of the test's choice. So the
// clock is read in few rooms and handed on as a function or as now.
func lawClocks(t *testing.T, files []source) {
	readers := []exempt{
		{"internal/bootclock", "", "the clock of replicas, clients and guardians"},
		{"cell/clock*.go", "", "the wall clock, for display"},
		{"internal/certs/clock.go", "Now", "certificates begin and end by the wall clock, everywhere; nothing else that is promised rests on it"},
		{"internal/tokens/clock.go", "Now", "as certificates do, tokens end by the wall clock"},
		{"cmd/chubbyd/clock.go", "Now", "requests to name servers are signed with the time; nothing that is promised rests on it"},
		{"internal/frames/pulse.go", "", "it is read for each frame, and the clock of leases costs a system call; it only finds connections that are dead"},
		{"internal/frames/clientcall.go", "Until", "what crosses the wire is the time that is left until the end of a context, which has no other clock"},
		{"cell/celltest", "", "it runs in synctest bubbles, where Go's own clock is the virtual one"},
		{"cell/internal/memnet", "", "as celltest does"},
		{"cell/internal/testbed", "", "as celltest does"},
		{"cmd/chubbyctl/clock.go", "Since", "for display: how long ago, by the wall clock"},
		{"cmd/chubbyctl/clock.go", "Now", "for display: when a line of watch was printed"},
		{"contrib/recipes/cmd/chubbyctl-recipes/clock.go", "", "for display, and for --wait"},
		{"contrib/internal/leaders", "", "it is for tests, in synctest bubbles and of processes"},
		{"contrib/gocron/locker.go", "", "how long a lock is kept at least, by gocron's own clock: over a suspend it is kept longer, never shorter"},
		{"bench", "", "it measures how long things take, and decides nothing by it"},
		{"internal/load", "", "as bench does"},
		{"tools", "", "for those who develop Chubby; nothing of it runs in a cell or a client"},
	}
	reads := map[string][]string{
		"time":                  {"Now", "Since", "Until"},
		"golang.org/x/sys/unix": {"ClockGettime", "Gettimeofday", "Time", "Sysinfo"},
		"syscall":               {"ClockGettime", "Gettimeofday", "Time", "Sysinfo"},
	}
	for _, f := range files {
		if f.test {
			continue
		}
		f.uses(func(n ast.Node, importPath, name string) {
			if slices.Contains(reads[importPath], name) && !exempted(readers, f, name) {
				t.Errorf("%s: %s.%s reads a clock: take now as an argument, or the Clock of the Config", f.at(n), path.Base(importPath), name)
			}
			if importPath == "time" && name == "Sleep" && !exempted(readers, f, name) {
				t.Errorf("%s: time.Sleep cannot be cancelled: wait in a select with a timer and ctx.Done()", f.at(n))
			}
		})
	}
}

// lawSince: the "since" that people are shown is the wall clock of the
// master of that epoch. Nothing may be decided by it.
func lawSince(t *testing.T, files []source) {
	comparisons := []token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ}
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if slices.Contains(comparisons, n.Op) && (mentionsSince(n.X) || mentionsSince(n.Y)) {
					t.Errorf("%s: SinceUnix is compared: it is for display; decisions about time use the lease clock", f.at(n))
				}
			case *ast.CallExpr:
				if callee(n) == "cmp.Compare" && slices.ContainsFunc(n.Args, mentionsSince) {
					t.Errorf("%s: SinceUnix is compared: it is for display; order by a generation or an id", f.at(n))
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && mentionsSince(n.Tag) {
					t.Errorf("%s: SinceUnix is compared: it is for display; decisions about time use the lease clock", f.at(n))
				}
			}
			return true
		})
	}
}

func mentionsSince(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && (name.Name == "SinceUnix" || name.Name == "GetSinceUnix") {
			found = true
		}
		return !found
	})
	return found
}

// lawSleep: a test that sleeps is slow on a good day and wrong on a bad one. In
// a synctest bubble sleeping costs nothing and is exact; and an end-to-end test
// of real processes has no other clock. A file whose tests run in bubbles imports
// synctest, or calls the function inBubble, inCell, inCellOf, inAuditedCell, inTLSCell, inTokenCell, inConsoleCell, inSession, onStage, runInBubble, runInSession, inWorld, withCachers or withFollowed of its package, or
// celltest.Run.
func lawSleep(t *testing.T, files []source) {
	endToEnd := []exempt{{"e2e", "", "real processes"}}
	for _, f := range files {
		if !f.test || f.imports["synctest"] == "testing/synctest" || callsInBubble(f) || exempted(endToEnd, f, "Sleep") {
			continue
		}
		f.uses(func(n ast.Node, importPath, name string) {
			if importPath == "time" && name == "Sleep" {
				t.Errorf("%s: time.Sleep in a test: wait for what is to happen (a channel, synctest.Wait), or pass now", f.at(n))
			}
		})
	}
}

func callsInBubble(f source) bool {
	found := false
	f.uses(func(_ ast.Node, importPath, name string) {
		found = found || name == "Run" && importPath == module+"/cell/celltest"
	})
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && slices.Contains([]string{"inBubble", "inCell", "inCellOf", "inAuditedCell", "inTLSCell", "inTokenCell", "inConsoleCell", "inSession", "onStage", "runInBubble", "runInSession", "inWorld", "withCachers", "withFollowed"}, callee(call)) {
			found = true
		}
		return !found
	})
	return found
}

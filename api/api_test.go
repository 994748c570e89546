package api_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// Codes cross the wire and are in logs: each keeps its number and its name.
func TestCodesAreStable(t *testing.T) {
	names := strings.Fields(`NotMaster WrongCell Unavailable Uncertain SessionExpired StaleEpoch NotFound Exists NotEmpty
		NotDirectory IsDirectory InvalidPath InvalidArgument TooLarge PermissionDenied Unauthenticated BadHandle HandleClosed
		LockHeld LockDelayed LockLost NotHeld BadSequencer GenerationMismatch Deadlock QuotaExceeded Cancelled
		DeadlineExceeded Corrupt`)
	if got := api.Codes(); len(got) != len(names) {
		t.Fatalf("%d codes, want %d", len(got), len(names))
	}
	for i, name := range names {
		if got := api.Code(i + 1).String(); got != name {
			t.Errorf("code %d is %s, want %s", i+1, got, name)
		}
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("connection refused")
	err := fmt.Errorf("election: %w", &api.Error{
		Code: api.LockHeld, Op: "acquire", Path: "/ls/foo/lock", Replica: "r2", Master: "h:1", Message: "held by s7; use --wait", Err: cause,
	})
	want := "election: acquire /ls/foo/lock: held by s7; use --wait (LockHeld, replica r2, master h:1): connection refused"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if !errors.Is(err, api.LockHeld) || errors.Is(err, api.NotHeld) || !errors.Is(err, cause) || api.CodeOf(err) != api.LockHeld {
		t.Error("the error is not what it says")
	}
	if api.CodeOf(nil) != api.OK || api.CodeOf(cause) != api.Uncertain || api.CodeOf(fmt.Errorf("x: %w", api.Corrupt)) != api.Corrupt {
		t.Error("CodeOf")
	}
}

func TestIdentifiersReadBack(t *testing.T) {
	if id, err := api.ParseSessionID(api.SessionID(42).String()); err != nil || id != 42 {
		t.Errorf("session: %v, %v", id, err)
	}
	for _, bad := range []string{"", "s", "42", "s0", "s-1", "s1x"} {
		if _, err := api.ParseSessionID(bad); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("ParseSessionID(%q): %v", bad, err)
		}
	}
	if _, err := api.ParseCellID("00112233445566778899aabbccddeeff"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "00", "00112233445566778899AABBCCDDEEFF", "zz112233445566778899aabbccddeeff"} {
		if _, err := api.ParseCellID(bad); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("ParseCellID(%q): %v", bad, err)
		}
	}
}

func TestModesExclude(t *testing.T) {
	if api.Shared.Conflicts(api.Shared) || !api.Shared.Conflicts(api.Exclusive) || !api.Exclusive.Conflicts(api.Shared) ||
		!api.Exclusive.Conflicts(api.Exclusive) {
		t.Error("only shared and shared go together (Chubby §2.4)")
	}
}

// Two holdings overlap if the tokens say so, and one was exclusive.
func TestOverlap(t *testing.T) {
	for now, together := range map[api.Generation]bool{13: false, 12: true, 11: true, 10: true} {
		h := api.History{Holdings: []api.Holding{{Mode: api.Exclusive, Generation: 11, Until: 12}, {Mode: api.Shared, Generation: now}}}
		if a, b, found := h.Overlap(); found != together || found && a.Generation+b.Generation != 11+now {
			t.Errorf("with token %d now, after one until 12: %v, %+v, %+v", now, found, a, b)
		}
	}
}

// A client that makes up a path, a name or a reason cannot forge a line of a log, or give
// orders to a terminal.
func TestErrorTextIsOneLine(t *testing.T) {
	err := &api.Error{Code: api.InvalidPath, Op: "open", Path: "/ls/local/a\nERROR all is lost", Replica: "r\r2",
		Message: "h\u00f6st \x1b[31m \u202e \xff held by \u65e5\u672c (a\tb)"}
	want := `open /ls/local/a\nERROR all is lost: höst \x1b[31m \u202e \xff held by 日本 (a\tb) (InvalidPath, replica r\r2)`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

// A call that its context has ended has one of two codes, whatever wraps the reason.
func TestContextCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want api.Code
	}{
		{context.DeadlineExceeded, api.DeadlineExceeded},
		{fmt.Errorf("asked in vain: %w", context.DeadlineExceeded), api.DeadlineExceeded},
		{context.Canceled, api.Cancelled},
		{errors.New("the program ends"), api.Cancelled},
	} {
		if got := api.ContextCode(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// A cause that the message ends with is said once.
func TestCauseIsSaidOnce(t *testing.T) {
	cause := errors.New("stat /nofile: no such file or directory")
	for message, want := range map[string]string{
		"":                         "read: (InvalidArgument): stat /nofile: no such file or directory",
		"the file":                 "read: the file (InvalidArgument): stat /nofile: no such file or directory",
		cause.Error():              "read: stat /nofile: no such file or directory (InvalidArgument)",
		"cacert: " + cause.Error(): "read: cacert: stat /nofile: no such file or directory (InvalidArgument)",
	} {
		if got := (&api.Error{Code: api.InvalidArgument, Op: "read", Message: message, Err: cause}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each kind has a number and a name that no other has; the name reads back; and the number
// fits the sets of kinds in handles, which have 64 bits.
func TestEventKinds(t *testing.T) {
	numbers, names := map[api.EventKind]bool{}, map[string]bool{}
	for _, kind := range api.EventKinds() {
		if numbers[kind] || names[kind.String()] || kind == 0 || kind >= 64 {
			t.Errorf("%v (%d) is there twice, or cannot be in a set", kind, kind)
		}
		numbers[kind], names[kind.String()] = true, true
		var back api.EventKind
		if err := back.UnmarshalText([]byte(kind.String())); err != nil || back != kind || !kind.Known() {
			t.Errorf("%v reads back as %v, %v", kind, back, err)
		}
		if kind.Subscribable() && kind.Essential() {
			t.Errorf("%v: handles are opened for events that may be dropped", kind)
		}
		if (kind.NeedsRead() || kind.OfChild()) && !kind.Subscribable() {
			t.Errorf("%v: the right to read, and children, are asked about where a handle was opened for the events", kind)
		}
	}
	if unknown := api.EventKind(63); unknown.Known() || unknown.Subscribable() || unknown.Essential() || unknown.String() != "event 63" {
		t.Errorf("a kind that there is none of: %v", unknown)
	}
}

// A constant without a row would be a kind of which nothing is known.
func TestEveryEventKindHasARow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "EventKind" {
			return true
		}
		constants++
		number, err := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !api.EventKind(number).Known() {
			t.Errorf("%s has no row in eventRows", spec.Names[0].Name)
		}
		return true
	})
	if constants != len(api.EventKinds()) {
		t.Errorf("%d constants, and %d rows", constants, len(api.EventKinds()))
	}
}

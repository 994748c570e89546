package api_test

import (
	"errors"
	"fmt"
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

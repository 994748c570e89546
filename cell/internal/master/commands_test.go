package master

import (
	"reflect"
	"testing"

	"github.com/chubbylock/chubby/raftfsm"
)

// What each command changes in the master's own tables: if the log has done it, and if it has not,
// or perhaps not (master.observeOne, master.unproposed). The sessions, claims, delays and changes
// in a result are observed for every command, and so are the claims of its Successions.
var observed = map[string]struct{ done, undone string }{
	"NewEpoch":      {"nothing: it is before its master", "nothing"},
	"CreateSession": {"lease, mailbox", "nothing: the caller retries"},
	"RaiseLease":    {"raising", "raising"},
	"EndSessions":   {"by the result", "the outbox"},
	"Open":          {"its handle", "nothing: the caller retries"},
	"Close":         {"its handle, closing", "closing"},
	"SetContents":   {"by the result", "nothing: the caller retries"},
	"Delete":        {"the author's own copy", "nothing: the caller retries"},
	"Acquire":       {"by the result", "the outbox"},
	"Release":       {"by the result", "nothing: the caller retries"},
	"EndDelay":      {"by the result", "delays"},
	"Cancel":        {"its waiter, its handle", "the outbox"},
	"Remove":        {"by the result", "nothing: the remover retries"},
	"SetACL":        {"by the result", "nothing: the caller retries"},
	"Revoke":        {"by the result", "nothing: the caller retries"},
	"Evict":         {"by the result", "the outbox"},
	"Terminate":     {"by the result", "nothing: the caller retries"},
	"SetQuota":      {"nothing", "nothing: the caller retries"},
	"RaiseLevel":    {"nothing", "nothing: the caller retries"},
	"ChangeMembers": {"nothing", "nothing: the caller retries"},
	"SettleMember":  {"nothing", "nothing: the replica retries"},
	"Txn":           {"the author's own copies of what it deletes", "nothing: the caller retries"},
	"Restore":       {"the handles of its session", "nothing: the caller retries"},
}

// The compiler does not notice a command that the master does not observe. So the author of a new
// command must add it here.
func TestEveryCommandIsObserved(t *testing.T) {
	fields := reflect.TypeFor[raftfsm.Command]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if o := observed[name]; o.done == "" || o.undone == "" {
			t.Errorf("the command %s is new: see to it in master.observeOne and master.unproposed, and say here what they do about it; if it changes what clients may have cached, propose it with coherence.applyChange", name)
		}
	}
	if fields.NumField() != len(observed) {
		t.Errorf("there are %d commands, and %d are listed here", fields.NumField(), len(observed))
	}
}

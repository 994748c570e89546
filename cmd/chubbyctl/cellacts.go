package main

import (
	"fmt"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// restorationFields are the last restore of a cell.
type restorationFields struct {
	At        *time.Time `json:"at"`
	Counter   uint64     `json:"counter"`
	Index     uint64     `json:"index"`
	Taken     *time.Time `json:"taken"`
	Recovered string     `json:"recovered_from"` // the replica that was left, of a cell that had lost its majority; else ""
}

// actFields are something that is under way in a cell.
type actFields struct {
	Kind      string        `json:"kind"`      // restore, joining, leaving, outage
	Replica   string        `json:"replica"`   // that is joining or leaving, or was the master
	Principal string        `json:"principal"` // "" if the master has begun it
	Session   api.SessionID `json:"session,omitempty"`
	Since     *time.Time    `json:"since"`
	Sealed    bool          `json:"sealed"` // no session can begin before it has ended
	Waits     string        `json:"waits"`
}

// describeAct says what is under way, whose it is, since when, and how it ends.
func describeAct(a client.Act) string {
	what, ends := "A restore from a backup", "It ends by itself a minute after its author's last step; 'chubbyctl cell restore --give-up' ends it at once."
	switch a.Kind {
	case "joining":
		what, ends = "Replica "+a.Replica+" is joining", "'chubbyctl cell remove "+a.Replica+"' gives it up."
	case "outage":
		what, ends = "A drill goes on: outage, begun at "+a.Replica, fmt.Sprintf("It ends with its author's chubbyctl, or by itself within %v of that.", api.MaxOutage)
	case "leaving":
		what, ends = "Replica "+a.Replica+" is leaving", "'chubbyctl cell remove "+a.Replica+" --cancel' has it stay."
	default:
		if a.Sealed {
			ends = "No session can begin meanwhile. " + ends
		}
	}
	by := "by the cell itself"
	if a.Principal != "" {
		by = "by " + term.Printable(a.Principal)
	}
	if a.Session != 0 {
		by += " in session " + a.Session.String()
	}
	waits := ""
	if a.Waits != "" {
		waits = " It waits: " + term.Printable(a.Waits) + "."
	}
	return fmt.Sprintf("%s, %s, since %s.%s %s", what, by, localTime(a.SinceUnix), waits, ends)
}

// describeRestoration says from what a cell was restored.
func describeRestoration(r client.Restoration) string {
	from := "a backup of " + localTime(r.TakenUnix)
	if r.Recovered != "" {
		from = fmt.Sprintf("what replica %s had when the cell had lost its majority (chubbyctl cell recover); changes that only the lost replicas had are missing", r.Recovered)
	}
	return fmt.Sprintf("Restored on %s, up to entry %d, from %s. No token up to %d is valid.", localTime(r.AtUnix), r.Index, from, r.Counter)
}

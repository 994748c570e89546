package main

import (
	"fmt"
	"time"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// drillStatusFields is a drill, as status and top show it.
type drillStatusFields struct {
	Drill   string  `json:"drill"`
	Running bool    `json:"running"`
	SinceS  float64 `json:"since_s"` // how long ago it began
	LeftS   float64 `json:"left_s"`  // until it ends by itself, if it is running
	TookS   float64 `json:"took_s"`  // if it is not
}

func newDrillStatusFields(d *client.DrillStatus) *drillStatusFields {
	if d == nil {
		return nil
	}
	return &drillStatusFields{d.Kind.String(), d.Running, term.Seconds(d.Since), term.Seconds(d.Left), term.Seconds(d.Took)}
}

// drillShown is for how long after its end a drill is shown: what looks odd may be of that.
const drillShown = 10 * time.Minute

// describeDrill says which drill goes on, or has ended recently; "" if none has.
func describeDrill(s client.Status) (text string, running bool) {
	var latest *client.DrillStatus
	at := ""
	for _, r := range s.Replicas {
		if r.Drill != nil && (latest == nil || r.Drill.Since < latest.Since) {
			latest, at = r.Drill, r.ID
		}
	}
	switch {
	case latest == nil || !latest.Running && latest.Since-latest.Took > drillShown:
		return "", false
	case latest.Running:
		return fmt.Sprintf("A drill goes on: %v, since %s, at %s. It ends by itself within %s.", latest.Kind, term.Roughly(latest.Since), at, term.Roughly(latest.Left)), true
	}
	return fmt.Sprintf("There was a drill %s ago: %v, at %s, for %s.", term.Roughly(latest.Since), latest.Kind, at, term.Roughly(latest.Took)), false
}

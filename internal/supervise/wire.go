//go:build unix

package supervise

// order is what chubbyctl sends the guardian. The first one starts the command, if its
// instants have not passed.
type order struct {
	// The instants, in nanoseconds of the clock of now, at which the command is asked to
	// end, and at which it and all its descendants are killed.
	StopAt int64 `json:"term,omitempty"`
	KillAt int64 `json:"kill,omitempty"`

	Signal    int  `json:"signal,omitempty"`    // to pass on to the command
	Unstopped bool `json:"unstopped,omitempty"` // but not if the command has been asked to end
	Stop      bool `json:"stop,omitempty"`      // ask the command to end now, and kill it after KillAfter
}

// report is what the guardian sends chubbyctl.
type report struct {
	Started   int         `json:"started,omitempty"`   // the command's process and process group
	Failed    string      `json:"failed,omitempty"`    // why it could not be started
	Errno     int         `json:"errno,omitempty"`     // likewise
	Late      bool        `json:"late,omitempty"`      // likewise: its time was over
	Immune    int         `json:"immune,omitempty"`    // a process that may not be signalled, because it runs as another user
	Suspended int         `json:"suspended,omitempty"` // the signal that has stopped it for now
	Stopping  int64       `json:"stopping,omitempty"`  // the command is asked to end, and killed after so many nanoseconds
	Left      int         `json:"left,omitempty"`      // with Stopping: the command has ended, and so many that it has left are asked
	Ended     *commandEnd `json:"ended,omitempty"`     // the command has ended
	Gone      bool        `json:"gone,omitempty"`      // and so have all processes that it started; the last report
}

// commandEnd is how the command ended.
type commandEnd struct {
	Code int  `json:"code"` // as a shell shows it: 128+n for one killed by signal n
	Cut  bool `json:"cut"`  // it was stopped because its time was over
}

//go:build unix

package supervise

// order is chubbyctl's message to the guardian. The first one starts the command, unless its instants have
// passed.
type order struct {
	// The instants, in nanoseconds of now's clock, when the command is asked to end, and when all are killed.
	StopAt int64 `json:"term,omitempty"`
	KillAt int64 `json:"kill,omitempty"`

	Signal    int  `json:"signal,omitempty"`    // to pass on to the command
	Unstopped bool `json:"unstopped,omitempty"` // unless the command has been asked to end
	Stop      bool `json:"stop,omitempty"`      // ask the command to end now, and kill it after KillAfter
}

// report is the guardian's message to chubbyctl.
type report struct {
	Started   int         `json:"started,omitempty"`   // the command's process and process group
	Failed    string      `json:"failed,omitempty"`    // why it could not start
	Errno     int         `json:"errno,omitempty"`     // likewise
	Late      bool        `json:"late,omitempty"`      // likewise: its time was over
	Immune    int         `json:"immune,omitempty"`    // a process of another user, which it may not signal
	Suspended int         `json:"suspended,omitempty"` // the signal that has stopped it for now
	Stopping  int64       `json:"stopping,omitempty"`  // the command is asked to end, and killed after so many nanoseconds
	Left      int         `json:"left,omitempty"`      // with Stopping: the command has ended, and so many remaining processes are asked
	Ended     *commandEnd `json:"ended,omitempty"`     // the command has ended
	Gone      bool        `json:"gone,omitempty"`      // as have all its processes; the last report
}

// commandEnd is how the command ended.
type commandEnd struct {
	Code int  `json:"code"` // as in a shell: 128+n after signal n
	Cut  bool `json:"cut"`  // stopped because its time was over
}

//go:build unix

package supervise

// order is what chubbyctl tells the guardian. The first one starts the command, if
// it has a time that is not over.
type order struct {
	// The instants, in nanoseconds of the clock of now, at which the command is
	// asked to end and at which it and all its descendants are killed.
	Term int64 `json:"term,omitempty"`
	Kill int64 `json:"kill,omitempty"`

	Signal int  `json:"signal,omitempty"` // to pass on to the command
	Stop   bool `json:"stop,omitempty"`   // ask it to end now, and kill it after the usual time
}

// report is what the guardian tells chubbyctl.
type report struct {
	Started   int    `json:"started,omitempty"`   // the command's process and process group
	Failed    string `json:"failed,omitempty"`    // why it could not be started
	Errno     int    `json:"errno,omitempty"`     // likewise
	Late      bool   `json:"late,omitempty"`      // likewise: its time was over
	Immune    int    `json:"immune,omitempty"`    // a process that may not be stopped, as it runs as another user
	Suspended int    `json:"suspended,omitempty"` // the signal that has stopped it for now
	Stopping  int64  `json:"stopping,omitempty"`  // it is asked to end, and killed after so many nanoseconds
	Ended     *end   `json:"ended,omitempty"`     // the command has ended
	Gone      bool   `json:"gone,omitempty"`      // and so has everything it started; the last report
}

// end is how the command ended.
type end struct {
	Code int  `json:"code"` // as a shell shows it: 128+n for one killed by signal n
	Cut  bool `json:"cut"`  // it was stopped because its time was over
	Left int  `json:"left"` // processes it left behind, which are being stopped
}

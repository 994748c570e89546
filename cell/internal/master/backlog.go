package master

// Backlog is how much waits, or is kept for clients, at one moment.
type Backlog struct {
	Waiters   int // requests that wait for locks
	Changes   int // names whose changes wait for caches
	Delays    int // locks with a lock-delay
	Handles   int // that clients have open
	Mail      int // bytes of events without an acknowledgement
	Copies    int // bytes that remember what clients may cache
	Proposals int // commands that wait for the log
}

// Backlog returns how much waits now. It holds the mutex only to read a few numbers.
func (m *Master) Backlog() Backlog { return backlogOf(m.epoch, m.tables) }

func backlogOf(e *epoch, t *tables) Backlog {
	e.mu.Lock()
	defer e.mu.Unlock()
	changes := len(t.copyset.clearings)
	if cl := t.copyset.flush; cl != nil && !cl.isDone() {
		changes++ // after a fail-over: every change
	}
	return Backlog{
		Waiters: t.queues.used.all, Changes: changes, Delays: len(t.delays.ids), Handles: t.handles.used.all,
		Mail: t.boxes.mail.used.all, Copies: t.copyset.used.all, Proposals: e.proposer.waiting(),
	}
}

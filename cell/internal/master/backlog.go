package master

// Backlog is how much waits, or is kept for clients, at one moment.
type Backlog struct {
	Waiters   int // requests that wait for locks
	Changes   int // names whose changes wait for clients to drop what they have cached
	Delays    int // locks that nobody gets because of a lock-delay
	Handles   int // that clients have open
	Mail      int // bytes of events that clients have not acknowledged
	Copies    int // bytes in which the master remembers what clients may have cached
	Proposals int // commands that wait to be put into the log
}

// Backlog returns how much waits now. It takes the mutex for as long as it needs to read a few
// numbers, however large the cell is.
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

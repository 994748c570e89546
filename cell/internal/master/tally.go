package master

// tally counts something by principal, and in total. epoch.mu guards it.
type tally struct {
	of  map[string]int // without zeros
	all int
}

func newTally() tally { return tally{of: map[string]int{}} }

// add adds n, which may be negative, for a principal.
func (t *tally) add(principal string, n int) {
	if t.of[principal] += n; t.of[principal] == 0 {
		delete(t.of, principal)
	}
	t.all += n
}

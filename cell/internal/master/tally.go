package master

// tally counts something by principal, for quotas and bounds, and in all. epoch.mu guards it.
type tally struct {
	of  map[string]int // none is 0
	all int
}

func newTally() tally { return tally{of: map[string]int{}} }

// add counts n more of a principal's, or fewer.
func (t *tally) add(principal string, n int) {
	if t.of[principal] += n; t.of[principal] == 0 {
		delete(t.of, principal)
	}
	t.all += n
}
